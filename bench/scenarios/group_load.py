"""How long do groups wait for their coordinators when a broker starts that keeps a million offsets?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario
from bench.systems.loaded_groups import LoadedGroups

GROUPS = 10_000
OFFSETS = 100

ANSWERING_MS = Metric("answering_ms", "ms")
READY_MS = Metric("ready_ms", "ms")
CPU_MS = Metric("broker_cpu_ms", "ms")
RSS_MIB = Metric("rss_mib", "MiB")


class GroupLoadScenario(Scenario[LoadedGroups]):
    """Groups commit offsets at one node; it is stopped in order, and started again.

    `answering_ms` is the time from its start as a process until it answers anything, `ready_ms` until a group of each of its
    fifty coordinators is told its offsets; `broker_cpu_ms` and `rss_mib` are the CPU time and the memory of the process at
    that moment.  Every offset is read back.

    Args:
        groups: The number of groups.
        systems: By default all there are.
    """

    name = "group-load"
    question = "How long do groups wait for their coordinators when a broker starts that keeps a million offsets?"

    def __init__(self, groups: int = GROUPS, systems: Sequence[LoadedGroups] | None = None) -> None:
        self._groups = groups
        self._systems = [LoadedGroups()] if systems is None else systems

    def systems(self) -> Sequence[LoadedGroups]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"groups": self._groups, "offsets": self._groups * OFFSETS}]

    def measure(self, system: LoadedGroups, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- its process begins in between
        system.fill(self._groups, OFFSETS)
        report = system.restart()
        return {
            ANSWERING_MS: report.answering_s * 1000,
            READY_MS: report.ready_s * 1000,
            CPU_MS: report.cpu_s * 1000,
            RSS_MIB: report.resident_bytes / 2**20,
        }


SCENARIO = GroupLoadScenario()
