"""Spark over replog, and over Kafka with Spark's own connector: one session, the same queries, two formats.

The session is shared by both, as are its warm code and its workers; only `format` and the brokers behind it differ.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bench.model import System
from bench.systems.kafka.cluster import KafkaCluster
from bench.systems.maven import why_missing
from bench.systems.replog_cluster import ReplogCluster
from bench.systems.spark_session import CORES, CpuTime, cpu_times, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 4
NUMBER_BYTES = 10
"""Of each value, at its beginning."""
BATCH_BYTES = 512 * 1024
"""Of the batches that are written, in both systems: the default of replog's producer."""

PRODUCER = {
    "kafka.acks": "all",
    "kafka.batch.size": str(BATCH_BYTES),
    "kafka.linger.ms": "5",
    "kafka.delivery.timeout.ms": "600000",  # a busy machine is no failure
}
"""Of both systems' writers; both are idempotent by default."""


class SparkSystem(System):
    """Three brokers, and Spark beside them."""

    format_name: str
    read_options: ClassVar[Mapping[str, str]] = {}

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
    def delete_topic(self, topic: str) -> None:
        """Deletes what `create_topic` made."""

    def missing(self) -> str | None:
        try:
            import pyspark  # noqa: F401 -- whether it is there
        except ImportError:
            return "pyspark is not installed: pip install 'replog[spark]'"
        return None

    def read(self, topic: str) -> DataFrame:
        """The records of a topic up to now."""
        return session().read.format(self.format_name).options(**self._read_options(topic)).load()

    def read_stream(self, topic: str, **options: str) -> DataFrame:
        """The records of a topic from its first one on."""
        reader = session().readStream.format(self.format_name).options(**self._read_options(topic))
        return reader.option("startingOffsets", "earliest").options(**options).load()

    def write(self, rows: DataFrame, topic: str) -> None:
        """Appends rows with the columns `value` and `partition`; all are acknowledged by all replicas in sync after it."""
        options = {"kafka.bootstrap.servers": self.bootstrap_servers, "topic": topic, **PRODUCER}
        rows.write.format(self.format_name).options(**options).mode("append").save()

    def cpu_times(self) -> Mapping[str, CpuTime]:
        """CPU time so far of the brokers, of Spark's Python processes, and of the JVM."""
        return cpu_times(self.broker_ids())

    def _read_options(self, topic: str) -> Mapping[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap_servers, "subscribe": topic, **self.read_options}


def generated(count: int, record_bytes: int) -> DataFrame:
    """`count` rows for PARTITIONS partitions alike, made as they are read: NUMBER_BYTES of a number, and always the same."""
    number = f"CAST(lpad(CAST(id DIV {PARTITIONS} AS STRING), {NUMBER_BYTES}, '0') AS BINARY)"
    rest = f"X'{b'v'.hex() * (record_bytes - NUMBER_BYTES)}'"  # a literal: padding costs more than what is measured
    value = f"concat({number}, {rest}) AS value"
    return session().range(0, count, 1, CORES).selectExpr(value, f"CAST(id % {PARTITIONS} AS INT) AS partition")


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

    def delete_topic(self, topic: str) -> None:
        self._cluster.delete_topic(topic)


class SparkOnReplogByTcp(SparkOnReplog):
    """The same, as from another machine: tasks fetch from brokers instead of reading their files."""

    name = "replog-tcp"
    read_options: ClassVar[Mapping[str, str]] = {"directReads": "false"}


class SparkOnKafka(SparkSystem):
    """`format("kafka")`: Spark's own connector and Apache Kafka 4.1.1."""

    name = "kafka"
    format_name = "kafka"

    def __init__(self) -> None:
        self._cluster: KafkaCluster | None = None
        self._topics_count = 0

    def missing(self) -> str | None:
        return why_missing("kafka", "spark-kafka") or super().missing()

    def start(self, directory: Path) -> None:
        self._cluster = KafkaCluster(directory, PARTITIONS)
        self._cluster.format()
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
        self._topics_count += 1
        name = f"bench-{self._topics_count}"
        default = _java().java.util.Optional.empty()  # partitions and replicas as the nodes are configured
        topic = _java().org.apache.kafka.clients.admin.NewTopic(name, default, default)
        with self._admin() as admin:
            admin.createTopics(_java().java.util.Collections.singletonList(topic)).all().get()
        return name

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.deleteTopics(_java().java.util.Collections.singletonList(topic)).all().get()

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        """A client of Kafka's: the connector has brought it into Spark's JVM."""
        settings = _java().java.util.Properties()
        settings.setProperty("bootstrap.servers", self.bootstrap_servers)
        admin = _java().org.apache.kafka.clients.admin.Admin.create(settings)
        try:
            yield admin
        finally:
            admin.close()


def _java() -> Any:
    return session().sparkContext._jvm  # noqa: SLF001 -- there is no other way to it
