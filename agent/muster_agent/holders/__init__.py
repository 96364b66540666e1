"""Who holds a device, and how to end them: read from /proc alone, so that the smallest program can do it.

Only the standard library: the guard imports this, and must start where nothing else of the agent does.
"""
