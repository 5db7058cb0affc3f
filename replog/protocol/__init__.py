"""Kafka's own protocol over TCP."""
