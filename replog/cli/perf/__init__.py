"""Loads of `replog perf`, and what is measured of them."""
