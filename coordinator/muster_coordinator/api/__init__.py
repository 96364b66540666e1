"""The HTTP API: bytes in, one service call, bytes out."""
