"""Verification of a log that nobody has open, and its repair: what fits, what does not, what can be made again."""
