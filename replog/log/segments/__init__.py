"""The segments of one log: `.log` files of batches, and their offset, time and transaction indexes."""
