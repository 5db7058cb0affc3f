"""Streaming queries whose batches land in a list, for the Spark tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.spark.spark_kit import SparkCluster

END_TIMEOUT_S = 120


class Row(NamedTuple):
    """One record that a batch has brought."""

    partition: int
    offset: int
    value: bytes


class Batches:
    """A sink that keeps what each batch brought, and may fail at one."""

    def __init__(self, fail_at: int = -1) -> None:
        self.batches: list[tuple[int, list[Row]]] = []
        self.fail_at = fail_at

    def __call__(self, frame: Any, batch_id: int) -> None:
        found = frame.select("partition", "offset", "value").orderBy("partition", "offset").collect()
        self.batches.append((batch_id, [Row(row[0], row[1], bytes(row[2])) for row in found]))
        if batch_id == self.fail_at:
            raise RuntimeError("the sink fails")

    @property
    def rows(self) -> list[Row]:
        """All rows, by partition and offset."""
        return sorted(row for _, rows in self.batches for row in rows)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [(row.partition, row.offset) for row in self.rows]

    @property
    def sizes(self) -> list[int]:
        return [len(rows) for _, rows in self.batches]


class StreamKit:
    """Starts queries over topics of a cluster."""

    def __init__(self, spark: Any, cluster: SparkCluster, folder: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._folder = folder

    def begin(self, topic: str, sink: Batches, checkpoint: str = "checkpoint", **options: Any) -> Any:
        """Starts a query; the option `trigger` is Spark's, by default one after the other."""
        trigger = options.pop("trigger", {"processingTime": "0 seconds"})
        reader = self._spark.readStream.format("replog").option("bootstrap.servers", self._cluster.bootstrap_servers)
        for name, value in {"subscribe": topic, **options}.items():
            reader = reader.option(name, value)
        writer = reader.load().writeStream.foreachBatch(sink)
        return writer.option("checkpointLocation", str(self._folder / checkpoint)).trigger(**trigger).start()

    @contextmanager
    def running(self, topic: str, sink: Batches, **options: Any) -> Iterator[Any]:
        """A query that runs until the block ends."""
        query = self.begin(topic, sink, **options)
        try:
            yield query
            assert query.exception() is None
        finally:
            query.stop()

    def read_to_end(self, topic: str, fail_at: int = -1, **options: Any) -> Batches:
        """Runs a query until it has read what is there; raises what ended it."""
        sink = Batches(fail_at)
        query = self.begin(topic, sink, **{"trigger": {"availableNow": True}, "startingOffsets": "earliest", **options})
        try:
            if not query.awaitTermination(END_TIMEOUT_S):
                raise TimeoutError("the query did not end")
        finally:
            query.stop()
        return sink
