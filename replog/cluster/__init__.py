"""A cluster of real processes on one machine, for the command line, tests, benchmarks and the demo.

Each name loads what it needs when it is first used: a broker in this process (`embedded`) needs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
