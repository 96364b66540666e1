"""`python -m muster_agent`: the same as the command `muster-agent`."""

from muster_agent.app import main

main()
