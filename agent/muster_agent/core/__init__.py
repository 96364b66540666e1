"""What the agent decides, as pure functions: no clock, no chance, no file, no device."""
