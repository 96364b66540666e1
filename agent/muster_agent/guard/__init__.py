"""The guard: a small program of its own that ends a grant where the agent is dead.

Only the standard library and `muster_agent.holders`: it must start on a host where nothing else does.
"""
