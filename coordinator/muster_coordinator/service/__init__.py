"""Transaction bodies: load, decide, commit. Synchronous, over a connection and a given moment."""
