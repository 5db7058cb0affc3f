"""A cluster of real processes on one machine, for the command line, tests, benchmarks and the demo.

Each name loads what it needs when it is first used: a broker in this process (`embedded`) needs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from replog.host.late_names import late_names

if TYPE_CHECKING:
    from replog.cluster.local_cluster import LocalCluster, NodeRunsError
    from replog.cluster.node_processes import NodePlace
    from replog.cluster.node_spec import NodeSpec
    from replog.cluster.processes import is_free

__all__ = ["LocalCluster", "NodePlace", "NodeRunsError", "NodeSpec", "is_free"]

_HOMES: Final[Mapping[str, str]] = {
    "LocalCluster": "replog.cluster.local_cluster",
    "NodePlace": "replog.cluster.node_processes",
    "NodeRunsError": "replog.cluster.local_cluster",
    "NodeSpec": "replog.cluster.node_spec",
    "is_free": "replog.cluster.processes",
}

__getattr__, __dir__ = late_names(__name__, _HOMES)
