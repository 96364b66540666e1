"""What an operator on the host asks the agent: how it fares, what it sees, its figures."""
