"""State that is ahead of its log: records are replayed at once, and what was made of them waits until they commit."""
