"""Spark over replog, and over Kafka with Spark's own connector: one session, the same queries, two formats.

The session is shared by both, as are its warm code and its workers; only `format` and the brokers behind it differ.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.model import System
from bench.systems.kafka_cluster import KafkaCluster
from bench.systems.maven import PeerUnavailableError, jars, program
from bench.systems.replog_cluster import ReplogCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
PARTITIONS = 4
BATCH_BYTES = 512 * 1024
"""Of the batches that topics are filled with, in both systems: the default of replog's producer."""

_sessions: list[SparkSession] = []


def session() -> SparkSession:
    """The session, made on first use; its JVM ends with this process."""
    if not _sessions:
        from pyspark.sql import SparkSession

        import replog.spark
        from replog.spark.source import ReplogDataSource

        replog.spark.prepare()
        builder = SparkSession.builder.master(f"local[{CORES}]").appName("replog-bench")
        builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        builder = builder.config("spark.sql.shuffle.partitions", str(CORES)).config("spark.driver.memory", "2g")
        builder = builder.config("spark.executorEnv.PYTHONPATH", ":".join(filter(None, sys.path)))
        if (connector := _connector()) is not None:
            builder = builder.config("spark.jars", ",".join(map(str, connector)))
        made = builder.getOrCreate()
        made.dataSource.register(ReplogDataSource)
        _sessions.append(made)
    (only,) = _sessions
    return only


def end_session() -> None:
    """Ends the session, if there is one."""
    while _sessions:
        _sessions.pop().stop()


def _connector() -> Sequence[Path] | None:
    try:
        return jars("spark-kafka")
    except PeerUnavailableError:
        return None


class SparkSystem(System):
    """Three brokers, and Spark beside them."""

    format_name: str

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str: ...

    @abstractmethod
    def broker_ids(self) -> Sequence[int]:
        """Process ids of the brokers."""

    @abstractmethod
    def create_topic(self) -> str:
        """A new topic of PARTITIONS partitions, three replicas each, two of which must have what is acknowledged."""

    @abstractmethod
    def fill(self, topic: str, count: int, record_bytes: int) -> None:
        """Writes `count` values of `record_bytes` into all partitions alike, acknowledged by all replicas in sync."""

    def missing(self) -> str | None:
        try:
            import pyspark  # noqa: F401 -- whether it is there
        except ImportError:
            return "pyspark is not installed: pip install 'replog[spark]'"
        return None

    def options(self, **more: str) -> Mapping[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **more}

    def read(self, topic: str) -> DataFrame:
        return session().read.format(self.format_name).options(**self.options(subscribe=topic)).load()

    def cpu_seconds(self) -> Mapping[str, float]:
        """CPU time so far of the brokers, of Spark's Python workers, and of the JVM."""
        workers = [each.pid for jvm in _jvms() for each in jvm.children(recursive=True)]
        return {
            "brokers": _cpu_s(self.broker_ids()),
            "workers": _cpu_s(workers),
            "jvm": _cpu_s([jvm.pid for jvm in _jvms()]),
        }


def _jvms() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended
            if "org.apache.spark.deploy.SparkSubmit" in each.cmdline():
                found.append(each)
    return found


def _cpu_s(process_ids: Sequence[int]) -> float:
    """CPU time of processes, with that of their children that have ended."""
    total = 0.0
    for process_id in process_ids:
        try:
            times = psutil.Process(process_id).cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class SparkOnReplog(SparkSystem):
    """`format("replog")`."""

    name = "replog"
    format_name = "replog"

    def __init__(self) -> None:
        self._cluster = ReplogCluster()

    def start(self, directory: Path) -> None:
        self._cluster.start(directory)

    def stop(self) -> None:
        self._cluster.stop()

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.cluster.bootstrap_servers

    def broker_ids(self) -> Sequence[int]:
        return self._cluster.process_ids()

    def create_topic(self) -> str:
        return self._cluster.create_topic(PARTITIONS)

    def fill(self, topic: str, count: int, record_bytes: int) -> None:
        from replog.client import SyncProducer

        values = [b"%d" % number for number in range(count // PARTITIONS)]
        values = [value.ljust(record_bytes, b"v") for value in values]
        with SyncProducer(self.bootstrap_servers, batch_size_bytes=BATCH_BYTES) as producer:
            for partition in range(PARTITIONS):
                producer.send_many(topic, values, partition=partition).result(120)


class SparkOnKafka(SparkSystem):
    """`format("kafka")`: Spark's own connector and Apache Kafka 4.1.1."""

    name = "kafka"
    format_name = "kafka"

    def __init__(self) -> None:
        self._cluster: KafkaCluster | None = None
        self._topics_count = 0

    def missing(self) -> str | None:
        try:
            program("java")
            jars("kafka")
            jars("spark-kafka")
        except PeerUnavailableError as error:
            return str(error)
        return super().missing()

    def start(self, directory: Path) -> None:
        self._cluster = KafkaCluster(directory, PARTITIONS)
        self._cluster.start()

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()

    @property
    def bootstrap_servers(self) -> str:
        if self._cluster is None:
            raise RuntimeError("kafka was not started")
        return self._cluster.bootstrap_servers

    def broker_ids(self) -> Sequence[int]:
        return self._cluster.process_ids() if self._cluster is not None else []

    def create_topic(self) -> str:
        """Only names it: a Kafka node makes a topic when it is first written to."""
        self._topics_count += 1
        return f"bench-{self._topics_count}"

    def fill(self, topic: str, count: int, record_bytes: int) -> None:
        value = f"CAST(rpad(CAST(id DIV {PARTITIONS} AS STRING), {record_bytes}, 'v') AS BINARY) AS value"
        rows = session().range(0, count, 1, CORES).selectExpr(value, f"CAST(id % {PARTITIONS} AS INT) AS partition")
        producer = {"kafka.batch.size": str(BATCH_BYTES), "kafka.linger.ms": "5", "kafka.acks": "all"}
        producer["kafka.delivery.timeout.ms"] = "600000"  # a busy machine is no failure
        rows.write.format("kafka").options(**self.options(topic=topic, **producer)).mode("append").save()
