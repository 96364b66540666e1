"""Placement: read `pipeline` first. Filter, pick atoms, score, gang, plan."""
