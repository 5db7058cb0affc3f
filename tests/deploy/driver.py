"""A Spark driver in a process of its own: ``python driver.py MASTER [NAME=VALUE ...]``, the settings being those of Spark.

Reads requests from standard input, a line of JSON each, and answers each with one, which begins with ANSWER: Spark prints there
too.  It imports nothing of these tests, and Spark pickles the functions of a script by value: so executors that have only what a
recipe gave them run them too.

A *gate* lets a test act in the middle of a task.  A task that has passed some rows says so, by a file with the process id of its executor's
Python, and goes on when the test has written the file GO beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any

ANSWER = "answer: "
CONNECT = "connect:"
"""Before a master: Spark Connect, with a server that the session starts."""

GO = "go"
GATE_TIMEOUT_S = 240
STREAM_TIMEOUT_S = 240

HELD = "replog-held"
"""The name of a data source that holds a task up."""

STARTS = 8
TOO_BUSY = "Python worker failed to connect back"
"""What Spark says where the Python that plans a stream was not there ten seconds after it was started; no setting changes that."""

COLUMNS = (
    "partition", "offset", "sha2(key, 256)", "sha2(value, 256)", "topic", "unix_millis(timestamp)", "timestampType",
)  # fmt: skip


def main(master: str, *settings: str) -> None:
    """Serves until standard input ends."""
    from pyspark.sql import SparkSession

    is_remote = master.startswith(CONNECT)
    builder = (
        SparkSession.builder.remote(master.removeprefix(CONNECT)) if is_remote else SparkSession.builder.master(master)
    )
    for setting in settings:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    reply({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply(JOBS[request["job"]](spark, request))
        except Exception as error:  # noqa: BLE001 -- the test judges it
            reply({"error": f"{type(error).__name__}: {error}"})
    spark.stop()


def reply(answer: dict[str, Any]) -> None:
    sys.stdout.write(f"{ANSWER}{json.dumps(answer)}\n")
    sys.stdout.flush()


# ---- jobs ------------------------------------------------------------------------------------------------------------


def read(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Describes the rows of a batch read."""
    return described(gated(configured(spark.read, request).load(), request))


def stream(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Describes the files that a streaming query has written when all is read."""
    folder = request["folder"]
    rows = gated(configured(spark.readStream, request).load(), request)
    run_to_end(rows.writeStream.format("parquet").option("path", f"{folder}/rows"), folder)
    return described(spark.read.parquet(f"{folder}/rows"))


def write(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Writes numbered rows: a number of eight digits and a filling."""
    value = f"concat(lpad(CAST(id AS STRING), 8, '0'), repeat('x', {request['filling']})) value"
    rows = spark.range(0, request["rows"], 1, request["tasks"]).selectExpr(value)
    configured(gated(rows, request).write, request).mode("append").save()
    return {}


def write_held(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Writes as `write` does; the first attempt of task 0 is held up when it has written all, before Spark hears of it."""
    from pyspark.sql.datasource import DataSourceArrowWriter

    from pyspark_replog import DefaultSource

    hold = partial(hold_first_attempt, **request.pop("gate"), go=GO, timeout_s=GATE_TIMEOUT_S)

    class HeldWriter(DataSourceArrowWriter):
        def __init__(self, writer: DataSourceArrowWriter) -> None:
            self.writer, self.commit, self.abort = writer, writer.commit, writer.abort  # type: ignore[method-assign]

        def write(self, iterator: Iterator[Any]) -> Any:
            message = self.writer.write(iterator)
            hold()
            return message

    class HeldSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return HELD

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return HeldWriter(super().writer(schema, overwrite))  # type: ignore[arg-type]  # it takes Arrow batches

    spark.dataSource.register(HeldSource)
    return write(spark, {**request, "format": HELD})


def copy(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Streams from one topic into another until all is copied."""
    rows = gated(configured(spark.readStream, request).load().select("value"), request)
    servers = request["options"]["bootstrap.servers"]
    writer = rows.writeStream.format("replog").option("bootstrap.servers", servers).option("topic", request["target"])
    writer = writer.option("delivery", request.get("delivery", "atLeastOnce"))
    run_to_end(writer, request["folder"])
    return {}


def keep(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Makes a DataFrame and a view of it, and counts their rows; with the job `count` again."""
    KEPT["frame"] = configured(spark.read, request).load()
    KEPT["frame"].createOrReplaceTempView("kept")
    return count(spark, request)


def count(spark: Any, _request: dict[str, Any]) -> dict[str, Any]:
    """Counts the rows of what `keep` has made."""
    return {"frame": KEPT["frame"].count(), "view": spark.table("kept").count()}


KEPT: dict[str, Any] = {}


def executors(spark: Any, _request: dict[str, Any]) -> dict[str, Any]:
    """Tells the processes that run tasks: the Python of each executor."""

    def parent(_rows: Any) -> Iterator[int]:
        import os

        yield os.getppid()

    return {"pids": sorted(set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(parent).collect()))}


def register(spark: Any, _request: dict[str, Any]) -> dict[str, Any]:
    """Registers the data source by hand."""
    from pyspark_replog import DefaultSource

    spark.dataSource.register(DefaultSource)
    return {}


JOBS: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {
    function.__name__: function
    for function in (read, stream, write, write_held, copy, keep, count, executors, register)
}


def configured(reader: Any, request: dict[str, Any]) -> Any:
    """Returns a reader or writer of the data source with the request's options."""
    reader = reader.format(request.get("format", "replog"))
    for name, value in request["options"].items():
        reader = reader.option(name, value)
    return reader


def run_to_end(writer: Any, folder: str) -> None:
    """Runs a query until it has read what there is; begins anew where the machine was too busy to begin."""
    for _ in range(STARTS):
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        try:
            has_ended = query.awaitTermination(STREAM_TIMEOUT_S)
        except Exception as error:
            if TOO_BUSY not in str(error):
                raise
            continue
        finally:
            query.stop()
        if not has_ended:
            raise TimeoutError("the query did not end")
        return
    raise TimeoutError(f"{STARTS} queries in a row: {TOO_BUSY}")


def described(frame: Any) -> dict[str, Any]:
    """Returns the number of rows, and a digest of all of them in whatever order they come."""
    rows = [tuple(row) for row in frame.selectExpr(*COLUMNS).collect()]
    return {"rows": len(rows), "digest": digest(rows)}


def digest(rows: list[tuple[Any, ...]]) -> str:
    """Returns the digest of rows with the columns of COLUMNS."""
    return sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()


# ---- gates -------------------------------------------------------------------------------------------------------------


def gated(frame: Any, request: dict[str, Any]) -> Any:
    """Returns the rows, held up once in each task where the request has a gate."""
    if "gate" not in request:
        return frame
    gate = partial(hold_up, **request["gate"], go=GO, timeout_s=GATE_TIMEOUT_S)
    return frame.mapInArrow(gate, frame.schema)


def hold_up(batches: Iterator[Any], *, folder: str, rows: int, batch: str, go: str, timeout_s: float) -> Iterator[Any]:
    """Passes rows on; after some of them says so, and waits for the test."""
    from pathlib import Path

    from pyspark import TaskContext

    context = TaskContext.get()
    if batch and context.getLocalProperty("streaming.sql.batchId") != batch:
        yield from batches
        return
    mark = Path(folder) / f"{context.partitionId()}-{context.attemptNumber()}"
    passed = 0
    for some in batches:
        yield some
        passed += some.num_rows
        if passed >= rows and not mark.exists():
            wait_at(mark, go, timeout_s)


def hold_first_attempt(*, folder: str, go: str, timeout_s: float, **_more: Any) -> None:
    """Says that an attempt of task 0 is here, and has the first one wait for the test."""
    from pathlib import Path

    from pyspark import TaskContext

    context = TaskContext.get()
    if context.partitionId() == 0:
        mark = Path(folder) / f"{context.partitionId()}-{context.attemptNumber()}"
        wait_at(mark, go, timeout_s if context.attemptNumber() == 0 else 0)


def wait_at(mark: Any, go: str, timeout_s: float) -> None:
    """Writes the file that says that a task is here, and waits for the test."""
    import os
    import time

    part = mark.with_suffix(".part")
    part.write_text(str(os.getppid()))
    part.replace(mark)
    deadline = time.monotonic() + timeout_s
    while not (mark.parent / go).exists() and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
