"""Transactions of librdkafka's producer on three processes, while the coordinator is killed and the level is raised."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from served_cluster import READ_TIMEOUT_S, ServedCluster, run, served_cluster

from replog.broker.coordinator.internal_topic import partition_of
from replog.client import Admin
from replog.metadata.features import TRANSACTION_VERSION
from replog.metadata.topic_names import TRANSACTIONS_TOPIC

PARTITIONS, TRANSACTIONAL_ID, TIMEOUT_S = 3, "mine", 60
COORDINATORS = 4

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    with served_cluster(tmp_path / "cluster", nodes=3, transaction_state_log_num_partitions=COORDINATORS) as found:
        found.create_topic("t", PARTITIONS)
        yield found


class Load:
    """A producer in a thread: every transaction writes its number to each partition; every third one is aborted.

    Attributes:
        committed: The numbers of the transactions that were committed.
        failed: What ended the load.
    """

    def __init__(self, servers: str) -> None:
        self.committed: list[int] = []
        self.failed: BaseException | None = None
        self._stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": TRANSACTIONAL_ID})
        self._producer.init_transactions(TIMEOUT_S)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                self._transact(number)
                number += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failed = error

    def _transact(self, number: int) -> None:
        self._producer.begin_transaction()
        try:
            for partition in range(PARTITIONS):
                self._producer.produce("t", b"%d" % number, partition=partition)
            if number % 3:
                self._producer.commit_transaction(TIMEOUT_S)
                self.committed.append(number)
            else:
                self._producer.flush(
                    TIMEOUT_S
                )  # librdkafka also ends what its coordinator has not heard of, and is refused for good
                self._producer.abort_transaction(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(TIMEOUT_S)

    async def more(self, count: int) -> None:
        """Waits until so many more transactions are committed."""
        wanted = len(self.committed) + count
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.committed) < wanted and self.failed is None:
                await asyncio.sleep(0.05)


def read(servers: str, partition: int, count: int) -> list[int]:
    """What a reader of committed transactions finds in a partition: so many records, and whatever comes with the last."""
    settings = {"bootstrap.servers": servers, "group.id": "g", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", partition, 0)])
    found: list[int] = []
    try:
        while (message := consumer.poll(READ_TIMEOUT_S)) is not None:
            if message.error() is None:
                found.append(int(message.value() or b""))
            elif len(found) >= count:
                break
    finally:
        consumer.close()
    return found


async def change_level(admin: Admin, level: int) -> None:
    """Puts another level in force, and waits until a broker tells clients of it."""
    await admin.update_features({TRANSACTION_VERSION: level}, allow_downgrade=True)
    async with asyncio.timeout(TIMEOUT_S):
        while (await admin.describe_features())[TRANSACTION_VERSION].level != level:
            await asyncio.sleep(0.05)


async def disturb(cluster: ServedCluster, load: Load) -> None:
    """Raises the level, and kills the coordinator, while the load goes on."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await load.more(5)
        await change_level(admin, 2)
        await load.more(5)
        partition = partition_of(TRANSACTIONAL_ID, COORDINATORS)
        topic = (await admin.describe_topics([TRANSACTIONS_TOPIC]))[TRANSACTIONS_TOPIC]
        coordinator = topic.partitions[partition].leader
        await cluster.local.kill(coordinator)
        await load.more(5)
        cluster.local.start_node(coordinator)
        await cluster.local.wait_until_ready()
        await load.more(5)


def test_readers_see_what_was_committed_and_nothing_else(cluster: ServedCluster) -> None:
    servers = cluster.bootstrap_servers

    async def begin() -> None:
        async with Admin(servers) as admin:
            await change_level(admin, 0)

    run(begin())
    with Load(servers) as load:
        run(disturb(cluster, load))
    assert load.failed is None
    assert len(load.committed) >= 20
    for partition in range(PARTITIONS):
        assert read(servers, partition, len(load.committed)) == load.committed
