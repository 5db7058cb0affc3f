"""What readers see of transactions that librdkafka's producer has written: each of them, and across a change of leaders."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import confluent_kafka
import pytest
from served_cluster import ServedCluster, served_cluster
from waiting import until

import replog
from replog.client.ranges.transport import ReadTransport
from replog.tables import topic_scan

WAIT_S = 60
UNDECIDED = b"undecided"


def producer(cluster: ServedCluster, name: str) -> confluent_kafka.Producer:
    """A producer that has taken over a transactional id."""
    made = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "log_level": 2,  # a killed node is no news here
        }
    )
    made.init_transactions(WAIT_S)
    return made


def write(made: confluent_kafka.Producer, topic: str, number: int, *, is_commit: bool | None) -> None:
    """Writes a transaction of three records; `is_commit` None: it stays open."""
    made.begin_transaction()
    for part in range(3):
        value = UNDECIDED if is_commit is None else f"{number}-{part}".encode()
        made.produce(topic, value, partition=0)
    assert made.flush(WAIT_S) == 0
    if is_commit is not None:
        end = made.commit_transaction if is_commit else made.abort_transaction
        end(WAIT_S)


def committed(count: int) -> list[bytes]:
    """The records of the first `count` transactions, of which each second one is aborted."""
    return [f"{number}-{part}".encode() for number in range(0, count, 2) for part in range(3)]


def until_read(cluster: ServedCluster, topic: str, wanted: list[bytes]) -> None:
    """Reads until these records are there, and nothing else: a commit is answered before its markers are written."""
    until(lambda: [value for _, value in cluster.read_all(topic)] == wanted)


def read_by_librdkafka(cluster: ServedCluster, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "r", "isolation.level": "read_committed"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, WAIT_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("way", ["files", "stream"])
def test_a_scan_has_what_was_committed_and_nothing_else(
    replog_broker: ServedCluster, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Trap: the files of a partition have the records of aborted transactions, and of open ones."""
    topic = f"scanned-{way}"
    replog_broker.create_topic(topic)
    made, other = producer(replog_broker, f"{topic}-1"), producer(replog_broker, f"{topic}-2")
    for number in range(6):
        write(made, topic, number, is_commit=number % 2 == 0)
    write(other, topic, 0, is_commit=None)
    write(made, topic, 6, is_commit=True)  # behind the open one
    if way == "stream":
        options = partial(topic_scan._Options, transport=ReadTransport(direct_reads=False))
        monkeypatch.setattr(topic_scan, "_Options", options)
    until_read(replog_broker, topic, committed(6))
    scanned = replog.scan(topic, bootstrap_servers=replog_broker.bootstrap_servers).read_all()
    assert scanned["value"].to_pylist() == committed(6)
    other.abort_transaction(WAIT_S)
    until_read(replog_broker, topic, committed(7))


def test_a_transaction_is_ended_where_its_partition_has_gone(tmp_path: Path) -> None:
    """The leader of the partition is killed between the records of a transaction and its marker."""
    with served_cluster(tmp_path / "cluster", 3) as cluster:
        cluster.create_topic("t")
        made = producer(cluster, "pay")
        for number in range(2):
            write(made, "t", number, is_commit=number % 2 == 0)
        write(made, "t", 2, is_commit=None)
        made.abort_transaction(WAIT_S)
        made.begin_transaction()
        made.produce("t", b"2-0", partition=0)
        assert made.flush(WAIT_S) == 0
        killed = cluster.leader("t")
        cluster.kill(killed)
        for part in (1, 2):
            made.produce("t", f"2-{part}".encode(), partition=0)
        made.commit_transaction(WAIT_S)
        write(made, "t", 3, is_commit=False)
        until_read(cluster, "t", committed(3))
        assert read_by_librdkafka(cluster, "t", 6) == committed(3)
        cluster.restart(killed)
        write(made, "t", 4, is_commit=True)
        until_read(cluster, "t", committed(5))
