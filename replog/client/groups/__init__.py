"""A member of a consumer group: what it may read, and how far it has come."""
