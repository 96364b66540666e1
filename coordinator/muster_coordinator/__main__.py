"""`python -m muster_coordinator`."""

from muster_coordinator.app import main

main()
