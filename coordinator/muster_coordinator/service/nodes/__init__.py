"""Nodes: how they join and report, what they shall have bound, what operators do with them."""
