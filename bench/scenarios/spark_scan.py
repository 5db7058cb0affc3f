"""How fast does Spark read a topic?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Params, Scenario, WrongResultError
from bench.spark_figures import TOPIC_BYTES, FilledTopics, records_in, spark_rates
from bench.systems.spark_session import CORES
from bench.systems.spark_systems import PARTITIONS, SparkOnKafka, SparkOnReplog, SparkOnReplogByTcp, SparkSystem


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
        self._systems = [SparkOnReplog(), SparkOnReplogByTcp(), SparkOnKafka()] if systems is None else systems
        self._topics = FilledTopics()

    def systems(self) -> Sequence[SparkSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"record_bytes": size, "partitions": PARTITIONS, "cores": CORES} for size in self._record_sizes]

    def measure(self, system: SparkSystem, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        count = records_in(self._topic_bytes, record_bytes)
        topic = self._topics.get(system, count, record_bytes)
        before = system.cpu_times()
        with meter.timed() as timing:
            row = system.read(topic).selectExpr("count(*)", "sum(length(value))").first()
        after = system.cpu_times()
        expected = (count, count * record_bytes)
        if row is None or tuple(row) != expected:
            raise WrongResultError(f"{system.name} found {row}, written were {expected}")
        return spark_rates(timing.wall_s, before, after, count, record_bytes)


SCENARIO = SparkScanScenario()
