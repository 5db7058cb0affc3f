"""Committed offsets: where each group was in each partition."""
