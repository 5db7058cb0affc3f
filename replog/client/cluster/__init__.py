"""The client's image of the cluster, the connections to its nodes, and calls to those that lead partitions."""
