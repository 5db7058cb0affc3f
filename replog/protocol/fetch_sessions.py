"""Fetch sessions: a consumer names its partitions once, and is told only of those with news (KIP-227).

A full fetch begins a session and is answered in full.  Later incremental fetches name the partitions that the consumer asks
differently or forgets.  An answer holds the partitions with records, an error, another high watermark or log start, a
divergence or a replica to prefer.  A partition that got records goes to the end of the line, so that none starves.

Nothing here waits or knows a clock: the caller gives the time.  Sessions are bounded by number and by the partitions that
they hold together.  Without room a fetch is answered in full and begins no session, which costs only bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.errors import ErrorCode
from replog.wire.messages.fetch import FetchRequest, FetchResponse

NO_SESSION = 0
"""The id of no session."""

INITIAL_EPOCH = 0
"""The epoch of a full fetch that asks for a session."""

FINAL_EPOCH = -1
"""The epoch of a full fetch that asks for none."""

_EPOCH_MAX = 2**31 - 1

FetchKey: TypeAlias = tuple[str | UUID, int]
"""A topic as the consumer names it, by name before version 13 and by id from there on, and a partition of it."""


class _CachedPartition:
    """The request for a partition, and the answer that was told last."""

    __slots__ = ("asked", "told_high_watermark", "told_log_start")

    def __init__(self, asked: FetchRequest.FetchPartition) -> None:
        self.asked = asked
        self.told_high_watermark: int | None = None
        self.told_log_start: int | None = None

    def take_in(self, told: FetchResponse.PartitionData) -> bool:
        """Notes the state that the consumer is about to be told.  Returns whether it is news."""
        is_news = (
            bool(told.records)
            or told.error_code != ErrorCode.NONE
            or told.high_watermark != self.told_high_watermark
            or told.log_start_offset != self.told_log_start
            or told.preferred_read_replica >= 0
            or told.diverging_epoch is not None
        )
        # after an error the consumer is told again, even if the offsets are the same
        self.told_high_watermark = told.high_watermark if told.error_code == ErrorCode.NONE else None
        self.told_log_start = told.log_start_offset
        return is_news


class _Session:
    """A session: its partitions in the order in which they are served."""

    __slots__ = ("by_id", "epoch", "partitions", "used_ms")

    def __init__(self, partitions: dict[FetchKey, _CachedPartition], *, by_id: bool, used_ms: float) -> None:
        self.partitions = partitions
        self.by_id = by_id
        self.used_ms = used_ms
        self.epoch = 1

    def change(self, asked: Mapping[FetchKey, FetchRequest.FetchPartition], forgotten: Iterable[FetchKey]) -> None:
        """Takes in an incremental fetch; a partition that is asked differently keeps its place."""
        for key, partition in asked.items():
            if (cached := self.partitions.get(key)) is not None:
                cached.asked = partition
            else:
                self.partitions[key] = _CachedPartition(partition)
        for key in forgotten:
            self.partitions.pop(key, None)

    def advance(self) -> None:
        """Expects the next epoch from here on, which is never that of a full fetch."""
        self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1


class SessionRefusal(Struct, frozen=True):
    """Why a fetch cannot be served: the consumer starts over with a full one."""

    error: ErrorCode


class FetchTurn:
    """One fetch: which partitions it is about, and which of them its answer names.

    Attributes:
        partitions: The requests for the partitions, in the order in which they are served.
    """

    def __init__(
        self,
        sessions: FetchSessions,
        partitions: Mapping[FetchKey, FetchRequest.FetchPartition],
        *,
        session_id: int,
        epoch: int = FINAL_EPOCH,
        by_id: bool,
    ) -> None:
        self.partitions = partitions
        self._sessions = sessions
        self._session_id = session_id
        self._epoch = epoch  # that its session expects next
        self._by_id = by_id

    def answer(
        self, told: Mapping[FetchKey, FetchResponse.PartitionData], now_ms: float
    ) -> tuple[int, dict[FetchKey, FetchResponse.PartitionData]]:
        """Returns the session's id and the partitions that the consumer is told; called once, as the answer is made.

        Args:
            told: The state of each partition of `partitions`.
            now_ms: The time.
        """
        if self._session_id > 0:
            return self._session_id, self._sessions.news(self._session_id, self._epoch, told)
        if self._session_id == FINAL_EPOCH:
            return NO_SESSION, dict(told)
        return self._sessions.begin(self.partitions, told, by_id=self._by_id, now_ms=now_ms), dict(told)


class FetchSessions:
    """The sessions of a broker's consumers.

    Args:
        slots: How many sessions there may be.
        partitions_max: How many partitions they may have together.
        eviction_ms: After how long without a fetch a session makes room for a new one.
        rng: The source of ids.
    """

    def __init__(self, *, slots: int, partitions_max: int, eviction_ms: float, rng: random.Random) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._eviction_ms = eviction_ms
        self._rng = rng
        self._sessions: dict[int, _Session] = {}  # the one that has not fetched for the longest time is first
        self._partitions_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_count(self) -> int:
        """How many partitions all sessions have together."""
        return self._partitions_count

    def turn(self, request: FetchRequest, *, by_id: bool, now_ms: float) -> FetchTurn | SessionRefusal:
        """Begins a fetch.

        Args:
            request: The request.
            by_id: Whether it names topics by id (version 13 and later).
            now_ms: The time.
        """
        asked = _asked(request.topics, by_id=by_id)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(request.session_id)
            session_id = FINAL_EPOCH if request.session_epoch == FINAL_EPOCH else NO_SESSION
            return FetchTurn(self, asked, session_id=session_id, by_id=by_id)
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionRefusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return SessionRefusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return SessionRefusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.partitions)
        session.change(asked, _keys(request.forgotten_topics_data, by_id=by_id))
        self._partitions_count += len(session.partitions) - before
        if self._partitions_count > self._partitions_max and len(session.partitions) > before:
            self._end(request.session_id)
            return SessionRefusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._end(request.session_id)
            return FetchTurn(self, asked, session_id=FINAL_EPOCH, by_id=by_id)  # the named partitions are answered
        session.advance()
        session.used_ms = now_ms
        self._sessions[request.session_id] = self._sessions.pop(request.session_id)
        current = {key: cached.asked for key, cached in session.partitions.items()}
        return FetchTurn(self, current, session_id=request.session_id, epoch=session.epoch, by_id=by_id)

    def begin(
        self,
        asked: Mapping[FetchKey, FetchRequest.FetchPartition],
        told: Mapping[FetchKey, FetchResponse.PartitionData],
        *,
        by_id: bool,
        now_ms: float,
    ) -> int:
        """Begins a session for a full fetch that is answered with `told`.  Returns its id; NO_SESSION if there is no room."""
        if not asked or not self._make_room(len(asked), now_ms):
            return NO_SESSION
        session = _Session(
            {key: _CachedPartition(partition) for key, partition in asked.items()}, by_id=by_id, used_ms=now_ms
        )
        for key, each in told.items():
            _serve(session, key, each)
        session_id = self._new_id()
        self._sessions[session_id] = session
        self._partitions_count += len(asked)
        return session_id

    def news(
        self, session_id: int, epoch: int, told: Mapping[FetchKey, FetchResponse.PartitionData]
    ) -> dict[FetchKey, FetchResponse.PartitionData]:
        """Returns the part of `told` that is news for the consumer of a session.

        If the session is gone or a later fetch of it has come, returns all of it and notes nothing: the consumer may not
        receive this answer any more.

        Args:
            session_id: The session.
            epoch: The epoch that it expected after the fetch.
            told: The state of each of its partitions.
        """
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch:
            return dict(told)
        return {key: each for key, each in told.items() if _serve(session, key, each)}

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _make_room(self, partitions_count: int, now_ms: float) -> bool:
        if partitions_count > self._partitions_max:
            return False  # another session made room
        while len(self._sessions) >= self._slots or self._partitions_count + partitions_count > self._partitions_max:
            oldest_id = next(iter(self._sessions), NO_SESSION)
            if oldest_id == NO_SESSION or now_ms - self._sessions[oldest_id].used_ms < self._eviction_ms:
                return False
            self._end(oldest_id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, _EPOCH_MAX)
            if session_id not in self._sessions:
                return session_id

    def _end(self, session_id: int) -> None:
        if (session := self._sessions.pop(session_id, None)) is not None:
            self._partitions_count -= len(session.partitions)


def _serve(session: _Session, key: FetchKey, told: FetchResponse.PartitionData) -> bool:
    cached = session.partitions.get(key)
    if cached is None:
        return True
    if told.records:
        session.partitions[key] = session.partitions.pop(key)
    return cached.take_in(told)


def _asked(topics: Sequence[FetchRequest.FetchTopic], *, by_id: bool) -> dict[FetchKey, FetchRequest.FetchPartition]:
    return {
        (topic.topic_id if by_id else topic.topic, partition.partition): partition
        for topic in topics
        for partition in topic.partitions
    }


def _keys(topics: Sequence[FetchRequest.ForgottenTopic], *, by_id: bool) -> Iterator[FetchKey]:
    for topic in topics:
        for partition in topic.partitions:
            yield topic.topic_id if by_id else topic.topic, partition
