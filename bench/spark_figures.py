"""What the scenarios of Spark share: how much they read, topics that are filled once, and the figures that come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench.model import MB_PER_S, Measured, Metric
from bench.systems.spark_systems import PARTITIONS, generated

if TYPE_CHECKING:
    from bench.systems.spark_session import CpuTime
    from bench.systems.spark_systems import SparkSystem

TOPIC_BYTES = 256 * 1024 * 1024
RECORDS_MAX = 2_000_000
ROWS_PER_S = Metric("rows_per_s", "1/s")
GROUPS = ("brokers", "workers", "jvm")
CPU_METRICS = {group: Metric(f"{group}_cpu_s_per_gb", "s/GB") for group in GROUPS}
SYSTEM_METRICS = {group: Metric(f"{group}_system_s_per_gb", "s/GB") for group in GROUPS}


def records_in(topic_bytes: int, record_bytes: int, records_max: int = RECORDS_MAX) -> int:
    """How many records fill a topic, the same number in each partition."""
    return min(records_max, topic_bytes // record_bytes) // PARTITIONS * PARTITIONS


def spark_rates(
    wall_s: float, before: Mapping[str, CpuTime], after: Mapping[str, CpuTime], count: int, record_bytes: int
) -> Measured:
    """Rows and megabytes per second, and where the CPU time went: all of it, and what of it was in the kernel."""
    gigabytes = count * record_bytes / 1e9
    spent = {group: after[group] - before[group] for group in GROUPS}
    cpu = {CPU_METRICS[group]: max(0.0, each.all_s) / gigabytes for group, each in spent.items()}
    system = {SYSTEM_METRICS[group]: max(0.0, each.system_s) / gigabytes for group, each in spent.items()}
    return {ROWS_PER_S: count / wall_s, MB_PER_S: count * record_bytes / wall_s / 1e6, **cpu, **system}


class FilledTopics:
    """A topic to read of each system, filled when it is first asked for; one of another shape takes its place."""

    def __init__(self) -> None:
        self._filled: dict[str, tuple[str, tuple[int, int]]] = {}

    def get(self, system: SparkSystem, count: int, record_bytes: int) -> str:
        """The topic of a system that has `count` values of `record_bytes`."""
        topic, shape = self._filled.get(system.name, ("", (0, 0)))
        if shape == (count, record_bytes):
            return topic
        if topic:
            system.delete_topic(topic)
        topic = system.create_topic()
        system.write(generated(count, record_bytes), topic)
        self._filled[system.name] = (topic, (count, record_bytes))
        return topic
