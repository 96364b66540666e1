"""The life of a reservation: what to do next, from stored state and the clock alone."""
