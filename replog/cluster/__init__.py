"""A cluster of real processes on one machine, for the command line, tests, benchmarks and the demo."""

from replog.cluster.local_cluster import LocalCluster, NodeRunsError
from replog.cluster.node_processes import NodePlace
from replog.cluster.node_spec import NodeSpec
from replog.cluster.processes import is_free

__all__ = ["LocalCluster", "NodePlace", "NodeRunsError", "NodeSpec", "is_free"]
