"""Quotas of clients: which one counts, how long who took too much waits, and what Describe- and AlterClientQuotas say."""

from __future__ import annotations

import asyncio
import math
import threading
from functools import partial
from typing import Any

import pytest
from kafka_node_kit import Served, batch, frame, serving

from replog.access.principal import ANONYMOUS
from replog.errors import ErrorCode
from replog.metadata.image import MetadataImage, image_records
from replog.metadata.quotas import (
    CONSUMER_BYTE_RATE,
    OWNER_CHARACTERS_MAX,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
    quota_entity,
    quota_entity_of,
    quota_parts,
)
from replog.metadata.records import QuotaEntityPart
from replog.protocol.client_quotas import BURST_S, ClientQuotas
from replog.protocol.handlers.access import quotas
from replog.protocol.handlers.node import AT_ONCE_MAX
from replog.protocol.server import KafkaServer
from replog.tcp.connection import Caller
from replog.waiting.token_buckets import BUCKETS_MAX
from replog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse

Altered = AlterClientQuotasRequest
Part = DescribeClientQuotasRequest.ComponentData
EXACT, DEFAULT, SPECIFIED = range(3)
RATE = 1_000.0


def entity(**names: str | None) -> QuotaEntity:
    """An entity by its kinds, `client_id` for `client-id`."""
    return quota_entity(*(QuotaEntityPart(kind.replace("_", "-"), name) for kind, name in names.items()))


LEVELS = [
    ({"user": "alice", "client_id": "loader"}, ("alice", "loader")),
    ({"user": "alice", "client_id": None}, ("alice", "loader")),
    ({"user": "alice"}, ("alice", None)),
    ({"user": None, "client_id": "loader"}, ("alice", "loader")),
    ({"user": None, "client_id": None}, ("alice", "loader")),
    ({"user": None}, ("alice", None)),
    ({"client_id": "loader"}, (None, "loader")),
    ({"client_id": None}, (None, "loader")),
]
"""The entities that fit alice's loader, the first that counts first, and whose connections share the quota."""


def test_the_nearest_entity_counts_and_says_whose_the_quota_is() -> None:
    quotas = {entity(**names): {PRODUCER_BYTE_RATE: float(number + 1)} for number, (names, _) in enumerate(LEVELS)}
    known = ClientQuotas(lambda: quotas)
    for number, (names, owner) in enumerate(LEVELS):
        assert quota_entity_of(quota_parts(entity(**names))) == entity(**names)
        assert known.quota(PRODUCER_BYTE_RATE, "alice", "loader") == (number + 1, owner)
        assert known.quota(CONSUMER_BYTE_RATE, "alice", "loader") is None
        quotas = {each: limits for each, limits in quotas.items() if each != entity(**names)}
    assert known.quota(PRODUCER_BYTE_RATE, "alice", "loader") is None


async def test_thousands_of_quotas_are_read_and_told_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: 9,000 entities were turned into the controller's words, and back, in one step of the loop of 50 ms."""
    threads: list[int] = []

    def noted(real: Any, things: Any) -> Any:
        threads.append(threading.get_ident())
        return real(things)

    for name in ("_wanted", "_all_altered"):
        monkeypatch.setattr(quotas, name, partial(noted, getattr(quotas, name)))
    many = [
        Altered.EntryData([Altered.EntityData("user", f"u{number}")], [Altered.OpData(PRODUCER_BYTE_RATE, RATE)])
        for number in range(AT_ONCE_MAX + 1)
    ]
    async with serving() as node:
        told = await node.ask(Altered(many, validate_only=True), 1, AlterClientQuotasResponse)
    assert [each.error_code for each in told.entries] == [ErrorCode.NONE] * len(many)
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def test_an_entity_without_the_quota_leaves_it_to_the_next() -> None:
    quotas = {entity(user="alice"): {CONSUMER_BYTE_RATE: 1.0}, entity(client_id=None): {PRODUCER_BYTE_RATE: 2.0}}
    assert ClientQuotas(lambda: quotas).quota(PRODUCER_BYTE_RATE, "alice", "x") == (2.0, (None, "x"))


def test_connections_of_one_owner_share_a_bucket_and_others_have_their_own() -> None:
    now_s = 0.0
    quotas = {entity(user=None): {PRODUCER_BYTE_RATE: RATE}}
    known = ClientQuotas(lambda: quotas, lambda: now_s)
    assert known.take(PRODUCER_BYTE_RATE, "alice", "one", RATE * BURST_S) == 0
    assert known.take(PRODUCER_BYTE_RATE, "alice", "two", RATE) == 1
    assert known.take(PRODUCER_BYTE_RATE, "bob", "one", RATE) == 0
    assert known.burst(PRODUCER_BYTE_RATE, "bob", "one") == RATE * BURST_S


def test_names_without_end_take_no_memory_without_end() -> None:
    quotas = {entity(client_id=None): {PRODUCER_BYTE_RATE: RATE}}
    known = ClientQuotas(lambda: quotas, lambda: 0.0)
    quota = known.quota(PRODUCER_BYTE_RATE, "", "m" * 32_767)
    assert quota is not None
    assert len(quota.owner[1] or "") == OWNER_CHARACTERS_MAX
    for number in range(BUCKETS_MAX + 10):
        known.take(PRODUCER_BYTE_RATE, "", f"n{number}", RATE * BURST_S)
    assert len(known._buckets[PRODUCER_BYTE_RATE]) == BUCKETS_MAX


# ---- over the port of a node -----------------------------------------------------------------------------------------


async def altered(
    it: Served, names: dict[str, str | None], *, validate_only: bool = False, **limits: float | None
) -> tuple[int, str | None]:
    parts = [Altered.EntityData(kind, name) for kind, name in names.items()]
    ops = [Altered.OpData(key, limit or 0.0, limit is None) for key, limit in limits.items()]
    answer = await it.ask(Altered([Altered.EntryData(parts, ops)], validate_only), 1, AlterClientQuotasResponse)
    (told,) = answer.entries
    assert [(part.entity_type, part.entity_name) for part in told.entity] == list(names.items())
    return told.error_code, told.error_message


async def found(it: Served, *parts: Part, strict: bool = False) -> list[dict[str, str | None]]:
    """The entities that a filter finds."""
    answer = await it.ask(DescribeClientQuotasRequest(list(parts), strict), 1, DescribeClientQuotasResponse)
    assert answer.error_code == 0, answer.error_message
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in answer.entries]


async def test_quotas_are_set_found_and_removed() -> None:
    async with serving() as it:
        both: dict[str, str | None] = {"client-id": "loader", "user": "alice"}
        assert await altered(it, both, producer_byte_rate=5.0, consumer_byte_rate=7.0) == (0, None)
        assert await altered(it, {"user": None}, producer_byte_rate=6.0) == (0, None)
        assert await altered(it, {"user": "bob"}, validate_only=True, producer_byte_rate=6.0) == (0, None)
        await it.until(lambda: len(it.kafka.image.quotas) == 2)
        assert await found(it) == [both, {"user": None}]
        assert await found(it, Part("user", EXACT, "alice")) == [both]
        assert await found(it, Part("user", EXACT, "alice"), strict=True) == []
        assert await found(it, Part("user", DEFAULT, None)) == [{"user": None}]
        assert await found(it, Part("user", SPECIFIED, None), Part("client-id", SPECIFIED, None), strict=True) == [both]
        assert await altered(it, both, producer_byte_rate=None, consumer_byte_rate=None) == (0, None)
        await it.until(lambda: len(it.kafka.image.quotas) == 1)
        assert it.kafka.image.quotas == {entity(user=None): {PRODUCER_BYTE_RATE: 6.0}}


REFUSED: list[tuple[dict[str, str | None], dict[str, float], ErrorCode, str]] = [
    ({}, {"producer_byte_rate": 1.0}, ErrorCode.INVALID_REQUEST, "needs an entity"),
    ({"users": "a"}, {"producer_byte_rate": 1.0}, ErrorCode.INVALID_REQUEST, '"users" has no quotas'),
    ({"user": "a", "ip": "1.2.3.4"}, {}, ErrorCode.INVALID_REQUEST, "is of nothing else"),
    ({"ip": "example"}, {}, ErrorCode.INVALID_REQUEST, '"example" is no address'),
    ({"user": "a"}, {"producer_byte_rat": 1.0}, ErrorCode.INVALID_REQUEST, 'no quota "producer_byte_rat"'),
    ({"user": "a"}, {"producer_byte_rate": 0.5}, ErrorCode.INVALID_REQUEST, "has to be a whole number"),
    ({"user": "a"}, {"producer_byte_rate": -1.0}, ErrorCode.INVALID_REQUEST, "has to be above 0"),
    ({"user": "a"}, {"producer_byte_rate": math.nan}, ErrorCode.INVALID_REQUEST, "has to be above 0"),
    ({"user": "a"}, {"producer_byte_rate": math.inf}, ErrorCode.INVALID_REQUEST, "has to be above 0"),
    ({"user": "a"}, {"connection_creation_rate": 5.0}, ErrorCode.INVALID_REQUEST, "there is no quota"),
    ({"ip": "10.0.0.7"}, {"request_percentage": 50.0}, ErrorCode.INVALID_REQUEST, "there is connection_creation_rate"),
    ({"ip": "10.0.0.7"}, {"connection_creation_rate": 2.0**31}, ErrorCode.INVALID_REQUEST, "at most 2147483647"),
    ({"user": "a" * 1025}, {"producer_byte_rate": 1.0}, ErrorCode.INVALID_REQUEST, "at most 1024 characters"),
]


async def test_what_is_no_quota_is_refused_with_the_reason() -> None:
    async with serving() as it:
        for names, limits, code, text in REFUSED:
            told, message = await altered(it, names, **limits)
            assert (told, text in (message or "")) == (code, True), message
        parts = [Altered.EntityData("user", "a")]
        twice = [Altered.OpData("producer_byte_rate", 1.0), Altered.OpData("producer_byte_rate", 2.0)]
        again = [Altered.OpData("producer_byte_rate", 3.0)]
        entries = [Altered.EntryData(parts, ops) for ops in (twice, again, again)]
        answer = await it.ask(Altered(entries), 1, AlterClientQuotasResponse)
        assert [each.error_code for each in answer.entries] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
        asked = DescribeClientQuotasRequest([Part("user", EXACT, None)])
        assert (await it.ask(asked, 1, DescribeClientQuotasResponse)).error_code == ErrorCode.INVALID_REQUEST
        asked = DescribeClientQuotasRequest([Part("group", SPECIFIED, None)])
        assert (await it.ask(asked, 1, DescribeClientQuotasResponse)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_quotas_survive_a_snapshot_of_the_metadata() -> None:
    async with serving() as it:
        await altered(it, {"user": "alice"}, producer_byte_rate=5.0)
        await altered(it, {"ip": None, "user": None}, producer_byte_rate=5.0)
        await it.until(lambda: it.kafka.image.quotas)
        image: MetadataImage = it.kafka.image
        records = [record for record in image_records(image) if type(record).__name__ == "ClientQuotaRecord"]
        assert [(record.entity, record.key, record.value) for record in records] == [  # type: ignore[union-attr]
            (entity(user="alice"), PRODUCER_BYTE_RATE, 5.0)
        ]


def produced(size: int, acks: int = 1) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(0, batch(b"v" * size))
    return ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[data])]
    )


def fetched() -> FetchRequest:
    wanted = FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_bytes=1 << 20, topics=[FetchRequest.FetchTopic("t", partitions=[wanted])])


async def test_a_producer_over_its_quota_is_told_and_not_taken_up_meanwhile() -> None:
    async with serving() as it:
        await it.create()
        await altered(it, {"client-id": None}, producer_byte_rate=20_000.0)
        await it.until(lambda: it.kafka.image.quotas)
        client, other = await it.client(), await it.client()
        answer: Any = await it.ask(produced(195_000), 12, ProduceResponse, client)
        assert answer.throttle_time_ms == 0, "ten seconds' worth at once"
        answer = await it.ask(produced(12_000), 12, ProduceResponse, client)
        assert 0 < answer.throttle_time_ms <= 500
        assert answer.responses[0].partition_responses[0].error_code == 0, "what was sent is there"
        muted = asyncio.create_task(it.ask(produced(1), 12, ProduceResponse, client))
        answer = await it.ask(fetched(), 12, FetchResponse, other)
        assert answer.throttle_time_ms == 0, "others go on"
        assert not muted.done()
        assert (await muted).responses[0].partition_responses[0].base_offset == 2


async def test_a_produce_counts_before_it_is_done() -> None:
    """Example: 64 produces in flight were appended, and counted, before the connection rested for the first of them."""
    async with serving() as it:
        topic_id = await it.create()
        await altered(it, {"client-id": None}, producer_byte_rate=20_000.0)
        await it.until(lambda: it.kafka.image.quotas)
        log = it.node.parts.replicas.stepper.replicas[topic_id, 0].log
        ends: list[int] = []
        caller = Caller(ANONYMOUS, rest=lambda _: ends.append(log.log_end_offset))
        server = KafkaServer(it.kafka)
        for _ in range(2):
            answer = await server.serve(frame(produced(150_000), 12), caller)
        assert (ends, log.log_end_offset) == ([1], 2), "it rests for the second one, which is not there yet"
        assert answer is not None
        assert 0 < answer.mute_s <= 5.1


async def test_a_consumer_gets_no_more_at_once_than_its_quota_lets_it_take() -> None:
    async with serving() as it:
        await it.create()
        for _ in range(4):
            await it.ask(produced(40_000), 12, ProduceResponse)
        await altered(it, {"client-id": None}, consumer_byte_rate=5_000.0)
        await it.until(lambda: it.kafka.image.quotas)
        client = await it.client()
        answer: Any = await it.ask(fetched(), 12, FetchResponse, client)
        (told,) = answer.responses[0].partitions
        assert 40_000 < len(told.records) <= 2 * 41_000, "one batch is whole, whatever the quota; not all four"
        if answer.throttle_time_ms == 0:  # the second batch makes the debt
            answer = await it.ask(fetched(), 12, FetchResponse, client)
        assert answer.throttle_time_ms > 0


def topics(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(name, 6, 1) for name in names], 5_000)


async def test_who_creates_too_many_partitions_is_refused_or_where_it_knows_no_better_waits() -> None:
    async with serving() as it:
        await altered(it, {"client-id": None}, controller_mutation_rate=10.0)
        await it.until(lambda: it.kafka.image.quotas)
        old, new = await it.client(), await it.client()
        many = [f"t{number}" for number in range(21)]
        answer: Any = await it.ask(topics(*many), 7, CreateTopicsResponse, new)
        codes = [one.error_code for one in answer.topics]
        refused_code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert codes == [ErrorCode.NONE] * 19 + [refused_code] * 2, (
            "eleven seconds' worth, and the one that makes the debt"
        )
        assert answer.throttle_time_ms == 400
        answer = await it.ask(topics("a"), 5, CreateTopicsResponse, old)
        assert answer.topics[0].error_code == ErrorCode.NONE
        assert 600 <= answer.throttle_time_ms <= 1_000
        muted = asyncio.create_task(it.ask(topics("d"), 5, CreateTopicsResponse, old))
        answer = await it.ask(topics("e"), 7, CreateTopicsResponse, new)
        (refused,) = answer.topics
        assert refused.error_code == refused_code
        assert "controller_mutation_rate" in refused.error_message
        assert not muted.done()
        assert (await muted).topics[0].error_code == ErrorCode.NONE


async def test_the_time_of_requests_has_a_quota_of_its_own_for_all_kinds_of_requests() -> None:
    async with serving() as it:
        await it.create()
        await altered(it, {"client-id": None}, request_percentage=1e-6)  # less than any request takes
        await it.until(lambda: it.kafka.image.quotas)
        client = await it.client()
        waits = []
        for request, version, answer_type in (
            (produced(100), 12, ProduceResponse),
            (fetched(), 12, FetchResponse),
            (MetadataRequest(), 12, MetadataResponse),
            (MetadataRequest(), 12, MetadataResponse),
        ):
            answer: Any = await it.ask(request, version, answer_type, client)
            waits.append(answer.throttle_time_ms)
        assert waits == [1_000] * 4, "no longer than a second, as in Kafka"
        await altered(it, {"client-id": None}, request_percentage=None)
        await it.until(lambda: not it.kafka.image.quotas)
        kept = await it.ask(MetadataRequest(), 12, MetadataResponse)
        assert kept.throttle_time_ms == 0, "the kept answer was not changed"


async def test_a_producer_that_wants_no_answers_is_muted_too() -> None:
    async with serving() as it:
        await it.create()
        await altered(it, {"client-id": None}, producer_byte_rate=20_000.0)
        await it.until(lambda: it.kafka.image.quotas)
        client, other = await it.client(), await it.client()
        await asyncio.to_thread(client.send, produced(205_000, acks=0), 12)
        read: Any = None
        while read is None or not read.responses[0].partitions[0].records:
            read = await it.ask(fetched(), 12, FetchResponse, other)
        await it.ask(fetched(), 12, FetchResponse, other)
        answer: Any = await it.ask(produced(1), 12, ProduceResponse, client)
        assert answer.throttle_time_ms < 100, "the debt of 5,000 bytes was waited for before it was taken up"
