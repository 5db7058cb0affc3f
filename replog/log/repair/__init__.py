"""Verification and repair of a log that is not open: finds what does not fit, and makes again what can be made again."""
