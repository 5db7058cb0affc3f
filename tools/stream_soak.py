"""Runs a streaming query for a long time while records arrive, and fails where rows are lost or something grows.

``python tools/stream_soak.py --minutes 60 --rate 1000``; needs the extra `spark`.  Three brokers on this machine, one producer,
one query into nothing that counts rows.  Each minute it prints the memory of the Python process that plans the stream, of the
brokers and of this process, and the open files of the first.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import replog.spark
from replog.client import Admin, LoopThread, SyncProducer
from replog.cluster import LocalCluster

RUNNER = "python_streaming_source_runner"
GROWTH_MAX = 1.3
"""What the memory of a process may grow by, from the end of the warm-up to the end: pages of caches come and go."""
WARM_UP_MINUTES = 2
PARTITIONS = 4


class Sample(NamedTuple):
    """What was seen at one time; memory in MiB."""

    minute: float
    rows: int
    runner_mib: float
    runner_files: int
    brokers_mib: float


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
            samples.append(sample(local, began_s, counted(rows)))
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
    replog.spark.prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def begin(spark: Any, servers: str, folder: Path, rows: Iterator[int]) -> Any:
    """Starts the query, which draws a number of `rows` for each row."""
    reader = spark.readStream.format("replog").option("bootstrap.servers", servers).option("subscribe", "soak")
    frame = reader.option("startingOffsets", "earliest").schema("offset bigint").load()

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


def sample(local: LocalCluster, began_s: float, rows: int) -> Sample:
    runners = [pid for path in Path("/proc").glob("[0-9]*") if is_runner(pid := int(path.name))]
    brokers = [spec.process.pid for spec in local.nodes.values() if spec.process is not None]
    return Sample(
        (time.monotonic() - began_s) / 60,
        rows,
        sum(map(memory_mib, runners)),
        sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in runners),
        sum(map(memory_mib, brokers)),
    )


def is_runner(pid: int) -> bool:
    """Whether it is a process of this user's Spark that plans a stream, begun by this process's JVM."""
    try:
        if RUNNER not in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
            return False
        return os.getpid() in ancestors(pid)
    except OSError:  # it has ended
        return False


def ancestors(pid: int) -> Iterator[int]:
    """Yields the parents of a process."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


def memory_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def print_sample(seen: Sample) -> None:
    sys.stdout.write(
        f"{seen.minute:6.1f} min  {seen.rows:>10,} rows  planner {seen.runner_mib:6.1f} MiB, {seen.runner_files} files  "
        f"brokers {seen.brokers_mib:6.1f} MiB\n"
    )
    sys.stdout.flush()


def verdict(samples: list[Sample], rows: int, sent: int, error: object) -> int:
    """Prints what came of it; 1 where rows are missing or double, the query failed, or something grew."""
    problems = [f"the query failed: {error}"] if error is not None else []
    if rows != sent:
        problems.append(f"{sent:,} records were acknowledged and {rows:,} read")
    warm = [each for each in samples if each.minute >= WARM_UP_MINUTES]
    if len(warm) > 1:
        first, last = warm[0], warm[-1]
        if last.runner_mib > first.runner_mib * GROWTH_MAX:
            problems.append(f"the planner's memory grew from {first.runner_mib:.0f} to {last.runner_mib:.0f} MiB")
        if last.runner_files > first.runner_files + 5:
            problems.append(f"the planner's open files grew from {first.runner_files} to {last.runner_files}")
    sys.stdout.write("\n".join(problems) + "\n" if problems else f"{rows:,} records, each read once; nothing grew\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
