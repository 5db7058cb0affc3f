"""How fast does Spark read a topic?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.meter import Meter
from bench.model import MB_PER_S, Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.spark_systems import CORES, PARTITIONS, SparkOnKafka, SparkOnReplog, SparkSystem

TOPIC_BYTES = 256 * 1024 * 1024
RECORDS_MAX = 2_000_000
ROWS_PER_S = Metric("rows_per_s", "1/s")
CPU_METRICS = {group: Metric(f"{group}_cpu_s_per_gb", "s/GB") for group in ("brokers", "workers", "jvm")}


def records_in(topic_bytes: int, record_bytes: int) -> int:
    """How many records fill a topic, the same number in each partition."""
    return min(RECORDS_MAX, topic_bytes // record_bytes) // PARTITIONS * PARTITIONS


class SparkScanScenario(Scenario[SparkSystem]):
    """One batch query over all partitions, from the page cache: `count(*)` and `sum(length(value))`, from `load()` on.

    Args:
        topic_bytes: how much is read.
        record_sizes: which sizes to try, bytes.
        systems: by default all there are.
    """

    name = "spark-scan"
    question = "How fast does a batch query of Spark read a topic of three brokers?"

    def __init__(
        self,
        topic_bytes: int = TOPIC_BYTES,
        record_sizes: Sequence[int] = (100, 1024),
        systems: Sequence[SparkSystem] | None = None,
    ) -> None:
        self._topic_bytes = topic_bytes
        self._record_sizes = record_sizes
        self._systems = [SparkOnReplog(), SparkOnKafka()] if systems is None else systems
        self._topics: dict[tuple[str, int], str] = {}

    def systems(self) -> Sequence[SparkSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"record_bytes": size, "partitions": PARTITIONS, "cores": CORES} for size in self._record_sizes]

    def measure(self, system: SparkSystem, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        count = records_in(self._topic_bytes, record_bytes)
        topic = self._filled(system, count, record_bytes)
        before = system.cpu_seconds()
        with meter.timed() as timing:
            row = system.read(topic).selectExpr("count(*)", "sum(length(value))").first()
        after = system.cpu_seconds()
        expected = (count, count * record_bytes)
        if row is None or tuple(row) != expected:
            raise WrongResultError(f"{system.name} found {row}, written were {expected}")
        return spark_rates(timing.wall_s, before, after, count, record_bytes)

    def _filled(self, system: SparkSystem, count: int, record_bytes: int) -> str:
        key = (system.name, record_bytes)
        if key not in self._topics:
            topic = system.create_topic()
            system.fill(topic, count, record_bytes)
            self._topics[key] = topic
        return self._topics[key]


def spark_rates(
    wall_s: float, before: Mapping[str, float], after: Mapping[str, float], count: int, record_bytes: int
) -> Measured:
    """Rows and megabytes per second, and where the CPU time went."""
    gigabytes = count * record_bytes / 1e9
    cpu = {metric: (after[group] - before[group]) / gigabytes for group, metric in CPU_METRICS.items()}
    return {ROWS_PER_S: count / wall_s, MB_PER_S: count * record_bytes / wall_s / 1e6, **cpu}


SCENARIO = SparkScanScenario()
