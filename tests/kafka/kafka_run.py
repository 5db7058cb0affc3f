"""One life of a real Kafka node, whose stations the tests look at.

| station | what happens                                                                  | kept                      |
|---------|-------------------------------------------------------------------------------|---------------------------|
| 1       | Kafka is written to: every codec, transactions, LogAppendTime, segments; groups of both protocols read and leave | `stopped`, after a clean stop |
| 2       | our folders take the places of topic `ours`; a clean start serves them           | `served_clean`            |
| 3       | Kafka appends to all of them, a transaction stays open                           | `killed`, after kill -9      |
| 4       | our folders take the places of topic `found`; an unclean start recovers all      | `served_unclean`, `recovered` after a clean stop |
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID

from kafka_install import KafkaInstall
from kafka_node import KafkaClients, KafkaNode, clients_of
from kafka_shapes import SHAPES, T0, mixed_records, write_topic

from tests.kafka_fixtures import Rows

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
WRITTEN: Final = (*((f"codec-{codec}", 0) for codec in CODECS), ("append-time", 0), ("rolled", 0), ("transactions", 0))
"""(topic, partition) that Kafka wrote all by itself."""

ISOLATIONS: Final = ("read_uncommitted", "read_committed")
OURS: Final = "ours"
FOUND: Final = "found"
EPOCHS: Final = (0, 1)
"""Of our logs: below what the controller has given the topics by the time they are served."""
ROLLED_BYTES: Final = 1 << 20
DELETED_BELOW: Final = 70
GROUPS: Final = ("classic", "consumer")
"""Named as the protocols that they speak."""
GROUP_TOPIC: Final = "flights"
GROUP_RECORDS_COUNT: Final = 7
"""In partition 1 of two; each group has read them."""

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""

Consumed: TypeAlias = dict[tuple[str, int, str], Rows]
"""(topic, partition, isolation) -> what Kafka's consumer read."""


@dataclass(slots=True)
class KafkaRun:
    """What was seen on the way.

    Attributes:
        folder: of everything.
        consumed: by station.
        times: place -> [(time asked for, what Kafka answered)].
    """

    folder: Path
    consumed: dict[str, Consumed] = field(default_factory=dict)
    times: dict[Place, list[tuple[int, tuple[int, int] | None]]] = field(default_factory=dict)

    def data(self, station: str) -> Path:
        """Copy of the node's data directory: "stopped", "killed" or "recovered"."""
        return self.folder / station

    def ours(self, topic: str) -> Path:
        """Our folders as we wrote them, before Kafka had them."""
        return self.folder / f"written-{topic}"


def run_kafka(kafka: KafkaInstall, folder: Path) -> KafkaRun:
    """Goes through all stations; no process is left, whatever happens."""
    run = KafkaRun(folder)
    node = KafkaNode(kafka, folder / "node")
    try:
        _live(run, node)
    finally:
        node.give_up()
    return run


def _live(run: KafkaRun, node: KafkaNode) -> None:
    node.start()
    with clients_of(node) as clients:  # one JVM for all lives of the node, whose port stays
        ids = {topic: clients.create(topic, partitions=len(SHAPES)) for topic in (OURS, FOUND)}
        _write(clients)
        _read_by_groups(clients)
        run.consumed["stopped"] = _consume(clients, WRITTEN)
        run.times = {place: _times(clients, *place, run.consumed["stopped"]) for place in WRITTEN}
        node.stop()
        shutil.copytree(node.data, run.data("stopped"))

        _put_ours(run, node, OURS, ids[OURS])
        node.start()
        run.consumed["served_clean"] = _consume(clients, _places(OURS))
        for topic, number in _places(OURS):
            clients.produce(topic, number, mixed_records(5, seed=number))
        clients.produce("codec-zstd", 0, mixed_records(30, seed=99), compression_type="zstd")
        clients.transact("transactions", 0, mixed_records(5, seed=5), transactional_id="left", end="open")
        run.consumed["killed"] = _consume(clients, [*WRITTEN, *_places(OURS)])
        node.kill()
        shutil.copytree(node.data, run.data("killed"))

        _put_ours(run, node, FOUND, ids[FOUND])
        node.start()
        run.consumed["served_unclean"] = _consume(clients, [*_places(FOUND), *_places(OURS)])
        node.stop()
        shutil.copytree(node.data, run.data("recovered"))


def _places(topic: str) -> list[Place]:
    return [(topic, number) for number in range(len(SHAPES))]


def _write(clients: KafkaClients) -> None:
    for number, codec in enumerate(CODECS):
        topic = f"codec-{codec}"
        clients.create(topic)
        clients.produce(topic, 0, mixed_records(150, seed=number), compression_type=codec, batch_size=6000)
    clients.create("append-time", message_timestamp_type="LogAppendTime")
    clients.produce("append-time", 0, mixed_records(100, seed=20), batch_size=6000)
    clients.create("rolled", segment_bytes=ROLLED_BYTES)
    big = [(T0 + number, b"%d" % number, bytes([number % 256]) * 20_000, ()) for number in range(150)]
    clients.produce("rolled", 0, big, batch_size=60_000)
    clients.delete_records("rolled", 0, DELETED_BELOW)
    clients.create("transactions")
    for number in range(6):
        end = "abort" if number % 3 == 1 else "commit"
        records = mixed_records(7 + number, seed=number)
        clients.transact("transactions", 0, records, transactional_id=f"t{number % 2}", end=end)
        clients.produce("transactions", 0, mixed_records(3, seed=50 + number))


def _read_by_groups(clients: KafkaClients) -> None:
    clients.create(GROUP_TOPIC, partitions=2)
    clients.produce(GROUP_TOPIC, 1, [(1, None, b"x", ())] * GROUP_RECORDS_COUNT)
    for protocol in GROUPS:
        clients.read_as_member(protocol, protocol, GROUP_TOPIC, GROUP_RECORDS_COUNT)


def _consume(clients: KafkaClients, places: Iterable[Place]) -> Consumed:
    return {
        (topic, number, isolation): clients.consume(topic, number, isolation)
        for topic, number in places
        for isolation in ISOLATIONS
    }


def _times(
    clients: KafkaClients, topic: str, number: int, consumed: Consumed
) -> list[tuple[int, tuple[int, int] | None]]:
    timestamps = [row[2] for row in consumed[topic, number, "read_uncommitted"]]
    asked = sorted({0, *timestamps[:: max(1, len(timestamps) // 20)], max(timestamps), max(timestamps) + 1})
    return list(zip(asked, clients.offsets_for_times(topic, number, asked), strict=True))


def _put_ours(run: KafkaRun, node: KafkaNode, topic: str, topic_id: UUID) -> None:
    """Our folders in the places of Kafka's empty ones."""
    write_topic(run.ours(topic), topic, topic_id, epochs=EPOCHS)
    for name, number in _places(topic):
        target = node.partition(name, number)
        shutil.rmtree(target)
        shutil.copytree(run.ours(topic) / target.name, target)
