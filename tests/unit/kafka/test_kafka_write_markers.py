"""WriteTxnMarkers: an operator ends a transaction that hangs (KIP-664)."""

from __future__ import annotations

import pytest
from kafka_node_kit import Served, batch, serving

from replog.broker.replicas import open_transactions
from replog.errors import ErrorCode
from replog.rpc.node_messages import DescribeNodeRequest
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

READ_COMMITTED = 1
LATEST = -1
Asked = WriteTxnMarkersRequest.WritableTxnMarker
Topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic


async def hanging(it: Served) -> None:
    """A topic whose partition has a transaction open, and a record behind it."""
    topic_id = await it.create()
    replica = it.node.parts.replicas.stepper.replicas[topic_id, 0]
    data = batch(producer_id=7, producer_epoch=3, base_sequence=0, is_transactional=True)
    await it.node.parts.replicas.stepper.driver.call(
        lambda: replica.log.append_as_leader(data, leader_epoch=0, now_ms=0)
    )
    await it.produce(batch())


async def last_stable_offset(it: Served) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(0, -1, LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[ListOffsetsRequest.ListOffsetsTopic("t", [partition])],
    )
    answer = await it.ask(request, 7, ListOffsetsResponse)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


async def write(it: Served, *markers: Asked) -> list[tuple[int, str, int, int]]:
    answer = await it.ask(WriteTxnMarkersRequest(list(markers)), 1, WriteTxnMarkersResponse)
    return [
        (one.producer_id, topic.name, partition.partition_index, partition.error_code)
        for one in answer.markers
        for topic in one.topics
        for partition in topic.partitions
    ]


async def test_the_end_of_a_hanging_transaction_lets_readers_go_on() -> None:
    async with serving() as it:
        await hanging(it)
        assert await last_stable_offset(it) == 0
        assert await write(it, Asked(7, 2, False, [Topic("t", [0])], 0)) == [
            (7, "t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)
        ]
        assert await last_stable_offset(it) == 0
        assert await write(
            it, Asked(7, 3, False, [Topic("t", [0, 5])], 0), Asked(8, 0, True, [Topic("gone", [1])], 0)
        ) == [
            (7, "t", 0, ErrorCode.NONE),
            (7, "t", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (8, "gone", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert await last_stable_offset(it) == 3


async def test_a_node_names_a_transaction_that_nobody_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "LATE_BEYOND_MS", 0)
    async with serving(transaction_max_timeout_ms=1) as it:
        assert (await it.kafka.call(DescribeNodeRequest(), 5000)).late_transactions == ()
        await hanging(it)
        (late,) = (await it.kafka.call(DescribeNodeRequest(), 5000)).late_transactions
        assert (late.topic, late.partition_id, late.producer_id, late.first_offset) == ("t", 0, 7, 0)


async def test_a_request_that_fails_as_a_whole_names_every_partition() -> None:
    async with serving() as it:
        await hanging(it)
        refused = await write(it, Asked(-1, 0, True, [Topic("t", [0])], 0), Asked(7, 3, True, [Topic("t", [0])], 0))
        assert refused == [(-1, "t", 0, ErrorCode.INVALID_REQUEST), (7, "t", 0, ErrorCode.INVALID_REQUEST)]
        assert await last_stable_offset(it) == 0
