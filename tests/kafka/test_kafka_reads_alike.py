"""What consumers ask is answered alike by a real Kafka and a replog broker, in every version, right or wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import test_kafka_answers_alike
from sides import UNKNOWN_ID, Question, Side, Sides

from replog.kafka.messages.fetch import FetchRequest, FetchResponse
from replog.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.kafka.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.kafka.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from replog.kafka.messages.produce import ProduceRequest, ProduceResponse
from replog.records import encode_batch

FETCH = FetchRequest.VERSIONS
LIST_OFFSETS = ListOffsetsRequest.VERSIONS
T0_MS = 1_700_000_000_000

ABORTED = ("aborted_transactions",)
"""Beside an error Kafka tells no aborted transactions as null or as an empty list, by where it found the error; we as null."""

both = test_kafka_answers_alike.both


def batch(*values: bytes, timestamp_ms: int = T0_MS) -> bytes:
    return encode_batch([(timestamp_ms, b"key", value, ()) for value in values or (b"value",)])


def filled(both: Sides, *batches: bytes, partitions: int = 1) -> str:
    """A topic with these batches in each partition."""
    topic = both.topic(partitions=partitions)
    _wait_until_led(both, topic, partitions)
    for partition in range(partitions):
        for data in batches:
            parts = [ProduceRequest.PartitionProduceData(partition, data)]
            request = ProduceRequest(
                acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(topic, partition_data=parts)]
            )
            both.same(request, 9, ProduceResponse)
    return topic


def _wait_until_led(both: Sides, topic: str, partitions: int) -> None:
    """Waits until both answer for every partition: either tells of a topic a little before it leads."""
    deadline_s = time.monotonic() + 20
    question = fetch(topic, *(asked(partition, 0) for partition in range(partitions)))
    for side in both:
        while {code for code, _ in told(side.answer(question, 12, FetchResponse)).values()} != {0}:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


def asked(partition: int, offset: int, *, max_bytes: int = 1 << 20, **fields: int) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)


def fetch(
    topic: str,
    *parts: FetchRequest.FetchPartition,
    of: Callable[[Side], Mapping[str, Any]] | None = None,
    **fields: Any,
) -> Question:
    """A fetch of partitions of one topic, by name and by id; `of` adds what is a side's own."""

    def made(side: Side) -> FetchRequest:
        topics = [FetchRequest.FetchTopic(topic, side.ids.get(topic, UNKNOWN_ID), list(parts))] if parts else []
        own = {} if of is None else of(side)
        return FetchRequest(**{"max_wait_ms": 50, "topics": topics, **fields, **own})

    return made


def told(answer: Any) -> dict[int, tuple[int, str]]:
    """Code and records of each partition."""
    return {p["partition_index"]: (p["error_code"], p["records"]) for t in answer["responses"] for p in t["partitions"]}


# ---- Fetch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FETCH)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_fetch(both: Sides, version: int, isolation_level: int) -> None:
    topic = filled(both, batch(b"a", b"b"), batch(b"c" * 5000), partitions=2)
    for offset in range(4):
        question = fetch(topic, asked(0, offset), asked(1, 3), isolation_level=isolation_level)
        answer = both.same(question, version, FetchResponse)
        assert bool(told(answer)[0][1]) == (offset < 3)


@pytest.mark.parametrize("version", FETCH)
def test_fetch_of_what_is_not_there(both: Sides, version: int) -> None:
    topic = filled(both, batch(b"a", b"b"))
    for offset in (-1, 3, 99):
        answer = both.same(fetch(topic, asked(0, offset)), version, FetchResponse)
        assert told(answer) == {0: (1, "")}
    answer = both.same(fetch(topic, asked(0, 0), asked(7, 0)), version, FetchResponse, beside=ABORTED)
    assert told(answer)[7] == (3, "")
    answer = both.same(fetch("unknown", asked(0, 0)), version, FetchResponse, beside=ABORTED)
    assert told(answer) == {0: (100 if version >= 13 else 3, "")}


@pytest.mark.parametrize("version", [8, 9, 12, 18])
@pytest.mark.parametrize("epoch", [-1, 0, 1, 5])
def test_fetch_with_leader_epochs(both: Sides, version: int, epoch: int) -> None:
    topic = filled(both, batch(b"a", b"b"))
    both.same(fetch(topic, asked(0, 0, current_leader_epoch=epoch)), version, FetchResponse)
    for offset in (2, 5):
        both.same(fetch(topic, asked(0, offset, last_fetched_epoch=epoch)), version, FetchResponse)


@pytest.mark.parametrize("version", [4, 11, 18])
@pytest.mark.parametrize(("most", "each"), [(0, 0), (1, 1), (1 << 20, 1), (1, 1 << 20), (673, 673), (1346, 1 << 20)])
def test_fetch_within_limits(both: Sides, version: int, most: int, each: int) -> None:
    """Note: at limits within a batch Kafka sends the beginning of the next one too, which clients throw away; we do not."""
    data = batch(b"x" * 600)
    assert len(data) == 673
    topic = filled(both, *[data] * 3, partitions=2)
    parts = [asked(partition, 0, max_bytes=each) for partition in range(2)]
    both.same(fetch(topic, *parts, max_bytes=most), version, FetchResponse)


@pytest.mark.parametrize("version", [4, 12, 18])
def test_fetch_that_is_odd(both: Sides, version: int) -> None:
    topic = filled(both, batch())
    fields: tuple[dict[str, Any], ...] = ({"max_wait_ms": -1}, {"min_bytes": -1}, {"rack_id": "r"}, {"cluster_id": "x"})
    for each in fields:
        both.same(fetch(topic, asked(0, 0), **each), version, FetchResponse)
    both.same(fetch(topic, asked(0, 0), asked(0, 1)), version, FetchResponse)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_fetch_sessions(both: Sides, version: int) -> None:
    topic = filled(both, partitions=3)
    ids: dict[bool, int] = {}
    for side in both:
        begun = side.answer(fetch(topic, asked(0, 0), asked(1, 0), session_epoch=0), version, FetchResponse)
        ids[side is both.ours] = begun["session_id"]

    def step(epoch: int, *parts: FetchRequest.FetchPartition, forget: tuple[int, ...] = ()) -> Any:
        def own(side: Side) -> dict[str, Any]:
            forgotten = [FetchRequest.ForgottenTopic(topic, side.ids[topic], list(forget))] if forget else []
            return {"session_id": ids[side is both.ours], "forgotten_topics_data": forgotten}

        question = fetch(topic, *parts, of=own, session_epoch=epoch)
        return both.same(question, version, FetchResponse, beside=("session_id", *ABORTED))

    assert told(step(1)) == {}
    assert told(step(2, asked(2, 0), asked(9, 0))) == {2: (0, ""), 9: (3, "")}
    assert step(9)["error_code"] == 71
    assert told(step(3)) == {9: (3, "")}
    assert told(step(4, forget=(9, 0))) == {}
    assert told(step(-1, asked(0, 0))) == {0: (0, "")}
    assert step(5)["error_code"] == 70
    both.same(
        fetch(topic, session_epoch=0), version, FetchResponse, beside=("session_id",)
    )  # ours begins none of nothing


def test_a_fetch_session_of_names_is_not_one_of_ids(both: Sides) -> None:
    topic = filled(both, batch())
    ids = {
        side is both.ours: side.answer(fetch(topic, asked(0, 0), session_epoch=0), 12, FetchResponse)["session_id"]
        for side in both
    }
    question = fetch(topic, of=lambda side: {"session_id": ids[side is both.ours]}, session_epoch=1)
    assert both.same(question, 13, FetchResponse)["error_code"] == 106


# ---- offsets -----------------------------------------------------------------------------------------------------------


def offsets(topic: str, *parts: tuple[int, int, int], isolation_level: int = 0) -> ListOffsetsRequest:
    """A request with (partition, leader epoch, timestamp) of one topic."""
    partitions = [ListOffsetsRequest.ListOffsetsPartition(*part) for part in parts]
    return ListOffsetsRequest(-1, isolation_level, [ListOffsetsRequest.ListOffsetsTopic(topic, partitions)])


@pytest.mark.parametrize("version", LIST_OFFSETS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_list_offsets(both: Sides, version: int, isolation_level: int) -> None:
    stamped = [batch(timestamp_ms=T0_MS), batch(b"b", b"c", timestamp_ms=T0_MS + 50), batch(timestamp_ms=T0_MS + 20)]
    topic, empty = filled(both, *stamped), filled(both)
    times = (0, T0_MS, T0_MS + 1, T0_MS + 20, T0_MS + 50, T0_MS + 51, 2**62)
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, *times):
        for name in (topic, empty):
            question = offsets(name, (0, -1, timestamp), isolation_level=isolation_level)
            both.same(question, version, ListOffsetsResponse)


@pytest.mark.parametrize("version", LIST_OFFSETS)
def test_list_offsets_that_are_refused(both: Sides, version: int) -> None:
    topic = filled(both, batch())
    for epoch in (0, 1):
        both.same(offsets(topic, (0, epoch, -1)), version, ListOffsetsResponse)
    both.same(offsets(topic, (9, -1, -1), (0, -1, -2)), version, ListOffsetsResponse)
    both.same(offsets("unknown", (0, -1, -1)), version, ListOffsetsResponse)
    both.same(offsets(topic, (0, -1, -1), (0, -1, -2)), version, ListOffsetsResponse)


@pytest.mark.parametrize("version", OffsetForLeaderEpochRequest.VERSIONS)
def test_offset_for_leader_epoch(both: Sides, version: int) -> None:
    topic = filled(both, batch(), batch())
    for partition, current, epoch in ((0, -1, 0), (0, -1, 1), (0, 0, 0), (0, 3, 0), (0, -1, -1), (5, -1, 0)):
        for name in (topic, "unknown"):
            parts = [OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition, current, epoch)]
            topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(name, parts)]
            both.same(OffsetForLeaderEpochRequest(-1, topics), version, OffsetForLeaderEpochResponse)


# ---- producer ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(both: Sides, version: int) -> None:
    _take_producer_ids(both)
    for known in ((), (5, 3)):
        request = InitProducerIdRequest(None, 1000, *known)
        answer = both.same(request, version, InitProducerIdResponse, beside=("producer_id",))
        assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
    assert both.same(InitProducerIdRequest("", 1000), version, InitProducerIdResponse)["error_code"] == 42


def _take_producer_ids(both: Sides) -> None:
    """Waits until both have ids to give: a real Kafka says COORDINATOR_LOAD_IN_PROGRESS while it fetches some."""
    deadline_s = time.monotonic() + 20
    for side in both:
        while side.answer(InitProducerIdRequest(None, 1000), 4, InitProducerIdResponse)["error_code"] != 0:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
