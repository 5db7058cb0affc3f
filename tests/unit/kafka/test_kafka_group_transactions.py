"""TxnOffsetCommit over a node's port, beside the coordinator of its transaction: in every version, and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from unittest import mock

import pytest
from kafka_node_kit import Served, serving

from replog.broker.transactions.verifier import JoinVerifier
from replog.controller.requests import CreatePartitions, NewPartitions
from replog.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    ErrorCode,
    ReplogError,
    TransactionAbortableError,
)
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.protocol.handlers.groups import group_offsets
from replog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tests.envelopes import CLIENT, sender

NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
KNOWS_ABORTABLE_FROM, JOINS_FROM = 4, 5
TIMEOUT_S = 20
_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition


class Producer(NamedTuple):
    """What a producer of the transactional id writes with."""

    producer_id: int
    producer_epoch: int


@pytest.fixture
async def it() -> Any:
    async with serving(offsets_topic_num_partitions=2, transaction_state_log_num_partitions=2) as served:
        await served.create("t", partitions=2)
        for kind, name in ((0, "g"), (1, "tx")):
            await served.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 6, FindCoordinatorResponse)
        shards = served.node.parts.requests.coordinators.shards
        await served.until(
            lambda: len(shards.hosts) == 4 and all(each.load_ms is not None for each in shards.hosts.values())
        )
        yield served


async def begun(it: Served) -> Producer:
    told = await again(
        lambda: it.ask(InitProducerIdRequest("tx", 60_000), 5, InitProducerIdResponse), lambda told: told.error_code
    )
    return Producer(told.producer_id, told.producer_epoch)


async def again(ask: Callable[[], Awaitable[Any]], code: Callable[[Any], int]) -> Any:
    """The answer to a question, asked again while the last transaction is being ended."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            told = await ask()
            if code(told) != ErrorCode.CONCURRENT_TRANSACTIONS:
                return told


async def commit(
    it: Served, version: int, producer: Producer, *offsets: tuple[str, int, int], **more: Any
) -> list[int]:
    """Commits offsets of (topic, partition), each as a topic of its own; returns the codes."""
    fields = {"transactional_id": "tx", "group_id": "g"} | more
    topics = [_Topic(name, [_Partition(number, offset, committed_metadata="x")]) for name, number, offset in offsets]
    request = TxnOffsetCommitRequest(**fields, **producer._asdict(), topics=topics)
    told = await again(
        lambda: it.ask(request, version, TxnOffsetCommitResponse),
        lambda told: told.topics[0].partitions[0].error_code,
    )
    assert [each.name for each in told.topics] == [name for name, _, _ in offsets]
    return [each.error_code for topic in told.topics for each in topic.partitions]


async def add_group(it: Served, producer: Producer) -> None:
    told = await again(
        lambda: it.ask(AddOffsetsToTxnRequest("tx", *producer, "g"), 3, AddOffsetsToTxnResponse),
        lambda told: told.error_code,
    )
    assert told.error_code == NONE


async def end(it: Served, producer: Producer, *, is_commit: bool) -> None:
    told = await it.ask(EndTxnRequest("tx", *producer, is_commit), 3, EndTxnResponse)
    assert told.error_code == NONE


async def fetch(it: Served) -> list[tuple[int, int]]:
    """The stable offsets of both partitions, and their codes."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics("t", partition_indexes=[0, 1])]
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup("g", topics=topics)]
    told = await it.ask(OffsetFetchRequest(groups=groups, require_stable=True), 9, OffsetFetchResponse)
    return [(each.committed_offset, each.error_code) for each in told.groups[0].topics[0].partitions]


async def settled(it: Served) -> list[tuple[int, int]]:
    """The stable offsets once there are some of both partitions."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await fetch(it)
            if UNSTABLE not in {code for _, code in found}:
                return found


@pytest.mark.parametrize("version", TxnOffsetCommitRequest.VERSIONS)
async def test_offsets_count_with_the_end_of_their_transaction_in_every_version(it: Served, version: int) -> None:
    producer = await begun(it)
    if version < JOINS_FROM:
        not_part_of_it = (
            ErrorCode.INVALID_TXN_STATE if version < KNOWS_ABORTABLE_FROM else ErrorCode.TRANSACTION_ABORTABLE
        )
        assert await commit(it, version, producer, ("t", 0, 5)) == [not_part_of_it]
        await add_group(it, producer)
    codes = await commit(it, version, producer, ("t", 0, 5), ("t", 1, 6), ("t", 7, 1), ("gone", 0, 1))
    assert codes == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await fetch(it) == [(-1, UNSTABLE), (-1, UNSTABLE)]
    await end(it, producer, is_commit=True)
    assert await settled(it) == [(5, NONE), (6, NONE)]


async def test_what_is_aborted_does_not_count(it: Served) -> None:
    producer = await begun(it)
    assert await commit(it, 5, producer, ("t", 0, 5)) == [NONE]
    await end(it, producer, is_commit=False)
    assert await settled(it) == [(-1, NONE), (-1, NONE)]


async def test_a_producer_that_was_fenced_commits_nothing(it: Served) -> None:
    old = await begun(it)
    assert await commit(it, 5, old, ("t", 0, 5)) == [NONE]
    await begun(it)
    for version in (4, 5):
        assert await commit(it, version, old, ("t", 0, 9)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await settled(it) == [(-1, NONE), (-1, NONE)]


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        (TransactionAbortableError("abort it"), 3, ErrorCode.INVALID_TXN_STATE),
        (TransactionAbortableError("abort it"), 4, ErrorCode.TRANSACTION_ABORTABLE),
        (CoordinatorLoadInProgressError("it is read"), 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ConcurrentTransactionsError("the last one ends"), 4, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_a_refusal_of_the_transactions_coordinator_is_told_as_clients_of_the_version_know_it(
    it: Served, error: ReplogError, version: int, told: ErrorCode
) -> None:
    producer = await begun(it)
    with mock.patch.object(JoinVerifier, "join", mock.AsyncMock(side_effect=error)):
        assert await commit(it, version, producer, ("t", 0, 5)) == [told]


async def test_a_group_and_a_transactional_id_have_names(it: Served) -> None:
    producer = await begun(it)
    assert await commit(it, 5, producer, ("t", 0, 5), group_id="") == [ErrorCode.INVALID_GROUP_ID]
    assert await commit(it, 5, producer, ("t", 0, 5), transactional_id="") == [ErrorCode.INVALID_REQUEST]
    assert await commit(it, 5, producer, ("t", 0, 5), transactional_id="another") == [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ]


async def test_a_member_that_there_is_not_commits_nothing(it: Served) -> None:
    producer = await begun(it)
    member = {"member_id": "m", "generation_id": 3}
    assert await commit(it, 5, producer, ("t", 0, 5), **member) == [ErrorCode.ILLEGAL_GENERATION]
    assert await commit(it, 5, producer, ("t", 0, 5)) == [NONE]
    assert await commit(it, 5, producer, ("t", 0, 5), **member) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_more_offsets_than_a_step_takes_are_kept_in_several(it: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await it.kafka.change(CreatePartitions((NewPartitions("t", 10),)), 5_000, sender(CLIENT))
    await it.until(lambda: len(it.kafka.image.topics_by_name["t"].partitions) == 10)
    monkeypatch.setattr(group_offsets, "ASKED_AT_ONCE", 3)
    producer = await begun(it)
    assert await commit(it, 5, producer, *(("t", number, number) for number in range(10))) == [NONE] * 10
    shards = it.node.parts.requests.coordinators.shards
    pending = [host.shard._machine._offsets.pending for host in shards.hosts_of(OFFSETS_TOPIC).values()]
    assert sum(each.count(producer.producer_id) for each in pending) == 10
