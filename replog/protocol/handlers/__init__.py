"""Turns requests of Kafka's clients into our own, and our answers back: one module for each family of APIs."""
