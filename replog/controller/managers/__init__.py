"""The managers: each turns some requests, or what it finds due, into records and an answer."""
