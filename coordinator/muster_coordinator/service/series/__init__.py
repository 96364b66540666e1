"""Bookings that come again by a rule: each occurrence a reservation of its own, made ahead of its time."""
