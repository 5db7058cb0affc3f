"""InitProducerId: ids for idempotent producers, over a node's port."""

from __future__ import annotations

import asyncio

import pytest
from kafka_node_kit import PRODUCE_VERSION, Served, batch, serving

from replog.errors import ErrorCode
from replog.protocol.handlers.node import Failure
from replog.protocol.handlers.producer_ids import init_producer_id, refuse_init_producer_id
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.unit.kafka.rights_kit import a_call

IDEMPOTENT = InitProducerIdRequest(transactional_id=None)
BUMPED = InitProducerIdRequest(transactional_id=None, producer_id=7, producer_epoch=3)


async def test_each_producer_gets_an_id_of_its_own_in_every_version() -> None:
    async with serving() as it:
        given = [await it.ask(IDEMPOTENT, version, InitProducerIdResponse) for version in range(6)]
        given.append(await it.ask(BUMPED, 5, InitProducerIdResponse))
        assert [(each.error_code, each.producer_epoch) for each in given] == [(0, 0)] * 7
        assert len({each.producer_id for each in given} | {7}) == 8


async def test_names_and_numbers_that_no_producer_has_are_refused() -> None:
    async with serving(transaction_state_log_num_partitions=1) as it:
        for request in (
            InitProducerIdRequest(transactional_id=""),
            InitProducerIdRequest(transactional_id=None, producer_id=7),
            InitProducerIdRequest(transactional_id="mine", producer_epoch=7),
        ):
            given = await it.ask(request, 4, InitProducerIdResponse)
            assert given.error_code == ErrorCode.INVALID_REQUEST
            assert (given.producer_id, given.producer_epoch) == (-1, -1)
        given = await it.ask(InitProducerIdRequest(transactional_id="mine"), 4, InitProducerIdResponse)
        assert given.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody has looked for a coordinator yet"


async def test_the_version_of_prepared_transactions_is_neither_told_nor_served() -> None:
    async with serving() as it:
        told = await it.ask(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
        (key,) = [each for each in told.api_keys if each.api_key == InitProducerIdRequest.API_KEY]
        assert (key.min_version, key.max_version) == (0, 5)
        client = await it.client()
        client.send(IDEMPOTENT, 6)
        assert await asyncio.to_thread(client.is_closed)


async def test_a_broker_without_its_lease_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: Java's client gives an idempotent producer up for good at BROKER_NOT_AVAILABLE."""
    async with serving() as it:
        monkeypatch.setattr(it.node.parts.replicas.lifecycle, "refuses_because", lambda: "no lease")
        given = await init_producer_id(it.kafka, IDEMPOTENT, a_call(4))
        assert given.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def produced(it: Served, data: bytes) -> ProduceResponse.PartitionProduceResponse:
    topic = ProduceRequest.TopicProduceData("t", partition_data=[ProduceRequest.PartitionProduceData(0, data)])
    answer = await it.ask(
        ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), PRODUCE_VERSION, ProduceResponse
    )
    (told,) = answer.responses[0].partition_responses
    assert isinstance(told, ProduceResponse.PartitionProduceResponse)
    return told


async def test_the_last_five_batches_of_a_producer_are_known_when_they_come_again() -> None:
    """Trap: redpanda #3038, #3826, #5157: a client has five requests in flight, and sends all of them again."""
    async with serving() as it:
        await it.create()
        given = await it.ask(IDEMPOTENT, 4, InitProducerIdResponse)
        batches = [batch(producer_id=given.producer_id, producer_epoch=0, base_sequence=at) for at in range(5)]
        first = [await produced(it, data) for data in batches]
        again = [await produced(it, data) for data in batches]
        assert [(each.error_code, each.base_offset) for each in first] == [(0, at) for at in range(5)]
        assert [(each.error_code, each.base_offset) for each in again] == [(0, at) for at in range(5)]
        ahead = await produced(it, batch(producer_id=given.producer_id, producer_epoch=0, base_sequence=7))
        assert ahead.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await it.produce(batch()) == 5


def test_a_failure_has_kafkas_code() -> None:
    told = refuse_init_producer_id(IDEMPOTENT, Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug"))
    assert (told.error_code, told.producer_id, told.producer_epoch) == (-1, -1, -1)
