"""Windows in which nodes belong to whoever mends them."""
