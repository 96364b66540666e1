"""The `muster` command: people's way to the coordinator's HTTP API."""
