"""Transactions as Kafka has them: what a coordinator of theirs writes down."""
