"""One module for each noun: read the call, one service call, answer."""
