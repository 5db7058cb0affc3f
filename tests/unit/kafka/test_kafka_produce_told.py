"""Produce: what becomes of a node's answer that a node alone does not give."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest
from kafka_node_kit import batch, serving

from replog.errors import ErrorCode
from replog.metadata.image import MetadataImage, TopicImage
from replog.protocol.handlers.node import KafkaNode
from replog.protocol.handlers.produce import produce
from replog.records import encode_batch
from replog.rpc.messages import ProducedTransaction, ProduceResult
from replog.rpc.messages import ProduceRequest as NodeRequest
from replog.rpc.messages import ProduceResponse as NodeResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.unit.kafka.rights_kit import a_call


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, 13, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 13, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.KAFKA_STORAGE_ERROR, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNKNOWN_TOPIC_ID, 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (ErrorCode.UNKNOWN_TOPIC_ID, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["no lease", "full", "full, old client", "failed disk, old client", "by id", "by name"],
)
async def test_a_producer_hears_codes_after_which_it_sends_again(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode, version: int, expected: ErrorCode
) -> None:
    """Goal: a moment without lease or room costs no batch.

    Java's producer gives up at BROKER_NOT_AVAILABLE; librdkafka and aiokafka give up at THROTTLING_QUOTA_EXCEEDED.
    """

    async def answer(request: NodeRequest, _caller: object) -> NodeResponse:
        return NodeResponse(
            0, tuple(ProduceResult(p.topic_id, p.partition_id, error, "why") for p in request.partitions)
        )

    async with serving() as it:
        topic_id = await it.create()
        monkeypatch.setattr(it.kafka, "produce", answer)
        data = [ProduceRequest.PartitionProduceData(0, batch())]
        request = ProduceRequest(acks=-1, topic_data=[ProduceRequest.TopicProduceData("t", topic_id, data)])
        response = await produce(it.kafka, request, a_call(version))
        (told,) = response.responses[0].partition_responses
        assert isinstance(told, ProduceResponse.PartitionProduceResponse)
        assert (told.error_code, told.error_message) == (expected, "why")


@pytest.mark.parametrize("version", [7, 8, 13])
async def test_a_producer_hears_which_records_a_compacted_topic_does_not_take(version: int) -> None:
    """Goal: the other records of the batch can be sent again (KIP-467); without a place all of them failed for this."""
    async with serving() as it:
        topic_id = await it.create(**{"cleanup.policy": "compact"})
        records = encode_batch([(1, key, b"v", ()) for key in (b"k", None, b"", None)])
        data = [ProduceRequest.PartitionProduceData(0, records)]
        request = ProduceRequest(acks=-1, topic_data=[ProduceRequest.TopicProduceData("t", topic_id, data)])
        response = await it.ask(request, version, ProduceResponse)
        (told,) = response.responses[0].partition_responses
        assert told.error_code == ErrorCode.INVALID_RECORD
        assert [one.batch_index for one in told.record_errors] == ([1, 3] if version >= 8 else [])


async def test_a_large_produce_is_taken_up_in_turns_of_the_loop_and_not_overtaken() -> None:
    """Goal: ten thousand partitions of one client hold nobody up, and the batches of a producer stay in order."""
    turns, order = 0, list[tuple[int, int]]()

    class Node:
        node_id, image = 1, MetadataImage(topics_by_name={"t": TopicImage("t", UUID(int=1), {})})

        async def produce(self, request: NodeRequest, _caller: object) -> NodeResponse:
            order.append((len(request.batches), turns))
            return NodeResponse(
                0, tuple(ProduceResult(each.topic_id, each.partition_id, ErrorCode.NONE) for each in request.partitions)
            )

    def asked(count: int) -> ProduceRequest:
        data = [ProduceRequest.PartitionProduceData(number, batch()) for number in range(count)]
        return ProduceRequest(acks=1, topic_data=[ProduceRequest.TopicProduceData("t", partition_data=data)])

    call: Any = a_call(9)
    sent = [asyncio.create_task(produce(Node(), asked(count), call)) for count in (3_500, 1, 1_001, 2)]  # type: ignore[arg-type]
    while not all(each.done() for each in sent):
        turns += 1
        await asyncio.sleep(0)
    assert [count for count, _ in order] == [3_500, 1, 1_001, 2]
    assert order[0][1] >= 3
    assert [len((await each).responses[0].partition_responses) for each in sent] == [3_500, 1, 1_001, 2]


def transactional(producer_id: int = 7) -> bytes:
    return batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


class Appends:
    """A node that appends everything, and keeps what it was asked."""

    node_id = 1

    def __init__(self) -> None:
        self.image = MetadataImage(topics_by_name={"t": TopicImage("t", UUID(int=1), {})})
        self.asked: list[NodeRequest] = []

    async def produce(self, request: NodeRequest, _caller: object) -> NodeResponse:
        self.asked.append(request)
        return NodeResponse(
            0, tuple(ProduceResult(each.topic_id, each.partition_id, ErrorCode.NONE) for each in request.partitions)
        )


async def told_codes(node: Appends, name: str | None, *batches: bytes, version: int = 12) -> list[int]:
    data = [ProduceRequest.PartitionProduceData(number, each) for number, each in enumerate(batches)]
    request = ProduceRequest(name, acks=-1, topic_data=[ProduceRequest.TopicProduceData("t", partition_data=data)])
    call: Any = a_call(version)
    response = await produce(cast("KafkaNode", node), request, call)
    return [each.error_code for each in response.responses[0].partition_responses]


@pytest.mark.parametrize(("version", "adds", "knows"), [(10, False, False), (11, False, True), (12, True, True)])
async def test_the_version_says_what_becomes_of_a_transactions_partitions(
    version: int, adds: bool, knows: bool
) -> None:
    node = Appends()
    assert await told_codes(node, "pay", transactional(), batch(), version=version) == [0, 0]
    assert node.asked[0].transaction == ProducedTransaction("pay", adds_partitions=adds, knows_abortable=knows)


async def test_without_a_batch_of_a_transaction_a_transactional_id_says_nothing() -> None:
    node = Appends()
    assert await told_codes(node, "pay", batch()) == [0]
    assert node.asked[0].transaction is None


@pytest.mark.parametrize(
    ("name", "second", "code"),
    [
        (None, batch(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("pay", transactional(8), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
    ids=["no id", "two producers"],
)
async def test_a_request_that_is_no_transaction_is_refused_as_a_whole(
    name: str | None, second: bytes, code: ErrorCode
) -> None:
    node = Appends()
    assert await told_codes(node, name, transactional(), second) == [code, code]
    assert node.asked == []
