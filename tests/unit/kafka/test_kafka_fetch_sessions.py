"""Fetch sessions, as a consumer lives through them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.errors import ErrorCode
from replog.protocol.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSessions,
    FetchTurn,
    Named,
    SessionRefusal,
)
from replog.replication.fetch_positions import Movements, PartitionKey
from replog.rpc.messages import FetchPartition
from replog.wire.messages.fetch import FetchRequest

TOPIC = UUID(int=5)
T0, T1, T2 = (TOPIC, 0), (TOPIC, 1), (TOPIC, 2)
EVICTION_MS = 1_000


@dataclass
class Cache:
    """Sessions, and how they are asked."""

    slots: int = 4
    partitions_max: int = 100
    movements: Movements = field(default_factory=Movements)

    def __post_init__(self) -> None:
        self.sessions = FetchSessions(
            slots=self.slots,
            partitions_max=self.partitions_max,
            eviction_ms=EVICTION_MS,
            rng=random.Random(1),
            movements=self.movements,
        )

    def ask(
        self,
        session_id: int,
        epoch: int,
        *keys: PartitionKey,
        forget: tuple[PartitionKey, ...] = (),
        offsets: dict[PartitionKey, int] | None = None,
        by_id: bool = True,
        now_ms: float = 0,
        closed: asyncio.Future[None] | None = None,
        **others: Any,
    ) -> FetchTurn | SessionRefusal:
        gone = [FetchRequest.ForgottenTopic("t", topic_id, partitions=[number]) for topic_id, number in forget]
        request = FetchRequest(session_id=session_id, session_epoch=epoch, forgotten_topics_data=gone, **others)
        partitions = {key: FetchPartition(*key, (offsets or {}).get(key, 0)) for key in keys}
        names = {} if by_id else {topic_id: "t" for topic_id, _ in keys}
        return self.sessions.turn(request, Named(partitions, names, by_id), now_ms=now_ms, closed=closed)

    def refusal(self, session_id: int, epoch: int, *keys: PartitionKey, by_id: bool = True) -> ErrorCode:
        found = self.ask(session_id, epoch, *keys, by_id=by_id)
        assert isinstance(found, SessionRefusal)
        return found.error

    def told(self, found: FetchTurn | SessionRefusal) -> list[PartitionKey]:
        """Answers a fetch; returns the partitions that were looked at."""
        assert isinstance(found, FetchTurn)
        assert found.positions is not None
        looked_at = list(found.positions.moved)
        for key in looked_at:
            found.positions.tell(key, "state", goes_on=False)
        assert self.sessions.finish(found, is_last=False) == found.session_id
        return looked_at

    def begun(self, *keys: PartitionKey, now_ms: float = 0, closed: asyncio.Future[None] | None = None) -> int:
        found = self.ask(NO_SESSION, INITIAL_EPOCH, *keys, now_ms=now_ms, closed=closed)
        assert isinstance(found, FetchTurn)
        if found.positions is not None:
            assert self.told(found) == list(keys)
        return found.session_id

    @property
    def held(self) -> tuple[int, int]:
        return len(self.sessions), self.sessions.partitions_count


def test_a_full_fetch_begins_a_session_and_looks_at_all() -> None:
    cache = Cache()
    assert cache.begun(T0, T1) != NO_SESSION
    assert cache.held == (1, 2)


def test_a_fetch_that_wants_no_session_gets_none() -> None:
    cache = Cache()
    assert cache.ask(NO_SESSION, FINAL_EPOCH, T0) == FetchTurn(NO_SESSION, None, {})
    assert cache.held == (0, 0)


def test_later_fetches_look_only_at_what_moved_or_is_asked_anew() -> None:
    cache = Cache()
    session_id = cache.begun(T0, T1, T2)
    cache.movements.tell([T1])
    assert cache.told(cache.ask(session_id, 1)) == [T1]
    found = cache.ask(session_id, 2, T2, (TOPIC, 3), forget=(T0,), offsets={T2: 7})
    assert isinstance(found, FetchTurn)
    assert found.positions is not None
    assert {key: each.fetch_offset for key, each in found.positions.asked.items()} == {T1: 0, T2: 7, (TOPIC, 3): 0}
    assert cache.told(found) == [T2, (TOPIC, 3)]
    assert cache.held == (1, 3)


def test_who_asks_in_another_manner_is_told_of_all() -> None:
    """Example: behind the last stable offset there are records for a reader that does not mind transactions."""
    cache = Cache()
    session_id = cache.begun(T0, T1)
    for epoch, manner in enumerate(({"isolation_level": 1}, {"isolation_level": 1, "rack_id": "a"}, {}), 1):
        assert cache.told(cache.ask(session_id, epoch, **manner)) == [T0, T1]
    assert cache.told(cache.ask(session_id, 4)) == []


def test_a_session_without_partitions_ends() -> None:
    cache = Cache()
    session_id = cache.begun(T0)
    assert cache.ask(session_id, 1, forget=(T0,)) == FetchTurn(NO_SESSION, None, {})
    assert (cache.held, len(cache.movements)) == ((0, 0), 0)
    assert cache.refusal(session_id, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    cache = Cache()
    session_id = cache.begun(T0)
    cache.ask(session_id, epoch, T0)
    assert cache.refusal(session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5, 2**31 - 1])
def test_another_epoch_is_refused_and_harms_nothing(epoch: int) -> None:
    cache = Cache()
    session_id = cache.begun(T0)
    assert cache.refusal(session_id, epoch, T1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.told(cache.ask(session_id, 1)) == []
    assert cache.refusal(session_id, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_epochs_begin_again_at_1() -> None:
    cache = Cache()
    session_id = cache.begun(T0)
    cache.sessions._sessions[session_id].epoch = 2**31 - 1
    cache.told(cache.ask(session_id, 2**31 - 1))
    cache.told(cache.ask(session_id, 1))


def test_names_and_ids_are_not_mixed() -> None:
    cache = Cache()
    session_id = cache.begun(T0)
    assert cache.refusal(session_id, 1, by_id=False) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.refusal(session_id, 9, by_id=False) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    cache.told(cache.ask(session_id, 1))


def test_names_are_kept_and_forgotten_partitions_go_by_them() -> None:
    cache = Cache()
    begun = cache.ask(NO_SESSION, INITIAL_EPOCH, T0, T1, by_id=False)
    cache.told(begun)
    assert isinstance(begun, FetchTurn)
    found = cache.ask(begun.session_id, 1, forget=((UUID(int=0), 0),), by_id=False)
    assert isinstance(found, FetchTurn)
    assert found.positions is not None
    assert (list(found.positions.asked), found.names) == ([T1], {TOPIC: "t"})


def test_idle_sessions_make_room_and_busy_ones_do_not() -> None:
    cache = Cache(slots=2)
    first, second = cache.begun(T0), cache.begun(T0, now_ms=1)
    assert cache.begun(T0, now_ms=EVICTION_MS - 1) == NO_SESSION
    cache.told(cache.ask(first, 1, now_ms=EVICTION_MS))
    third = cache.begun(T0, now_ms=EVICTION_MS + 1)
    assert NO_SESSION not in {first, second, third}
    assert cache.refusal(second, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.told(cache.ask(first, 2))
    assert cache.held == (2, 2)


def test_partitions_of_all_sessions_are_bounded() -> None:
    cache = Cache(partitions_max=3)
    session_id = cache.begun(T0, T1)
    assert cache.begun(T0, T1) == NO_SESSION
    assert cache.refusal(session_id, 1, T2, (UUID(int=6), 0)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.held == (0, 0)
    assert cache.begun(T0, T1, T2) != NO_SESSION


def test_who_asks_for_more_than_there_may_be_drives_nobody_out() -> None:
    cache = Cache(partitions_max=2)
    session_id = cache.begun(T0)
    assert cache.begun(T0, T1, T2, now_ms=2 * EVICTION_MS) == NO_SESSION
    cache.told(cache.ask(session_id, 1, now_ms=2 * EVICTION_MS))


def test_a_fetch_that_failed_or_is_overtaken_ends_its_session() -> None:
    """Example: its connection broke while it waited: nobody knows what the consumer was told."""
    cache = Cache()
    session_id = cache.begun(T0)
    failed = cache.ask(session_id, 1)
    assert isinstance(failed, FetchTurn)
    assert cache.sessions.finish(failed, is_last=True) == NO_SESSION
    assert cache.refusal(session_id, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = cache.begun(T0)
    waiting = cache.ask(session_id, 1)
    assert isinstance(waiting, FetchTurn)
    assert cache.refusal(session_id, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.sessions.finish(waiting, is_last=False) == NO_SESSION
    assert (cache.held, len(cache.movements)) == ((0, 0), 0)


async def test_a_session_ends_with_its_connection_and_the_connection_keeps_none_that_ended() -> None:
    cache, closed = Cache(slots=2), asyncio.get_running_loop().create_future()
    for _ in range(5):
        cache.sessions.end(cache.begun(T0, closed=closed))
    assert not closed._callbacks
    cache.begun(T0, T1, closed=closed)
    closed.set_result(None)
    await asyncio.sleep(0)
    assert (cache.held, len(cache.movements)) == ((0, 0), 0)


# ---- as a consumer lives through it --------------------------------------------------------------------------------


@dataclass
class Consumer:
    """What Java's consumer keeps: the partitions it wants, those that the broker has of it, and what it was told."""

    cache: Cache
    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    wanted: dict[PartitionKey, int] = field(default_factory=dict)
    sent: dict[PartitionKey, int] = field(default_factory=dict)
    known: dict[PartitionKey, int] = field(default_factory=dict)

    def fetch(self, truth: dict[PartitionKey, int], now_ms: float) -> None:
        is_full = self.epoch == INITIAL_EPOCH
        changed = [key for key, offset in self.wanted.items() if is_full or self.sent.get(key) != offset]
        gone = () if is_full else tuple(key for key in self.sent if key not in self.wanted)
        found = self.cache.ask(self.session_id, self.epoch, *changed, forget=gone, offsets=self.wanted, now_ms=now_ms)
        if isinstance(found, SessionRefusal):
            self.session_id, self.epoch, self.sent = NO_SESSION, INITIAL_EPOCH, {}
            return
        if found.positions is None:
            self.known.update((key, truth[key]) for key in changed)
        else:
            assert {key: each.fetch_offset for key, each in found.positions.asked.items()} == self.wanted
            for key in list(found.positions.moved):
                if found.positions.tell(key, truth[key], goes_on=truth[key] < 0):
                    self.known[key] = truth[key]
        for key in self.wanted:
            assert self.known[key] == truth[key]
        session_id = self.cache.sessions.finish(found, is_last=False)
        self.epoch = 1 if session_id != self.session_id else self.epoch + 1
        self.session_id, self.sent = session_id, dict(self.wanted)
        if session_id == NO_SESSION:
            self.epoch, self.sent = INITIAL_EPOCH, {}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(2, 12))
def test_consumers_know_the_truth_after_each_answer(seed: int, slots: int, partitions_max: int) -> None:
    """Goal: whatever is added, forgotten, moved, evicted or refused, what a consumer was told last is what is."""
    rng = random.Random(seed)
    cache = Cache(slots, partitions_max)
    keys = [(UUID(int=topic), partition) for topic in (1, 2) for partition in range(3)]
    truth = dict.fromkeys(keys, 0)
    consumers = [Consumer(cache) for _ in range(3)]
    for now_ms in range(0, 40 * 300, 300):
        moved = [key for key in keys if rng.random() < 0.3]
        for key in moved:
            truth[key] = rng.choice((truth[key], abs(truth[key]) + 1, -1))
        cache.movements.tell(moved)
        consumer = rng.choice(consumers)
        for key in keys:
            if rng.random() < 0.2:
                consumer.wanted[key] = rng.randint(0, 3)
            elif rng.random() < 0.1 and consumer.wanted.pop(key, None) is not None:
                consumer.known.pop(key, None)
        consumer.fetch(truth, now_ms)
        sessions = cache.sessions._sessions.values()
        assert len(sessions) <= slots
        assert cache.sessions.partitions_count == sum(len(each.positions.asked) for each in sessions) <= partitions_max
