"""The coordinators of groups on this node: a shard for each partition of their topic that this broker leads."""
