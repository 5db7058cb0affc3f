"""The coordinators of groups and of transactions on this node: a shard for each partition of their topics that this broker leads."""
