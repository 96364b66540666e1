"""What the coordinator decides, as pure functions over frozen values: no clock, no chance, no I/O."""
