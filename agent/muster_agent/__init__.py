"""The agent: what runs on a GPU host, reports what is really there, and hands devices over."""
