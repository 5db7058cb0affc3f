"""Scans many gigabytes with Spark and fails where its Python workers take more than 1 GiB together.

``python tools/spark_memory.py --gigabytes 10``; needs the extra `spark`.  One broker on this machine and topics of 256 MB that are
read again and again, each by other ways: from files, from the broker, and compressed five-hundredfold.  After each query it
prints the memory of all tasks' processes at its highest.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import replog.spark
from replog.client import Admin, LoopThread, SyncProducer
from replog.cluster import LocalCluster

LIMIT_MIB = 1024
PARTITIONS = 2
VALUE = b"v" * 1000
RECORDS = 256_000
READS = {
    "from files": ("plain", {}),
    "from the broker": ("plain", {"directReads": "false"}),
    "compressed": ("packed", {}),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10, help="how much to read, in values")
    arguments = parser.parse_args()
    user = object()
    thread = LoopThread.acquire(user)
    with tempfile.TemporaryDirectory() as folder:
        local = thread.run(lambda: LocalCluster.start(Path(folder) / "nodes", nodes=1), 60)
        try:
            thread.run(lambda: create_topics(local.bootstrap_servers), 60)
            fill(local.bootstrap_servers)
            return scan(local.bootstrap_servers, arguments.gigabytes)
        finally:
            thread.run(local.stop_all, 60)
            thread.release(user)


async def create_topics(servers: str) -> None:
    async with Admin(servers) as admin:
        for topic in ("plain", "packed"):
            await admin.create_topic(topic, PARTITIONS, 1)


def fill(servers: str) -> None:
    with SyncProducer(servers) as plain, SyncProducer(servers, compression="gzip") as packed:
        for topic, producer in (("plain", plain), ("packed", packed)):
            for partition in range(PARTITIONS):
                producer.send_many(topic, [VALUE] * (RECORDS // PARTITIONS), partition=partition).result(600)


def scan(servers: str, gigabytes: float) -> int:
    """Returns the exit status."""
    spark = new_session()
    highest_mib, read_gb = 0.0, 0.0
    began_s = time.monotonic()
    try:
        while read_gb < gigabytes:
            for name, (topic, options) in READS.items():
                with watched() as peaks:
                    count_rows(spark, servers, topic, options)
                highest_mib = max(highest_mib, *peaks)
                read_gb += RECORDS * len(VALUE) / 1e9
                took_s = time.monotonic() - began_s
                sys.stdout.write(f"{took_s:6.0f} s  {read_gb:5.2f} GB  {max(peaks):5.0f} MiB  {name}\n")
                sys.stdout.flush()
    finally:
        spark.stop()
    sys.stdout.write(f"at most {highest_mib:.0f} MiB in all workers together, {LIMIT_MIB} are allowed\n")
    return 0 if 0 < highest_mib <= LIMIT_MIB else 1


def new_session() -> Any:
    replog.spark.prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def count_rows(spark: Any, servers: str, topic: str, options: dict[str, str]) -> None:
    frame = (
        spark.read.format("replog").option("bootstrap.servers", servers).option("subscribe", topic).options(**options)
    )
    found = tuple(frame.load().selectExpr("count(*)", "sum(length(value))").first())
    if found != (RECORDS, RECORDS * len(VALUE)):
        raise SystemExit(f"error: {found} was read, {RECORDS} records of {len(VALUE)} bytes were written")


@contextmanager
def watched() -> Iterator[list[float]]:
    """Yields a list that gets the memory of all tasks' processes together, in MiB, ten times a second."""
    seen = [0.0]
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.1):
            seen.append(workers_mib())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def workers_mib() -> float:
    return sum(memory_mib(int(path.name)) for path in Path("/proc").glob("[0-9]*"))


def memory_mib(pid: int) -> float:
    """Returns the memory of a process for tasks of this process's Spark; 0 where it is anything else."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        if "pyspark.daemon\0pyspark.worker" not in command or os.getpid() not in ancestors(pid):
            return 0
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS")), 0)


def ancestors(pid: int) -> Iterator[int]:
    """Yields the parents of a process."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


if __name__ == "__main__":
    sys.exit(main())
