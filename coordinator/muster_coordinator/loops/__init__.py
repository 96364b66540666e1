"""Timers around the service layer. Each has a `run_once`, and nothing depends on how often it runs."""
