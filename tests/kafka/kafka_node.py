"""Kafka nodes on ports of their own, and Kafka's clients beside them.

A node is broker and controller in one process, or a broker of the cluster of another node.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from replog.cluster.processes import KeptPorts
from replog_checkpoints import uuid_from_text, uuid_to_text
from tests.kafka.kafka_install import UTF_8, KafkaInstall
from tests.kafka.line_driver import Driver, Input, driver, dying_with_us, read_record
from tests.kafka_fixtures import shown

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
BROKER_JVM = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", *UTF_8)

CONFIG = """\
process.roles={roles}
node.id={node_id}
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
group.consumer.min.heartbeat.interval.ms=300
group.consumer.heartbeat.interval.ms=300
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
metadata.max.idle.interval.ms=0
log.index.size.max.bytes=65536
log.retention.ms=-1
log.message.timestamp.after.max.ms=9223372036854775807
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=2
"""


@dataclass(slots=True)
class KafkaNode:
    """One node; at most one process at a time.

    Attributes:
        settings: Keys of its file beside `CONFIG`; a key that stands there, too, has the value given here.
        node_id: Its number; that of a node with the controller is 1.
        controller: The port of another node's controller, whose cluster this broker joins; 0: it has one itself.
    """

    kafka: KafkaInstall
    folder: Path
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    node_id: int = 1
    controller: int = 0
    port: int = field(init=False)
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    _ports: KeptPorts = field(init=False, default_factory=KeptPorts)

    def __post_init__(self) -> None:
        (self.port,) = self._ports.take(1)
        roles, listeners = "broker", f"PLAINTEXT://127.0.0.1:{self.port}"
        if not self.controller:
            (self.controller,) = self._ports.take(1)
            roles, listeners = "broker,controller", f"{listeners},CONTROLLER://127.0.0.1:{self.controller}"
        self.folder.mkdir()
        text = CONFIG.format(
            roles=roles,
            node_id=self.node_id,
            listeners=listeners,
            broker=self.port,
            controller=self.controller,
            data=self.data,
        )
        text += "".join(f"{key}={_shown(value)}\n" for key, value in self.settings.items())
        self._config.write_text(text)
        self._format()

    @property
    def data(self) -> Path:
        """Its log directory."""
        return self.folder / "data"

    def partition(self, topic: str, number: int) -> Path:
        """The folder of a partition."""
        return self.data / f"{topic}-{number}"

    def _format(self) -> None:
        """Makes its log directories those of a new node.

        Kafka's own tool makes one for each version, which is kept: all that differs from it in another one are two ids.
        """
        kept = self.kafka.folder / "formatted"
        directories = [Path(name) for name in str(self.settings.get("log.dirs", self.data)).split(",")]
        if not kept.exists():
            self.kafka.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config))
            _keep(directories[0], kept)
            return
        for directory in directories:
            shutil.copytree(kept, directory)
            _rename(directory / "meta.properties", {"node": self.node_id, "directory": uuid_to_text(uuid4())})

    def start(self) -> None:
        """Starts the process and waits until it listens."""
        self.begin()
        self.wait_until_listening()

    def begin(self) -> None:
        """Starts the process; several nodes may be started before any is waited for."""
        with (self.folder / "server.log").open("ab") as output:
            self._process = subprocess.Popen(
                dying_with_us(self.kafka.command("kafka.Kafka", str(self._config), options=BROKER_JVM)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def wait_until_listening(self) -> None:
        """Waits until clients can connect to the process that was begun."""
        assert self._process is not None
        _wait_until_listening(self._process, self.port, self.folder / "server.log")

    def stop(self) -> None:
        """A clean stop."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def give_up(self) -> None:
        """Kills what still runs; it does not come back."""
        self.kill()
        self._ports.release()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            finally:
                self._process.kill()
                self._process.wait()
                self._process = None

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"


class KafkaClients:
    """Kafka's Java clients in one JVM (`java/KafkaDriver.java`)."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def create(self, topic: str, *, partitions: int = 1, **settings: object) -> UUID:
        """Creates a topic; returns its id."""
        (line,) = self._driver.ask("create", topic, partitions, *_pairs(settings))
        return uuid_from_text(line)

    def produce(self, topic: str, partition: int, records: Sequence[Input], **settings: object) -> None:
        """Sends records; settings are the producer's, with underscores for dots."""
        self._driver.ask("produce", topic, partition, self._driver.file(records), *_pairs(settings))

    def transact(
        self, topic: str, partition: int, records: Sequence[Input], *, transactional_id: str, end: str
    ) -> None:
        """Sends records in one transaction; `end` is "commit", "abort" or "open"."""
        self._driver.ask("transact", topic, partition, self._driver.file(records), transactional_id, end)

    def consume(self, topic: str, partition: int, isolation: str = "read_uncommitted") -> list[list[Any]]:
        """Every record, in the shape of `tests.kafka_fixtures.Row`."""
        return [_row(line) for line in self._driver.ask("consume", topic, partition, isolation)]

    def read_as_member(self, group: str, protocol: str, topic: str, count: int) -> None:
        """Subscribes for a group, reads so many records, commits behind them and leaves; protocol: "classic", "consumer"."""
        self._driver.ask("read-as-member", group, protocol, topic, count)

    def offsets_for_times(self, topic: str, partition: int, times_ms: Sequence[int]) -> list[tuple[int, int] | None]:
        """(offset, timestamp) for each time, or None."""
        found = [line.split("\t") for line in self._driver.ask("offsets-for-times", topic, partition, *times_ms)]
        return [(int(words[0]), int(words[1])) if len(words) > 1 else None for words in found]

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Moves the log start up."""
        self._driver.ask("delete-records", topic, partition, offset)


@contextmanager
def clients_of(node: KafkaNode) -> Iterator[KafkaClients]:
    """Kafka's clients, until the block ends."""
    with driver(node.kafka.command("KafkaDriver", f"127.0.0.1:{node.port}"), node.folder) as process:
        yield KafkaClients(process)


def _keep(formatted: Path, kept: Path) -> None:
    """Keeps a copy of a new node's log directory; of two processes at once the first one's."""
    beside = Path(tempfile.mkdtemp(dir=kept.parent, prefix="making-"))
    shutil.copytree(formatted, beside, dirs_exist_ok=True)
    try:
        beside.rename(kept)
    except OSError:
        shutil.rmtree(beside)


def _rename(properties: Path, ids: Mapping[str, object]) -> None:
    """Gives a log directory ids of its own."""
    text = re.sub(r"(node|directory)\.id=.*", lambda found: f"{found[1]}.id={ids[found[1]]}", properties.read_text())
    properties.write_text(text)


def _pairs(settings: dict[str, object]) -> list[str]:
    return [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]


def _row(line: str) -> list[Any]:
    read = read_record(line)
    number = {"CreateTime": 1, "LogAppendTime": 2}[read.timestamp_type]
    shown_headers = [[name, shown(data)] for name, data in read.headers]
    return [read.offset, number, read.timestamp, shown(read.key), shown(read.value), shown_headers, read.epoch]


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    attempts = START_TIMEOUT_S * 20
    for _ in range(attempts):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"Kafka ended with {process.returncode}: {log.read_text()[-4000:]}") from None
    process.kill()
    raise AssertionError(f"Kafka does not listen after {START_TIMEOUT_S} s: {log.read_text()[-4000:]}")
