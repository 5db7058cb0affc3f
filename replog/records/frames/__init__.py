"""Frames around compressed blocks that no library makes as Kafka does: LZ4 and xerial snappy."""
