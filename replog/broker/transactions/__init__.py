"""Transactions between brokers: partitions join those of producers, and get the markers that end them."""
