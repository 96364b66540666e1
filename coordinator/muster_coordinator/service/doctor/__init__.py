"""What must always hold, checked on a live database by looks that share nothing with the code that they judge."""
