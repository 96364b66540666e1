"""The shell: senses feed facts in, the core names an act, hands perform it, the uplink tells of it."""
