"""Which broker coordinates a group, how the offsets topic is made, and who is told of deleted topics."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from broker_kit import TOPIC_ID, registered, server_config, topic, wait_until

from replog.broker.coordinator.coordinators import Coordinators, ImageTopics
from replog.broker.coordinator.internal_topic import (
    InternalTopic,
    java_hash,
    offsets_shape,
    partition_of,
    transactions_shape,
)
from replog.broker.coordinator.kinds import GROUPS, TRANSACTIONS
from replog.broker.node.core_settings import groups_config
from replog.config.group_keys import MigrationPolicy
from replog.controller.requests import CreateInternalTopic, CreateTopicsResponse, TopicResult
from replog.coordinator.offsets.requests import ForgetTopics
from replog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    InvalidGroupIdError,
    InvalidRequestError,
    NotCoordinatorError,
    RequestTimedOutError,
)
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from replog.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog.rpc.request_limits import MAX_TEXT_CHARACTERS


def partitions(*leaders: int) -> list[MetadataRecord]:
    """The offsets topic with one partition for each leader."""
    made: list[MetadataRecord] = [TopicRecord(OFFSETS_TOPIC, TOPIC_ID)]
    return made + [
        PartitionRecord(number, TOPIC_ID, (1, 2), (1, 2), leader, 0, 0) for number, leader in enumerate(leaders)
    ]


class FakeShards:
    """What was told to the shards of this broker."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def hosts_of(self, topic: str) -> dict[tuple[UUID, int], object]:
        return {(TOPIC_ID, 0): object()} if topic == OFFSETS_TOPIC else {}

    def tell_all(self, topic: str, request: Any) -> None:
        assert topic == OFFSETS_TOPIC
        self.told.append(request)

    async def submit(self, key: tuple[UUID, int], request: Any, timeout_ms: int | None) -> Any:
        return key, request, timeout_ms


class Node:
    """A broker's metadata and controller, as coordinators see them."""

    def __init__(self, **config: object) -> None:
        self.image = MetadataImage()
        self.change(registered(1), registered(2))
        self.asked: list[CreateInternalTopic] = []
        self.answer = TopicResult(OFFSETS_TOPIC, ErrorCode.NONE)
        self.error: Exception | None = None
        self.shards = FakeShards()
        wanted = server_config(**config)
        self.maker = InternalTopic(offsets_shape(wanted), wanted, self, self._create)  # type: ignore[arg-type]
        self.coordinators = Coordinators(GROUPS, 1, lambda: self.image, self.maker, self.shards)  # type: ignore[arg-type]

    def change(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.end_offset + len(records), 1)

    async def changes(self) -> Any:
        while True:
            yield
            await asyncio.sleep(0)

    async def _create(self, request: CreateInternalTopic) -> CreateTopicsResponse:
        self.asked.append(request)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if self.answer.error is ErrorCode.NONE:
            self.change(*partitions(1, 2))
        return CreateTopicsResponse((self.answer,))


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 0), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("zzzzzz", -685785664), ("\U0001f600", 1772899)],
)
def test_the_hash_is_javas(text: str, number: int) -> None:
    assert java_hash(text) == number


def test_a_group_belongs_to_the_partition_that_kafka_gives_it() -> None:
    assert [partition_of(name, 50) for name in ("hello", "polygenelubricants", "zzzzzz")] == [22, 0, 14]


async def test_the_topic_is_made_once_for_all_who_look_for_a_coordinator() -> None:
    node = Node(offsets_topic_num_partitions=2)
    names = [f"g{number}" for number in range(10)]
    found = await asyncio.gather(*map(node.coordinators.find, names))
    assert found == [1 + partition_of(name, 2) for name in names]
    (wanted,) = (one.topic for one in node.asked)
    assert (wanted.name, wanted.num_partitions, wanted.replication_factor) == (OFFSETS_TOPIC, 2, 2)
    assert {each.name: each.value for each in wanted.configs} == {
        "cleanup.policy": "compact",
        "segment.bytes": str(100 << 20),
    }


@pytest.mark.parametrize(
    ("config", "factor"),
    [
        ({}, 2),
        ({"offsets_topic_replication_factor": 1}, 1),
        (
            {
                "controller_quorum_voters": "1@127.0.0.1:9093,2@127.0.0.1:2,3@127.0.0.1:3",
                "listeners": ["127.0.0.1:9092"],
            },
            3,
        ),
    ],
)
async def test_the_topic_has_as_many_replicas_as_the_cluster_has_brokers(
    config: dict[str, object], factor: int
) -> None:
    node = Node(**config)
    await node.coordinators.find("g")
    assert node.asked[0].topic.replication_factor == factor


async def test_whoever_looks_hears_why_the_topic_cannot_be_made_and_may_try_again() -> None:
    node = Node()
    node.answer = TopicResult(OFFSETS_TOPIC, ErrorCode.INVALID_REPLICATION_FACTOR, "more than there are brokers")
    with pytest.raises(CoordinatorNotAvailableError, match="more than there are brokers"):
        await node.coordinators.find("g")
    node.error = RequestTimedOutError("no controller")
    assert [type(each) for each in await node.coordinators.find_all(["g", "h"])] == [CoordinatorNotAvailableError] * 2
    node.answer, node.error = TopicResult(OFFSETS_TOPIC, ErrorCode.NONE), None
    assert await node.coordinators.find("g") in {1, 2}
    assert len(node.asked) == 3


async def test_a_group_without_a_leader_or_a_name_has_no_coordinator() -> None:
    node = Node()
    node.change(*partitions(-1))
    with pytest.raises(CoordinatorNotAvailableError):
        await node.coordinators.find("g")
    for name in ("", "g" * (MAX_TEXT_CHARACTERS + 1)):
        with pytest.raises(InvalidGroupIdError):
            await node.coordinators.find(name)
        with pytest.raises(InvalidGroupIdError):
            await node.coordinators.submit(name, "asked", None)
    with pytest.raises(CoordinatorNotAvailableError):
        await node.coordinators.submit("g", "asked", None)
    assert not node.asked


async def test_many_long_names_are_looked_up_in_steps() -> None:
    node, turns = Node(), 0
    node.change(*partitions(1))

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await node.coordinators.find_all(["x" * MAX_TEXT_CHARACTERS] * 80) == [1] * 80
    counting.cancel()
    assert turns >= 4


async def test_only_the_broker_that_leads_takes_requests() -> None:
    node = Node()
    with pytest.raises(CoordinatorNotAvailableError):
        await node.coordinators.submit("g", "asked", None)
    node.change(*partitions(1))
    assert await node.coordinators.submit("g", "asked", 5) == ((TOPIC_ID, 0), "asked", 5)
    node.change(PartitionChangeRecord(0, TOPIC_ID, leader=2))
    with pytest.raises(NotCoordinatorError, match="broker 2"):
        await node.coordinators.submit("g", "asked", None)


async def test_offsets_are_forgotten_with_their_topic_and_with_nothing_else() -> None:
    node, other = Node(), UUID(int=7)
    for records in (partitions(1), topic(topic_id=other), [PartitionRecord(1, other, (1,), (1,), 1, 0, 0)]):
        node.change(*records)
        node.coordinators.image_applied(node.image)
    assert not node.shards.told
    node.change(RemoveTopicRecord(other))
    node.coordinators.image_applied(node.image)
    assert node.shards.told == [ForgetTopics(frozenset({"flights"}))]


def test_keys_reach_the_coordinators() -> None:
    found = groups_config(
        server_config(
            offsets_retention_minutes=2,
            offsets_retention_check_interval_ms=3,
            offset_metadata_max_bytes=4,
            group_min_session_timeout_ms=5,
            group_max_session_timeout_ms=6,
            group_initial_rebalance_delay_ms=7,
            group_max_size=8,
            group_consumer_session_timeout_ms=9,
            group_consumer_heartbeat_interval_ms=5,
            group_consumer_max_size=10,
        )
    )
    offsets, classic, consumers = found.offsets, found.classic, found.consumers
    assert (offsets.retention_ms, offsets.check_interval_ms, offsets.metadata_max_chars) == (120_000, 3, 4)
    assert (classic.min_session_timeout_ms, classic.max_session_timeout_ms) == (5, 6)
    assert (classic.initial_rebalance_delay_ms, classic.max_size) == (7, 8)
    assert (consumers.session_timeout_ms, consumers.heartbeat_interval_ms, consumers.max_size) == (9, 5, 10)


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        (MigrationPolicy.BIDIRECTIONAL, True, True),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.DISABLED, False, False),
    ],
)
def test_the_policy_says_which_way_groups_go(policy: MigrationPolicy, upgrades: bool, downgrades: bool) -> None:
    found = groups_config(server_config(group_consumer_migration_policy=policy)).conversion
    assert (found.upgrades, found.downgrades) == (upgrades, downgrades)


def test_groups_go_both_ways_as_in_kafka() -> None:
    found = groups_config(server_config()).conversion
    assert found.upgrades
    assert found.downgrades


def test_groups_see_topics_and_that_they_change() -> None:
    node = Node()
    topics = ImageTopics(lambda: node.image)
    first = topics.version
    assert (topics.find("flights"), topics.version) == (None, first)
    node.change(*topic())
    assert (topics.find("flights"), topics.version != first) == ((TOPIC_ID, 1), True)


@pytest.mark.parametrize(
    ("brokers", "config", "told"),
    [
        (1, {}, (1, "1")),
        (2, {}, (2, "1")),
        (3, {}, (3, "2")),
        (3, {"transaction_state_log_min_isr": 1}, (3, "1")),
        (3, {"transaction_state_log_replication_factor": 2, "transaction_state_log_min_isr": 2}, (2, "2")),
    ],
)
async def test_the_topic_of_transactions_goes_on_without_one_of_three_replicas_and_not_without_two(
    brokers: int, config: dict[str, object], told: tuple[int, str]
) -> None:
    node, wanted = Node(), server_config(transaction_state_log_num_partitions=7, **config)
    node.image = MetadataImage()
    node.change(*map(registered, range(1, brokers + 1)))
    node.answer = TopicResult(TRANSACTIONS_TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION, "only to see what is asked for")
    with pytest.raises(CoordinatorNotAvailableError, match=TRANSACTIONS_TOPIC):
        await InternalTopic(transactions_shape(wanted), wanted, node, node._create).make()  # type: ignore[arg-type]
    (asked,) = (one.topic for one in node.asked)
    configs = {each.name: each.value for each in asked.configs}
    assert (asked.name, asked.num_partitions) == (TRANSACTIONS_TOPIC, 7)
    assert (asked.replication_factor, configs["min.insync.replicas"]) == told
    assert (configs["cleanup.policy"], configs["segment.bytes"]) == ("compact", str(100 << 20))


async def test_each_kind_has_a_topic_and_names_of_its_own() -> None:
    node = Node()
    node.change(*partitions(1))
    shards: Any = node.shards
    transactions = Coordinators(TRANSACTIONS, 1, lambda: node.image, node.maker, shards)
    assert await node.coordinators.submit_to(0, "asked", 5) == ((TOPIC_ID, 0), "asked", 5)
    with pytest.raises(CoordinatorNotAvailableError, match=TRANSACTIONS_TOPIC):
        await transactions.submit("t", "asked", 5)
    with pytest.raises(InvalidRequestError, match="transactional id"):
        await transactions.submit("", "asked", 5)
    with pytest.raises(CoordinatorNotAvailableError, match="partition of"):
        await node.coordinators.submit_to(1, "asked", 5)
    node.change(PartitionChangeRecord(0, TOPIC_ID, leader=2))
    with pytest.raises(NotCoordinatorError, match=f"broker 2 coordinates {OFFSETS_TOPIC}-0"):
        await node.coordinators.submit_to(0, "asked", 5)


class HeldShards(FakeShards):
    """Shards that answer when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def submit(self, key: tuple[UUID, int], request: Any, timeout_ms: int | None) -> Any:
        self.told.append(request)
        await self.may_answer.wait()
        return request


async def test_lists_of_everything_are_made_one_after_the_other() -> None:
    """Goal: a hundred clients that list a million names at once take no more memory than one."""
    node, shards = Node(), HeldShards()
    node.coordinators.shards = shards  # type: ignore[assignment]
    lists = [asyncio.create_task(node.coordinators.submit_all(number, 60_000)) for number in range(3)]
    await wait_until(lambda: shards.told == [0])
    with pytest.raises(CoordinatorLoadInProgressError, match="broker 1 makes other lists"):
        await node.coordinators.submit_all(3, 1)
    assert shards.told == [0]
    lists[0].cancel()  # its client has gone: the shard goes on with it all the same
    await asyncio.sleep(0)
    assert not lists[0].done()
    assert shards.told == [0]
    shards.may_answer.set()
    assert await asyncio.gather(*lists[1:]) == [[1], [2]]
    assert lists[0].cancelled()
    assert shards.told == [0, 1, 2]
