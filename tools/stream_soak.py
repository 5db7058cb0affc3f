"""Runs a streaming query for a long time while records arrive, and fails where rows are lost or something grows.

``python tools/stream_soak.py --minutes 60 --rate 1000``; needs the extra `spark`.  Three brokers on this machine, one producer,
one query into nothing that counts rows.  Each minute it prints the memory of each kind of process (`Kind`) and the open files of
Python's; at the end the same at the start, at each quarter of the time and at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import enum
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import replog.spark
from replog.client import Admin, LoopThread, SyncProducer
from replog.cluster import LocalCluster

JVM = "org.apache.spark.deploy.SparkSubmit"
PLANNER = "python_streaming_source_runner"
GROWTH_MAX = 1.3
"""What memory may grow by, from the end of the warm-up to the end: pages of caches come and go."""
GROWTH_MIN_MIB = 16
"""Growth by less than this is none."""
FILES_GROWTH_MAX = 5
WARM_UP_MINUTES = 2
PARTITIONS = 4
PATIENCE_MS = 120_000
"""Before the query fails for brokers that do not answer: on a busy machine they may be without a controller for a while."""
RETAINED = 50
"""How many queries, jobs and stages Spark keeps for its web pages: by default so many that its heap grows for half an hour."""


class Kind(enum.StrEnum):
    """A kind of process, or of memory."""

    PLANNER = enum.auto()
    """Python's process that plans the batches of the stream."""
    WORKER = enum.auto()
    """The largest of Python's processes that run tasks."""
    JVM = enum.auto()
    """Spark: driver and executor in one.  Grows to the size of its heap, whatever lives there."""
    HEAP = enum.auto()
    """What lives in Spark's heap, after a collection."""
    JOB = enum.auto()
    """This process: the job, the producer."""
    BROKERS = enum.auto()
    """The three brokers together."""


WATCHED = (Kind.PLANNER, Kind.WORKER, Kind.HEAP, Kind.JOB)
"""What must not grow.  Brokers hold what they have written lately, which retention bounds; the JVM is as large as its heap may be."""


class Sample(NamedTuple):
    """What was seen at one time; memory in MiB, open files by process."""

    minute: float
    rows: int
    memory_mib: dict[Kind, float]
    files: dict[Kind, int]
    workers_count: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=1_000, help="records in a second")
    arguments = parser.parse_args()
    user = object()
    thread = LoopThread.acquire(user)
    with tempfile.TemporaryDirectory() as folder:
        local = thread.run(lambda: LocalCluster.start(Path(folder) / "nodes"), 60)
        try:
            return soak(local, Path(folder), arguments.minutes, arguments.rate)
        finally:
            thread.run(local.stop_all, 60)
            thread.release(user)


def soak(local: LocalCluster, folder: Path, minutes: float, rate: int) -> int:
    """Returns the exit status."""
    asyncio.run(create_topic(local.bootstrap_servers))
    spark = new_session()
    rows = itertools.count()
    stop = threading.Event()
    sent: list[int] = []
    producer = threading.Thread(target=produce, args=(local.bootstrap_servers, rate, stop, sent))
    query = begin(spark, local.bootstrap_servers, folder, rows)
    samples: list[Sample] = []
    try:
        producer.start()
        end_s = time.monotonic() + minutes * 60
        began_s = time.monotonic()
        while time.monotonic() < end_s and query.isActive:
            time.sleep(min(60.0, max(0.0, end_s - time.monotonic())))
            samples.append(sample(local, spark, (time.monotonic() - began_s) / 60, counted(rows)))
            print_sample(samples[-1])
        stop.set()
        producer.join()
        wait_for_rows(query, rows, sum(sent))
        return verdict(samples, counted(rows), sum(sent), query.exception())
    finally:
        stop.set()
        query.stop()
        spark.stop()


async def create_topic(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topic("soak", PARTITIONS, 3, {"retention.ms": 600_000, "segment.bytes": 4 << 20})


def new_session() -> Any:
    replog.spark.prepare(is_local=True)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "1g").config("spark.sql.ui.retainedExecutions", RETAINED)
    builder = builder.config("spark.ui.retainedJobs", RETAINED).config("spark.ui.retainedStages", RETAINED)
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def begin(spark: Any, servers: str, folder: Path, rows: Iterator[int]) -> Any:
    """Starts the query, which draws a number of `rows` for each row."""
    reader = spark.readStream.format("replog").option("bootstrap.servers", servers).option("subscribe", "soak")
    reader = reader.option("startingOffsets", "earliest").option("kafkaConsumer.pollTimeoutMs", PATIENCE_MS)
    frame = reader.schema("offset bigint").load()

    def count(batch: Any, _batch_id: int) -> None:
        for _ in range(batch.count()):
            next(rows)

    writer = frame.writeStream.foreachBatch(count).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime="1 second").start()


def produce(servers: str, rate: int, stop: threading.Event, sent: list[int]) -> None:
    """Sends `rate` records in a second, in tenths; `sent` has what was acknowledged."""
    with SyncProducer(servers) as producer:
        next_s = time.monotonic()
        for number in itertools.count():
            if stop.is_set():
                return
            values = [b"%0100d" % number] * max(1, rate // 10)
            producer.send_many("soak", values, partition=number % PARTITIONS).result(60)
            sent.append(len(values))
            next_s += 0.1
            time.sleep(max(0.0, next_s - time.monotonic()))


def counted(rows: Iterator[int]) -> int:
    """Returns how many numbers a counter has given."""
    return int(repr(rows)[len("count(") : -1])


def wait_for_rows(query: Any, rows: Iterator[int], expected: int) -> None:
    deadline_s = time.monotonic() + 120
    while counted(rows) < expected and query.isActive and time.monotonic() < deadline_s:
        time.sleep(0.5)


def sample(local: LocalCluster, spark: Any, minute: float, rows: int) -> Sample:
    planners, workers, jvms = spark_processes()
    brokers = [psutil.Process(spec.process.pid) for spec in local.nodes.values() if spec.process is not None]
    memory = {
        Kind.PLANNER: largest_mib(planners),
        Kind.WORKER: largest_mib(workers),
        Kind.JVM: largest_mib(jvms),
        Kind.HEAP: living_heap_mib(spark),
        Kind.JOB: largest_mib([psutil.Process()]),
        Kind.BROKERS: sum(largest_mib([each]) for each in brokers),
    }
    files = {
        Kind.PLANNER: most_files(planners),
        Kind.WORKER: most_files(workers),
        Kind.JOB: most_files([psutil.Process()]),
    }
    return Sample(minute, rows, memory, files, len(workers))


def spark_processes() -> tuple[list[psutil.Process], list[psutil.Process], list[psutil.Process]]:
    """Returns the processes of this one's Spark: planners of streams, other Python processes, JVMs."""
    planners, workers, jvms = [], [], []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended
            line = " ".join(each.cmdline())
            if JVM in line:
                jvms.append(each)
            elif PLANNER in line:
                planners.append(each)
            elif "pyspark" in line:
                workers.append(each)
    return planners, workers, jvms


def largest_mib(processes: Sequence[psutil.Process]) -> float:
    """Returns the resident memory of the largest process; 0 where there is none."""
    found = [0.0]
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            found.append(each.memory_info().rss / 2**20)
    return max(found)


def most_files(processes: Sequence[psutil.Process]) -> int:
    """Returns how many descriptors are open in the process that has most; 0 where there is none."""
    found = [0]
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            found.append(each.num_fds())
    return max(found)


def living_heap_mib(spark: Any) -> float:
    """Returns what is left in Spark's heap by a collection."""
    java = spark.sparkContext._jvm.java.lang  # noqa: SLF001 -- there is no other way to ask
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def print_sample(seen: Sample) -> None:
    memory = "  ".join(f"{kind} {mib:.0f}" for kind, mib in seen.memory_mib.items())
    files = " ".join(f"{kind} {count}" for kind, count in seen.files.items())
    sys.stdout.write(
        f"{seen.minute:6.1f} min  {seen.rows:>10,} rows  MiB: {memory}  open files: {files}  {seen.workers_count} workers\n"
    )
    sys.stdout.flush()


def verdict(samples: Sequence[Sample], rows: int, sent: int, error: object) -> int:
    """Prints what came of it; 1 where rows are missing or double, the query failed, or something grew."""
    problems = [f"the query failed: {error}"] if error is not None else []
    if rows != sent:
        problems.append(f"{sent:,} records were acknowledged and {rows:,} read")
    warm = [each for each in samples if each.minute >= WARM_UP_MINUTES]
    if len(warm) > 1:
        sys.stdout.write("start, quarters and end:\n")
        for quarter in range(5):
            print_sample(warm[quarter * (len(warm) - 1) // 4])
        problems += growth(warm[0], warm[-1])
    sys.stdout.write("\n".join(problems) + "\n" if problems else f"{rows:,} records, each read once; nothing grew\n")
    return 1 if problems else 0


def growth(first: Sample, last: Sample) -> Iterator[str]:
    """Yields what has grown."""
    for kind in WATCHED:
        before, after = first.memory_mib[kind], last.memory_mib[kind]
        if after > max(before * GROWTH_MAX, before + GROWTH_MIN_MIB):
            yield f"the memory of {kind} grew from {before:.0f} to {after:.0f} MiB"
    for kind, before in first.files.items():
        if last.files[kind] > before + FILES_GROWTH_MAX:
            yield f"the open files of {kind} grew from {before} to {last.files[kind]}"


if __name__ == "__main__":
    sys.exit(main())
