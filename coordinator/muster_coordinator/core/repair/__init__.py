"""BookingRepair: is a booking still sound, and which nodes take the place of those that are not."""
