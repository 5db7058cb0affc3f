"""How fast does Spark write to a topic?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Params, Scenario, WrongResultError
from bench.spark_figures import TOPIC_BYTES, records_in, spark_rates
from bench.systems.spark_session import CORES
from bench.systems.spark_systems import (
    NUMBER_BYTES,
    PARTITIONS,
    SparkOnKafka,
    SparkOnReplog,
    SparkSystem,
    generated,
)


class SparkSinkScenario(Scenario[SparkSystem]):
    """One batch write of rows that Spark makes, to a new topic of its own, until all are acknowledged by all replicas in sync.

    Args:
        topic_bytes: how much is written.
        record_sizes: which sizes to try, bytes.
        systems: by default all there are.
    """

    name = "spark-sink"
    question = "How fast does Spark write to a topic of three brokers?"

    def __init__(
        self,
        topic_bytes: int = TOPIC_BYTES,
        record_sizes: Sequence[int] = (100, 1024),
        systems: Sequence[SparkSystem] | None = None,
    ) -> None:
        self._topic_bytes = topic_bytes
        self._record_sizes = record_sizes
        self._systems = [SparkOnReplog(), SparkOnKafka()] if systems is None else systems

    def systems(self) -> Sequence[SparkSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"record_bytes": size, "partitions": PARTITIONS, "cores": CORES} for size in self._record_sizes]

    def measure(self, system: SparkSystem, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        count = records_in(self._topic_bytes, record_bytes)
        topic = system.create_topic()
        rows = generated(count, record_bytes)
        before = system.cpu_times()
        with meter.timed() as timing:
            system.write(rows, topic)
        after = system.cpu_times()
        _check(system, topic, count, record_bytes)
        system.delete_topic(topic)
        return spark_rates(timing.wall_s, before, after, count, record_bytes)


def _check(system: SparkSystem, topic: str, count: int, record_bytes: int) -> None:
    """Compares what is in the topic with what was written: how many, how many different ones, how many bytes."""
    distinct = f"count(DISTINCT partition, substr(value, 1, {NUMBER_BYTES}))"
    row = system.read(topic).selectExpr("count(*)", distinct, "sum(length(value))").first()
    expected = (count, count, count * record_bytes)
    if row is None or tuple(row) != expected:
        raise WrongResultError(f"{system.name} has {row}, written were {expected}")


SCENARIO = SparkSinkScenario()
