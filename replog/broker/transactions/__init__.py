"""Transactions between brokers: what coordinators ask of the leaders of partitions."""
