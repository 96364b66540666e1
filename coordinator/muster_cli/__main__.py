"""`python -m muster_cli`."""

from muster_cli.main import main

main()
