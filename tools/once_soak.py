"""Copies a topic by Spark, each row once, while its driver and its brokers are killed; fails where a row is missing or there twice.

``python tools/once_soak.py --minutes 60 --rows-per-s 1000 --kill-every-s 45``; needs the extra `spark`.  Three brokers on this machine, one
producer, a query with `delivery` `exactlyOnce` in a process of its own, and a reader of committed records.  By turns the driver is killed
with its JVM and its tasks and started again, and a broker, which is started again at once.  At the end no transaction of the query may be open.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stream_soak import PARTITIONS, produce

from replog.client import LoopThread, SyncAdmin, SyncConsumer
from replog.cluster import LocalCluster
from replog.spark.environment import environment_for_spark

SOURCE, TARGET = "soak", "soak-copy"
END_S = 300.0
"""How long the query may take to copy what is left when the producer has ended, and the last kills."""
QUIET_S = 10.0
"""How long nothing more may come behind the last row."""

DRIVER = """
import sys
from pyspark.sql import SparkSession

servers, source, target, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
reader = builder.getOrCreate().readStream.format("replog").option("bootstrap.servers", servers).option("subscribe", source)
rows = reader.option("startingOffsets", "earliest").load()
writer = rows.select("value").writeStream.format("replog").option("bootstrap.servers", servers).option("topic", target)
writer = writer.option("delivery", "exactlyOnce").option("checkpointLocation", folder)
writer.trigger(processingTime="1 second").start().awaitTermination()
"""


class Query:
    """The process of a driver, with its JVM and tasks: a process group.

    Args:
        servers: The brokers.
        folder: The folder of its checkpoint and of what it prints.
    """

    def __init__(self, servers: str, folder: Path) -> None:
        self._folder = folder
        self._command = [sys.executable, "-c", DRIVER, servers, SOURCE, TARGET, str(folder / "checkpoint")]
        found = environment_for_spark(dict(os.environ), folder / "environment", is_local=True)
        self._environment = {**os.environ, **found, "SPARK_LOCAL_IP": "127.0.0.1"}
        self._process: subprocess.Popen[bytes] | None = None
        self.failures_count = 0

    def start(self) -> None:
        """Starts it."""
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def keep_up(self) -> None:
        """Starts it again where it has ended by itself, as whoever runs queries does."""
        if self._process is not None and self._process.poll() is not None:
            self.failures_count += 1
            self.kill()
            self.start()

    def kill(self) -> None:
        """Ends all of it at once."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):  # all of the group has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


class Reader:
    """What a reader of committed records has seen: how often each value, and how long it stood still at most."""

    def __init__(self, servers: str) -> None:
        self._consumer = SyncConsumer(servers)
        self._consumer.assign_topic(TARGET)
        self._last_s = time.monotonic()
        self.seen: Counter[bytes] = Counter()
        self.rows_count = 0
        self.longest_s = 0.0

    def poll(self) -> None:
        """Reads for a second at most."""
        found = [record.value or b"" for record in self._consumer.poll(timeout_ms=1_000)]
        now_s = time.monotonic()
        if found:
            self.longest_s = max(self.longest_s, now_s - self._last_s)
            self._last_s = now_s
        self.seen.update(found)
        self.rows_count += len(found)

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rows-per-s", type=int, default=1_000)
    parser.add_argument(
        "--kill-every-s", type=float, default=45, help="at least; what was killed has to copy rows again before"
    )
    arguments = parser.parse_args()
    user = object()
    thread = LoopThread.acquire(user)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local = thread.run(lambda: LocalCluster.start(folder / "nodes"), 60)
        query = Query(local.bootstrap_servers, folder)
        try:
            with SyncAdmin(local.bootstrap_servers) as admin:
                for topic in (SOURCE, TARGET):
                    admin.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": 2})
                kills = by_turns(query, local, thread, admin)
                return soak(query, admin, kills, local.bootstrap_servers, arguments)
        finally:
            query.kill()
            thread.run(local.stop_all, 60)
            thread.release(user)


def by_turns(query: Query, local: LocalCluster, thread: LoopThread, admin: SyncAdmin) -> Iterator[str]:
    """Kills something at each turn, and says what."""
    for broker_id in itertools.cycle(sorted(local.nodes)):
        query.kill()
        query.start()
        yield "the driver"
        thread.run(lambda broker_id=broker_id: local.kill(broker_id), 60)  # type: ignore[misc]  # ties the number down
        local.start_node(broker_id)
        thread.run(local.wait_until_ready, 120)
        for topic in (SOURCE, TARGET):
            admin.wait_until_in_sync(topic)
        yield f"broker {broker_id}"


def soak(query: Query, admin: SyncAdmin, kills: Iterator[str], servers: str, arguments: argparse.Namespace) -> int:
    """Returns the exit status."""
    stop, sent, counted = threading.Event(), list[int](), Counter[str]()
    producer = threading.Thread(target=produce, args=(servers, arguments.rows_per_s, stop, sent))
    reader = Reader(servers)
    query.start()
    producer.start()
    began_s = killed_s = time.monotonic()
    rows_then = 0
    try:
        while time.monotonic() < began_s + arguments.minutes * 60 and producer.is_alive():
            if time.monotonic() > killed_s + arguments.kill_every_s and reader.rows_count > rows_then:
                killed, rows_then = next(kills), reader.rows_count
                counted[killed] += 1
                killed_s = time.monotonic()
                say(f"{(killed_s - began_s) / 60:6.1f} min  {rows_then:>10,} rows  killed {killed}")
            query.keep_up()
            reader.poll()
        was_alive = producer.is_alive()
        stop.set()
        producer.join()
        read_to_end(reader, query, sum(sent))
        problems = [] if was_alive else ["the producer has failed"]
        problems += verdict(reader.seen, sent) + left_open(admin)
    finally:
        stop.set()
        reader.close()
    say(
        f"{reader.rows_count:,} rows; killed: {dict(counted)}; the query ended by itself {query.failures_count} times; "
        f"readers stood still for {reader.longest_s:.0f} s at most"
    )
    say("\n".join(problems) or "each row is there once, and no transaction is open")
    return 1 if problems else 0


def read_to_end(reader: Reader, query: Query, expected: int) -> None:
    """Reads until all is there and nothing more comes, or for `END_S`."""
    end_s = time.monotonic() + END_S
    while reader.rows_count < expected and time.monotonic() < end_s:
        query.keep_up()
        reader.poll()
    end_s = time.monotonic() + QUIET_S
    while time.monotonic() < end_s:
        reader.poll()


def verdict(seen: Counter[bytes], sent: list[int]) -> list[str]:
    """Returns what is wrong with the rows: the value of each batch is its number, as often as the batch has records."""
    wanted = Counter({b"%0100d" % number: count for number, count in enumerate(sent)})
    missing, more = (wanted - seen).total(), (seen - wanted).total()
    problems = [f"{missing:,} rows are missing"] if missing else []
    return problems + ([f"{more:,} rows are there more than once"] if more else [])


def left_open(admin: SyncAdmin) -> list[str]:
    """Returns which transactions of the query stay open."""
    end_s = time.monotonic() + QUIET_S
    while found := admin.list_transactions(states=["Ongoing"], pattern="spark/.*/.*"):
        if time.monotonic() > end_s:
            return [f"{each.transactional_id} is open" for each in found]
        time.sleep(0.5)
    return []


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
