"""Our clients on a cluster of Apache Kafka whose leaders move: nothing is lost, nothing comes twice, all in order; what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from kafka_cluster import KafkaCluster
from served_cluster import served_cluster

from replog.cli.commands.quorum import summary as quorum_summary
from replog.cli.views.health import sentence
from replog.client import Admin, Consumer, Delivery, Producer
from replog.client.admin.health import BrokerStanding, PartitionTrouble, cluster_health
from replog.client.admin.partition_description import NOT_TOLD
from replog.client.cluster.image import is_in_sync
from replog.client.protocol.connection import KafkaConnection, KafkaTransport
from replog.metadata.records import ResourceType
from replog.rpc.metadata_messages import MetadataUpdate, WatchRequest

WITHIN_S = 120
MORE = 100
"""Records that are acknowledged and read between two steps."""

IN_SERVICE = BrokerStanding.IN_SERVICE


async def until(met: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not met():
            await asyncio.sleep(0.02)


class Load:
    """Numbers that are written to the two partitions of a topic in turn, and what is read of them meanwhile."""

    def __init__(self, servers: str, topic: str) -> None:
        self.read: list[list[tuple[int, int]]] = [[], []]
        self._servers, self._topic = servers, topic
        self._sent: list[Delivery] = []
        self._is_over = False

    async def write(self) -> None:
        async with Producer(self._servers) as producer:  # acks=all, idempotent
            while not self._is_over:
                number = len(self._sent)
                self._sent.append(await producer.send(self._topic, b"%d" % number, partition=number % 2))
                await asyncio.sleep(0.005)

    async def follow(self) -> None:
        async with Consumer(self._servers) as consumer:
            await consumer.assign([(self._topic, 0), (self._topic, 1)], start="earliest")
            async for record in consumer:
                self.read[record.partition].append((record.offset, int(record.value or b"")))

    async def goes_on(self) -> None:
        """Waits until more was written and read of both partitions than before."""
        sent, seen = len(self._sent), [len(each) for each in self.read]
        await until(
            lambda: len(self._sent) >= sent + MORE and all(each.done() for each in self._sent[sent : sent + MORE])
        )
        await until(lambda: all(len(now) >= before + MORE // 2 for now, before in zip(self.read, seen, strict=True)))

    async def end(self) -> list[list[tuple[int, int]]]:
        """Ends the writing; returns (offset, number) of all that was acknowledged, by partition."""
        self._is_over = True
        await until(lambda: all(each.done() for each in self._sent))
        await until(lambda: sum(map(len, self.read)) >= len(self._sent))
        placed = [(await each, number) for number, each in enumerate(self._sent)]
        return [[(at.offset, number) for at, number in placed if at.partition == partition] for partition in (0, 1)]


@pytest.fixture
async def admin(two_kafkas: KafkaCluster) -> AsyncIterator[Admin]:
    async with Admin(two_kafkas.servers) as found:
        await found.wait_until_ready(brokers=2)
        yield found


async def led_by(admin: Admin, topic: str, *leaders: int) -> None:
    """Waits until the partitions are led so."""
    await admin.wait_for_topic(topic, lambda info: tuple(one.leader for one in info.partitions) == leaders)


async def test_nothing_is_lost_or_doubled_while_leaders_move(two_kafkas: KafkaCluster, admin: Admin) -> None:
    topic = (await admin.create_topic("moved", assignments=[[2, 1], [1, 2]], configs={"min.insync.replicas": 1})).name
    load = Load(two_kafkas.servers, topic)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.write())
        following = tasks.create_task(load.follow())
        await load.goes_on()
        two_kafkas.nodes[2].kill()
        await led_by(admin, topic, 1, 1)
        await load.goes_on()
        two_kafkas.nodes[2].begin()  # in this thread: it would die with another one
        await admin.wait_for_topic(topic, is_in_sync)
        await admin.elect_leaders([(topic, 0)])
        await led_by(admin, topic, 2, 1)
        await load.goes_on()
        await admin.reassign_partitions({(topic, 0): [1], (topic, 1): [2]})
        await led_by(admin, topic, 1, 2)
        await load.goes_on()
        acknowledged = await load.end()
        following.cancel()
    assert load.read == acknowledged
    assert all([offset for offset, _ in each] == list(range(len(each))) for each in acknowledged)


class _Once(KafkaConnection):
    """Tells the metadata as they were when they were first asked for."""

    told: list[MetadataUpdate]

    async def watch_metadata(self, request: WatchRequest) -> AsyncIterator[MetadataUpdate]:
        if not self.told:
            self.told += [update async for update in super().watch_metadata(WatchRequest(0, follow=False))]
        for update in self.told:
            yield update
        if request.follow:
            await asyncio.Event().wait()


class _StaleTransport(KafkaTransport):
    def __init__(self) -> None:
        super().__init__()
        self._told: list[MetadataUpdate] = []

    def connect(self, address: str, *, purpose: str) -> KafkaConnection:
        made = super().connect(address, purpose=purpose)
        made.__class__ = _Once
        made.told = self._told  # type: ignore[attr-defined]  # it is one now
        return made


@pytest.fixture(scope="module", params=["replog", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The brokers 1 and 2 of either kind."""
    if request.param == "kafka":
        yield request.getfixturevalue("two_kafkas").servers
        return
    with served_cluster(tmp_path_factory.mktemp("two") / "cluster", nodes=2) as cluster:
        yield cluster.bootstrap_servers


async def test_a_broker_that_refuses_tells_who_leads(servers: str) -> None:
    async with asyncio.timeout(WITHIN_S), Admin(servers) as admin:
        topic = (await admin.create_topic("named", assignments=[[2, 1]])).name
        async with (
            Producer(servers, transport=_StaleTransport()) as producer,
            Consumer(servers, transport=_StaleTransport()) as consumer,
        ):
            await consumer.assign([(topic, 0)], start="earliest")
            for number, leader in enumerate((2, 1)):
                await led_by(admin, topic, leader)
                assert (await (await producer.send(topic, b"%d" % number))).offset == number
                assert (await anext(consumer)).value == b"%d" % number
                await admin.reassign_partitions({(topic, 0): [1, 2]})
                await admin.elect_leaders([(topic, 0)])


async def test_what_moves_is_told(two_kafkas: KafkaCluster, admin: Admin) -> None:
    throttled = {"follower.replication.throttled.replicas": "*", "leader.replication.throttled.replicas": "*"}
    topic = (await admin.create_topic("slow", assignments=[[1]], configs=throttled)).name
    for broker in ("1", "2"):
        rates = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"), 1)
        await admin.alter_configs((ResourceType.BROKER, broker), rates)
    async with Producer(two_kafkas.servers) as producer:
        for _ in range(8):
            await (await producer.send(topic, b"x" * 500_000))
    await admin.reassign_partitions({(topic, 0): [2]})
    assert await admin.list_reassignments() == {(topic, 0): (2,)}
    (partition,) = (await admin.describe_topics([topic]))[topic].partitions
    assert (partition.adding_replicas, partition.removing_replicas) == ((2,), (1,))
    described = await admin.describe_partition(topic, 0)
    assert (described.adding_replicas, {one.state for one in described.replicas}) == ((2,), {NOT_TOLD})
    (move,) = (await admin.describe_reassignments()).partitions
    (copy,) = move.copies
    assert (copy.broker_id, copy.trouble, (copy.needed_bytes or 0) > 4_000_000) == (2, "", True)
    health = await cluster_health(admin)
    assert health.moving == (f"{topic}-0",)
    assert [(one.broker_id, one.state) for one in health.brokers] == [(1, IN_SERVICE), (2, IN_SERVICE)]
    assert (health.metadata_offset, (await admin.describe_cluster()).controller_id) == (-1, 1)
    await admin.reassign_partitions({(topic, 0): None})
    assert await admin.list_reassignments() == {}


async def test_a_broker_that_is_down_and_the_topics_that_need_it_are_told(
    two_kafkas: KafkaCluster, admin: Admin
) -> None:
    await admin.create_topic("needs-both", assignments=[[1, 2]], configs={"min.insync.replicas": 2})
    await admin.wait_until_in_sync("needs-both")
    two_kafkas.nodes[2].kill()
    await admin.wait_for_topic("needs-both", lambda info: info.partitions[0].isr == (1,))
    health = await cluster_health(admin)
    assert [(one.broker_id, one.state) for one in health.brokers] == [(1, IN_SERVICE), (2, BrokerStanding.DOWN)]
    (troubled,) = [one for one in health.troubled if one.topic == "needs-both"]
    assert troubled.trouble is PartitionTrouble.UNDER_MIN_ISR
    assert "because broker 2 is down" in sentence(health)
    quorum = await admin.describe_quorum()
    assert quorum_summary(quorum)[0].endswith("voters from controller.quorum.voters (cannot be changed)")
    described = await admin.describe_partition("needs-both", 0)
    assert [one.state for one in described.replicas] == [NOT_TOLD, "down"]
