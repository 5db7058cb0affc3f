"""The public test kit: replacements for what a test cannot control, such as a disk that loses power.

============================================== ======================================================================
`simulate`                                     your own client code against a whole cluster in virtual time
`SimulatedCluster`                             its nodes: `crash`, `stop`, `pause`, `isolate`, `cut_client`, disks, clocks
`NetworkConditions`                            delays, stragglers, lost packets, broken connections
`ClusterObserver`                              is told what the nodes learn
`SimulationError`                              the simulation is stuck, or never rests
`History`, `Anomaly`, `AnomaliesFoundError`    what clients were promised, checked
`SimulatedFileSystem`                          a disk in memory that loses power, fills up, fails and rots
`Operation`, `PowerCutError`                   kinds of disk operations that can fail; what a power cut raises
`BrokerFixture`, `ClusterFixture`              what the fixtures of pytest are: `replog_broker`, `replog_cluster`
============================================== ======================================================================

Pages of examples: `docs/PYTEST.md`, `docs/SIMULATION.md`.  Importing this is cheap: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.host.late_names import late_names

if TYPE_CHECKING:
    from replog.testing.fixtures.broker import BrokerFixture
    from replog.testing.fixtures.cluster import ClusterFixture
    from replog.testing.history import AnomaliesFoundError, Anomaly, History
    from replog.testing.simulated_cluster import SimulatedCluster
    from replog.testing.simulated_faults import Operation, PowerCutError
    from replog.testing.simulated_filesystem import SimulatedFileSystem
    from replog.testing.simulated_network import NetworkConditions
    from replog.testing.simulated_node import ClusterObserver
    from replog.testing.simulation import simulate
    from replog.testing.virtual_loop import SimulationError

__all__ = [
    "AnomaliesFoundError",
    "Anomaly",
    "BrokerFixture",
    "ClusterFixture",
    "ClusterObserver",
    "History",
    "NetworkConditions",
    "Operation",
    "PowerCutError",
    "SimulatedCluster",
    "SimulatedFileSystem",
    "SimulationError",
    "simulate",
]

_HOMES = {
    "AnomaliesFoundError": "replog.testing.history",
    "Anomaly": "replog.testing.history",
    "BrokerFixture": "replog.testing.fixtures.broker",
    "ClusterFixture": "replog.testing.fixtures.cluster",
    "ClusterObserver": "replog.testing.simulated_node",
    "History": "replog.testing.history",
    "NetworkConditions": "replog.testing.simulated_network",
    "Operation": "replog.testing.simulated_faults",
    "PowerCutError": "replog.testing.simulated_faults",
    "SimulatedCluster": "replog.testing.simulated_cluster",
    "SimulatedFileSystem": "replog.testing.simulated_filesystem",
    "SimulationError": "replog.testing.virtual_loop",
    "simulate": "replog.testing.simulation",
}

__getattr__, __dir__ = late_names(__name__, _HOMES)
