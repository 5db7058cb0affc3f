"""A cluster of real processes on one machine, for the command line, tests, benchmarks and the demo."""

from replog.cluster.local_cluster import LocalCluster, NodeSpec

__all__ = ["LocalCluster", "NodeSpec"]
