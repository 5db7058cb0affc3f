"""Kafka's protocol as bytes: primitive types, and the generated classes of its messages."""
