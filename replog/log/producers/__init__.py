"""The idempotent producers of one log: their state, its snapshot files, and the way back from them."""
