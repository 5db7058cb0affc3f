"""How fast does a stream of Spark read a topic, and how long does one micro-batch take?"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.spark_figures import FilledTopics, records_in, spark_rates
from bench.systems.spark_session import CORES
from bench.systems.spark_systems import PARTITIONS, SparkOnKafka, SparkOnReplog, SparkOnReplogByTcp, SparkSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

EMPTY_BATCH_S = Metric("empty_batch_s", "s")
"""Of a micro-batch with one record of each partition, for Spark runs none without any: see `_empty_batch_s`."""

TOPIC_BYTES = 1 << 30
RECORDS_MAX = 6_000_000
"""More than a scan reads: the start of a query takes as long as reading 100 MB."""

BATCHES = (1, 8)
WARM_BATCHES = 10
COUNTED_BATCHES = 20
END_TIMEOUT_S = 600
POLL_S = 0.05


class SparkStreamScenario(Scenario[SparkSystem]):
    """A run with `availableNow` over all partitions, from the page cache, in one micro-batch and in several.

    The sink is Spark's `noop`; rows and bytes are counted by `observe`, and looked for in the progress of the query.  The time
    begins before `load()` and ends with the query: it has the start of the query and its checkpoint in it.

    Args:
        topic_bytes: how much is read.
        record_sizes: which sizes to try, bytes.
        batches: into how many micro-batches the run is parted, by `maxOffsetsPerTrigger`.
        counted_batches: of how many small micro-batches the middle is taken.
        systems: by default all there are.
    """

    name = "spark-stream"
    question = "How fast does a stream of Spark read a topic of three brokers, and how long does one micro-batch take?"

    def __init__(
        self,
        topic_bytes: int = TOPIC_BYTES,
        record_sizes: Sequence[int] = (100, 1024),
        batches: Sequence[int] = BATCHES,
        counted_batches: int = COUNTED_BATCHES,
        systems: Sequence[SparkSystem] | None = None,
    ) -> None:
        self._topic_bytes = topic_bytes
        self._record_sizes = record_sizes
        self._batches = batches
        self._counted_batches = counted_batches
        self._systems = [SparkOnReplog(), SparkOnReplogByTcp(), SparkOnKafka()] if systems is None else systems
        self._topics = FilledTopics()

    def systems(self) -> Sequence[SparkSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        common = {"partitions": PARTITIONS, "cores": CORES}
        small = {"record_bytes": self._record_sizes[0], "offsets_per_batch": PARTITIONS, **common}
        runs = [
            {"record_bytes": size, "batches": batches, **common}
            for size in self._record_sizes
            for batches in self._batches
        ]
        return sorted([*runs, small], key=lambda case: case["record_bytes"])  # those of one size read one topic

    def measure(self, system: SparkSystem, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        count = records_in(self._topic_bytes, record_bytes, RECORDS_MAX)
        topic = self._topics.get(system, count, record_bytes)
        with tempfile.TemporaryDirectory() as checkpoint:
            if "offsets_per_batch" in params:
                return {EMPTY_BATCH_S: _empty_batch_s(system, topic, checkpoint, self._counted_batches)}
            per_batch = -(-count // int(params["batches"]))
            before = system.cpu_times()
            with meter.timed() as timing:
                query = _start(
                    system.read_stream(topic, maxOffsetsPerTrigger=str(per_batch)), checkpoint, availableNow=True
                )
                _wait(query, END_TIMEOUT_S)
            after = system.cpu_times()
        _check(system, query, count, record_bytes, int(params["batches"]))
        return spark_rates(timing.wall_s, before, after, count, record_bytes)


def _start(frame: DataFrame, checkpoint: str, **trigger: Any) -> StreamingQuery:
    from pyspark.sql import functions

    found = frame.observe(
        "found", functions.count("*").alias("rows"), functions.sum(functions.length("value")).alias("bytes")
    )
    return found.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(**trigger).start()


def _wait(query: StreamingQuery, timeout_s: int) -> None:
    """Waits for the end of a query."""
    if not query.awaitTermination(timeout_s):
        query.stop()
        raise WrongResultError(f"a streaming query had not ended after {timeout_s} s")


def _check(system: SparkSystem, query: StreamingQuery, count: int, record_bytes: int, batches: int) -> None:
    progress = [each for each in query.recentProgress if each.numInputRows]
    observed = [each.observedMetrics["found"] for each in progress]
    found = (sum(row["rows"] for row in observed), sum(row["bytes"] for row in observed), len(progress))
    expected = (count, count * record_bytes, batches)
    if found != expected:
        raise WrongResultError(f"{system.name}: rows, bytes and batches are {found}, and should be {expected}")


def _empty_batch_s(system: SparkSystem, topic: str, checkpoint: str, counted: int) -> float:
    """The middle of `triggerExecution`, Spark's own time for all of a micro-batch, of batches that have next to nothing.

    They follow one another in one query with a trigger of 0 s that begins at the start of a full topic and takes one record of
    each partition at a time; the first ones do not count.  Asking for the end, planning, the checkpoint's two files, the tasks
    and the commit are in it; rows are not.
    """
    frame = system.read_stream(topic, maxOffsetsPerTrigger=str(PARTITIONS))
    query = _start(frame, checkpoint, processingTime="0 seconds")
    until_s = time.monotonic() + END_TIMEOUT_S
    try:
        while (last := query.lastProgress) is None or last.batchId < WARM_BATCHES + counted:
            if not query.isActive:
                raise WrongResultError(f"{system.name}: the query ended by itself: {query.exception()}")
            if time.monotonic() > until_s:
                raise WrongResultError(f"{system.name}: no {WARM_BATCHES + counted} batches within {END_TIMEOUT_S} s")
            time.sleep(POLL_S)
    finally:
        query.stop()
    measured = [each for each in query.recentProgress if each.numInputRows][WARM_BATCHES:]
    if {each.numInputRows for each in measured} != {PARTITIONS}:
        raise WrongResultError(f"{system.name}: the batches have {[each.numInputRows for each in measured]} rows")
    return statistics.median(each.durationMs["triggerExecution"] / 1000 for each in measured)


SCENARIO = SparkStreamScenario()
