"""A member of a consumer group (KIP-848): what it may read, and how far it has come."""
