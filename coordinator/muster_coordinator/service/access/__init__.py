"""Who may do what, and what is kept of who did it."""
