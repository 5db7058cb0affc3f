"""Fetch sessions, as a consumer lives through them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from replog.errors import ErrorCode
from replog.protocol.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchKey,
    FetchSessions,
    FetchTurn,
    SessionRefusal,
)
from replog.wire.messages.fetch import FetchRequest, FetchResponse

Told = FetchResponse.PartitionData
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
EVICTION_MS = 1_000


def sessions(slots: int = 4, partitions_max: int = 100) -> FetchSessions:
    return FetchSessions(slots=slots, partitions_max=partitions_max, eviction_ms=EVICTION_MS, rng=random.Random(1))


def asking(
    session_id: int, epoch: int, *keys: FetchKey, forget: tuple[FetchKey, ...] = (), offset: int = 0
) -> FetchRequest:
    topics: dict[Any, list[int]] = {}
    for name, partition in keys:
        topics.setdefault(name, []).append(partition)
    forgotten: dict[Any, list[int]] = {}
    for name, partition in forget:
        forgotten.setdefault(name, []).append(partition)
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                **_named(name),
                partitions=[FetchRequest.FetchPartition(partition, fetch_offset=offset) for partition in partitions],
            )
            for name, partitions in topics.items()
        ],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(**_named(n), partitions=ps) for n, ps in forgotten.items()],
    )


def _named(name: str | UUID) -> dict[str, Any]:
    return {"topic_id": name} if isinstance(name, UUID) else {"topic": name}


def turn(cache: FetchSessions, request: FetchRequest, *, now_ms: float = 0) -> FetchTurn:
    found = cache.turn(request, by_id=any(topic.topic == "" for topic in request.topics), now_ms=now_ms)
    assert isinstance(found, FetchTurn)
    return found


def refusal(cache: FetchSessions, request: FetchRequest, *, by_id: bool = False) -> ErrorCode:
    found = cache.turn(request, by_id=by_id, now_ms=0)
    assert isinstance(found, SessionRefusal)
    return found.error


def told(high_watermark: int = 5, **others: Any) -> Told:
    return Told(high_watermark=high_watermark, log_start_offset=0, **others)


def begun(cache: FetchSessions, *keys: FetchKey, now_ms: float = 0) -> int:
    session_id, named = turn(cache, asking(NO_SESSION, INITIAL_EPOCH, *keys)).answer(
        dict.fromkeys(keys, told()), now_ms
    )
    assert named.keys() == set(keys)
    return session_id


def test_a_full_fetch_begins_a_session_and_is_answered_in_full() -> None:
    cache = sessions()
    assert begun(cache, T0, T1) != NO_SESSION
    assert (len(cache), cache.partitions_count) == (1, 2)


def test_a_fetch_that_wants_no_session_gets_none() -> None:
    cache = sessions()
    found = turn(cache, asking(NO_SESSION, FINAL_EPOCH, T0))
    assert found.answer({T0: told()}, 0) == (NO_SESSION, {T0: told()})
    assert len(cache) == 0


def test_an_answer_names_only_what_is_new() -> None:
    cache = sessions()
    session_id = begun(cache, T0, T1, T2)
    found = turn(cache, asking(session_id, 1))
    assert list(found.partitions) == [T0, T1, T2]
    assert found.answer({T0: told(), T1: told(6), T2: told()}, 0) == (session_id, {T1: told(6)})


@pytest.mark.parametrize(
    "news",
    [
        told(records=b"x"),
        told(6),
        replace(told(), log_start_offset=1),
        told(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        told(diverging_epoch=FetchResponse.EpochEndOffset(1, 2)),
        told(preferred_read_replica=2),
    ],
    ids=["records", "high watermark", "log start", "error", "divergence", "replica to prefer"],
)
def test_what_news_is(news: Told) -> None:
    """Goal: among them the replica to prefer, without which a consumer stands still for ever."""
    cache = sessions()
    session_id = begun(cache, T0, T1)
    assert turn(cache, asking(session_id, 1)).answer({T0: news, T1: told()}, 0)[1] == {T0: news}
    assert turn(cache, asking(session_id, 2)).answer({T0: told(), T1: told()}, 0)[1] == (
        {} if news.high_watermark == 5 and news.log_start_offset == 0 and not news.error_code else {T0: told()}
    )


def test_after_an_error_a_partition_is_told_again() -> None:
    """Example: the leader was elsewhere for a moment; the consumer must hear that the partition is back."""
    cache = sessions()
    session_id = begun(cache, T0)
    failed = told(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    turn(cache, asking(session_id, 1)).answer({T0: failed}, 0)
    assert turn(cache, asking(session_id, 2)).answer({T0: failed}, 0)[1] == {T0: failed}
    assert turn(cache, asking(session_id, 3)).answer({T0: told()}, 0)[1] == {T0: told()}
    assert turn(cache, asking(session_id, 4)).answer({T0: told()}, 0)[1] == {}


def test_partitions_are_added_changed_and_forgotten() -> None:
    cache = sessions()
    session_id = begun(cache, T0, T1)
    found = turn(cache, asking(session_id, 1, T1, T2, forget=(T0,), offset=7))
    assert {key: each.fetch_offset for key, each in found.partitions.items()} == {T1: 7, T2: 7}
    assert cache.partitions_count == 2
    assert found.answer({T1: told(), T2: told()}, 0)[1] == {T2: told()}
    assert list(turn(cache, asking(session_id, 2)).partitions) == [T1, T2]


def test_a_session_without_partitions_ends() -> None:
    cache = sessions()
    session_id = begun(cache, T0)
    assert turn(cache, asking(session_id, 1, forget=(T0,))).answer({}, 0) == (NO_SESSION, {})
    assert (len(cache), cache.partitions_count) == (0, 0)
    assert refusal(cache, asking(session_id, 2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    cache = sessions()
    session_id = begun(cache, T0)
    turn(cache, asking(session_id, epoch, T0))
    assert refusal(cache, asking(session_id, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.partitions_count == 0


@pytest.mark.parametrize("epoch", [2, 5, 2**31 - 1])
def test_another_epoch_is_refused_and_harms_nothing(epoch: int) -> None:
    cache = sessions()
    session_id = begun(cache, T0)
    assert refusal(cache, asking(session_id, epoch, T1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert list(turn(cache, asking(session_id, 1)).partitions) == [T0]
    assert refusal(cache, asking(session_id, 1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_epochs_begin_again_at_1() -> None:
    cache = sessions()
    session_id = begun(cache, T0)
    cache._sessions[session_id].epoch = 2**31 - 1
    turn(cache, asking(session_id, 2**31 - 1))
    turn(cache, asking(session_id, 1))


def test_names_and_ids_are_not_mixed() -> None:
    cache, topic_id = sessions(), UUID(int=5)
    session_id = begun(cache, (topic_id, 0))
    assert refusal(cache, asking(session_id, 1)) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert refusal(cache, asking(session_id, 9)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert isinstance(cache.turn(asking(session_id, 1), by_id=True, now_ms=0), FetchTurn)


def test_a_partition_with_records_goes_to_the_end_of_the_line() -> None:
    """Goal: where an answer has room for one partition's records, all get their turn."""
    cache = sessions()
    session_id = begun(cache, T0, T1, T2)
    served = []
    for epoch in range(1, 7):
        found = turn(cache, asking(session_id, epoch))
        first = next(iter(found.partitions))
        found.answer({key: told(records=b"x" if key == first else None) for key in found.partitions}, 0)
        served.append(first)
    assert served == [T0, T1, T2, T0, T1, T2]


def test_idle_sessions_make_room_and_busy_ones_do_not() -> None:
    cache = sessions(slots=2)
    first, second = begun(cache, T0), begun(cache, T0, now_ms=1)
    assert begun(cache, T0, now_ms=EVICTION_MS - 1) == NO_SESSION
    turn(cache, asking(first, 1), now_ms=EVICTION_MS)
    third = begun(cache, T0, now_ms=EVICTION_MS + 1)
    assert NO_SESSION not in {first, second, third}
    assert refusal(cache, asking(second, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    turn(cache, asking(first, 2))
    assert len(cache) == 2


def test_partitions_of_all_sessions_are_bounded() -> None:
    cache = sessions(partitions_max=3)
    session_id = begun(cache, T0, T1)
    assert begun(cache, T0, T1) == NO_SESSION
    assert refusal(cache, asking(session_id, 1, T2, ("u", 0))) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partitions_count) == (0, 0)
    assert begun(cache, T0, T1, T2) != NO_SESSION


def test_what_was_evicted_meanwhile_is_told_in_full() -> None:
    """Example: a fetch waits for records while its session makes room for another one."""
    cache = sessions(slots=1)
    session_id = begun(cache, T0)
    waiting = turn(cache, asking(session_id, 1))
    begun(cache, T1, now_ms=EVICTION_MS)
    assert waiting.answer({T0: told()}, EVICTION_MS)[1] == {T0: told()}


def test_a_fetch_that_was_overtaken_takes_no_news_away() -> None:
    """Example: its connection broke while it waited; the consumer hears of the high watermark by the next one."""
    cache = sessions()
    session_id = begun(cache, T0)
    overtaken = turn(cache, asking(session_id, 1))
    assert turn(cache, asking(session_id, 2)).answer({T0: told(6)}, 0)[1] == {T0: told(6)}
    assert overtaken.answer({T0: told(7)}, 0)[1] == {T0: told(7)}
    assert turn(cache, asking(session_id, 3)).answer({T0: told(7)}, 0)[1] == {T0: told(7)}


def test_who_asks_for_more_than_there_may_be_drives_nobody_out() -> None:
    cache = sessions(partitions_max=2)
    session_id = begun(cache, T0)
    assert begun(cache, T0, T1, T2, now_ms=2 * EVICTION_MS) == NO_SESSION
    turn(cache, asking(session_id, 1), now_ms=2 * EVICTION_MS)


def test_what_is_named_and_forgotten_at_once_is_answered_once_more() -> None:
    """Note: as Kafka does, also where it was the last one and the session ends."""
    cache = sessions()
    session_id = begun(cache, T0)
    found = turn(cache, asking(session_id, 1, T0, forget=(T0,)))
    assert found.answer({T0: told()}, 0) == (NO_SESSION, {T0: told()})
    assert list(found.partitions) == [T0]


# ---- as a consumer lives through it --------------------------------------------------------------------------------


@dataclass
class Consumer:
    """What Java's consumer keeps: the partitions it wants, those that the broker has of it, and what it was told."""

    cache: FetchSessions
    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    wanted: dict[FetchKey, int] = field(default_factory=dict)
    sent: dict[FetchKey, int] = field(default_factory=dict)
    known: dict[FetchKey, tuple[int, int]] = field(default_factory=dict)

    def fetch(self, truth: dict[FetchKey, tuple[int, int]], failing: set[FetchKey], now_ms: float) -> None:
        is_full = self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        changed = [key for key, offset in self.wanted.items() if is_full or self.sent.get(key) != offset]
        gone = () if is_full else tuple(key for key in self.sent if key not in self.wanted)
        request = asking(self.session_id, self.epoch, *changed, forget=gone)
        for topic in request.topics:
            for partition in topic.partitions:
                partition.fetch_offset = self.wanted[topic.topic, partition.partition]
        found = self.cache.turn(request, by_id=False, now_ms=now_ms)
        if isinstance(found, SessionRefusal):
            self.session_id, self.epoch, self.sent = NO_SESSION, INITIAL_EPOCH, {}
            return
        assert {key: each.fetch_offset for key, each in found.partitions.items()} == self.wanted
        self.sent = dict(self.wanted)
        answers = {}
        for key in found.partitions:
            high_watermark, log_start = truth[key]
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER if key in failing else ErrorCode.NONE
            answers[key] = Told(key[1], error, high_watermark, log_start_offset=log_start)
        session_id, named = found.answer(answers, now_ms)
        for key, each in named.items():
            self.known[key] = (each.high_watermark, each.log_start_offset)
        for key in self.wanted:
            assert self.known[key] == truth[key]
            assert key not in failing or key in named
        self.epoch = 1 if session_id != self.session_id else self.epoch + 1
        self.session_id = session_id
        if session_id == NO_SESSION:
            self.epoch, self.sent = INITIAL_EPOCH, {}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(2, 12))
def test_consumers_know_the_truth_after_each_answer(seed: int, slots: int, partitions_max: int) -> None:
    """Goal: whatever is added, forgotten, moved, evicted or refused, what a consumer was told last is what is."""
    rng = random.Random(seed)
    cache = sessions(slots, partitions_max)
    keys: list[FetchKey] = [(topic, partition) for topic in "ab" for partition in range(3)]
    truth = dict.fromkeys(keys, (0, 0))
    consumers = [Consumer(cache) for _ in range(3)]
    for now_ms in range(0, 40 * 300, 300):
        for key in keys:
            high_watermark, log_start = truth[key]
            if rng.random() < 0.3:
                truth[key] = (high_watermark + rng.randint(0, 2), min(high_watermark, log_start + rng.randint(0, 1)))
        consumer = rng.choice(consumers)
        for key in keys:
            if rng.random() < 0.2:
                consumer.wanted[key] = rng.randint(0, 3)
            elif rng.random() < 0.1 and consumer.wanted.pop(key, None) is not None:
                consumer.known.pop(key, None)
        consumer.fetch(truth, {key for key in keys if rng.random() < 0.1}, now_ms)
        assert len(cache) <= slots
        assert (
            cache.partitions_count == sum(len(each.partitions) for each in cache._sessions.values()) <= partitions_max
        )
