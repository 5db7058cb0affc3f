"""Snapshots of the metadata log: their files, which there are, and how long they stay (KAFKA.md 5.8)."""
