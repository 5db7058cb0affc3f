"""Fetch sessions: a consumer names its partitions once, and is told only of those with news (KIP-227).

A full fetch begins a session and is answered in full.  Later incremental fetches name the partitions that the consumer asks
differently or forgets.  What a session was told, and what has moved since, is in its positions (`fetch_positions`); the node
decides by them what an answer names.

Nothing here waits or knows a clock: the caller gives the time.  A session ends with the connection that it began on, with a
fetch that fails, and with one that comes before the last one is answered: nobody knows then what the consumer was told.
Sessions are bounded by number and by the partitions that they hold together.  Without room a fetch is answered in full and
begins no session, which costs only bytes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from uuid import UUID

from msgspec import Struct, field

from replog.errors import ErrorCode
from replog.replication.fetch_positions import FetchPositions, Movements, PartitionKey
from replog.rpc.messages import FetchPartition
from replog.wire.messages.fetch import FetchRequest

NO_SESSION = 0
"""The id of no session."""

INITIAL_EPOCH = 0
"""The epoch of a full fetch that asks for a session."""

FINAL_EPOCH = -1
"""The epoch of a full fetch that asks for none."""

_EPOCH_MAX = 2**31 - 1


class Named(Struct):
    """The partitions that a fetch names, as far as the node knows their topics.

    Attributes:
        partitions: The questions for them.
        names: The names of their topics; empty if the fetch names topics by id (version 13 and later).
        by_id: Whether it does.
    """

    partitions: dict[PartitionKey, FetchPartition]
    names: dict[UUID, str]
    by_id: bool


class _Session(Struct, eq=False):
    """A session.

    Attributes:
        session_id: Its id.
        positions: What it asks for, what it was told, what has moved since.
        names: The names of its topics; empty if it names them by id.
        topic_ids: The ids of its topics, and of some that it had.
        by_id: Whether it does.
        manner: What else its last fetch said on which an answer depends.
        used_ms: The time of its last fetch.
        epoch: The epoch that the next fetch has.
        is_asked: Whether its last fetch is not answered.
        closed: The future that is done when its connection has ended; None: it has no end.
        at_end: The function that is called then.
    """

    session_id: int
    positions: FetchPositions[FetchPartition]
    by_id: bool
    used_ms: float
    manner: tuple[int, str, bool]
    names: dict[UUID, str] = field(default_factory=dict)
    topic_ids: set[UUID] = field(default_factory=set)
    epoch: int = INITIAL_EPOCH
    is_asked: bool = False
    closed: asyncio.Future[None] | None = None
    at_end: partial[None] | None = None


class SessionRefusal(Struct, frozen=True):
    """Why a fetch cannot be served: the consumer starts over with a full one."""

    error: ErrorCode


class FetchTurn(Struct, frozen=True):
    """One fetch.

    Attributes:
        session_id: The session that it is one of, or begins; NO_SESSION: none.
        positions: The positions of the session, those of this fetch among them; None: there is no session.
        names: The names of the topics that are told of; empty if they go by id.
        topic_ids: The ids of the session's topics, and of some that it had.
    """

    session_id: int
    positions: FetchPositions[FetchPartition] | None
    names: Mapping[UUID, str]
    topic_ids: AbstractSet[UUID] = frozenset()


class FetchSessions:
    """The sessions of a broker's consumers.

    Args:
        slots: How many sessions there may be.
        partitions_max: How many partitions they may have together.
        eviction_ms: After how long without a fetch a session makes room for a new one.
        rng: The source of ids.
        movements: The readers of the broker's partitions.
    """

    def __init__(
        self, *, slots: int, partitions_max: int, eviction_ms: float, rng: random.Random, movements: Movements
    ) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._eviction_ms = eviction_ms
        self._rng = rng
        self._movements = movements
        self._sessions: dict[int, _Session] = {}  # the one that has not fetched for the longest time is first
        self._partitions_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_count(self) -> int:
        """How many partitions all sessions have together."""
        return self._partitions_count

    def turn(
        self, request: FetchRequest, named: Named, *, now_ms: float, closed: asyncio.Future[None] | None = None
    ) -> FetchTurn | SessionRefusal:
        """Begins a fetch; `finish` it, whatever becomes of it.

        Args:
            request: The request.
            named: The partitions that it names.
            now_ms: The time.
            closed: The future that is done when its connection has ended; None: it has no end.
        """
        session: _Session | None = None
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.end(request.session_id)
            if request.session_epoch == INITIAL_EPOCH:
                session = self._begin(request, named, now_ms, closed)
        else:
            found = self._of(request, by_id=named.by_id)
            if isinstance(found, ErrorCode):
                return SessionRefusal(found)
            session = found
        if session is not None and not self._take_in(session, named, request):
            return SessionRefusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session is None or not session.positions.asked:
            self.end(NO_SESSION if session is None else session.session_id)
            return FetchTurn(NO_SESSION, None, named.names)  # the named partitions are answered
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        session.used_ms = now_ms
        session.is_asked = True
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return FetchTurn(session.session_id, session.positions, session.names, session.topic_ids)

    def finish(self, turn: FetchTurn, *, is_last: bool) -> int:
        """Ends a fetch.

        Args:
            turn: The fetch.
            is_last: Whether its session ends with it.

        Returns:
            The id that its consumer is told: of the session that goes on, or NO_SESSION.
        """
        session = self._sessions.get(turn.session_id)
        if session is None:
            return NO_SESSION
        session.is_asked = False
        if is_last:
            self.end(turn.session_id)
            return NO_SESSION
        return turn.session_id

    def end(self, session_id: int) -> None:
        """Ends a session; does nothing if there is none of the id."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._partitions_count -= len(session.positions.asked)
        session.positions.clear()
        if session.closed is not None and session.at_end is not None:
            session.closed.remove_done_callback(session.at_end)

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _of(self, request: FetchRequest, *, by_id: bool) -> _Session | ErrorCode:
        """Returns the session that a fetch names, or why it may not be used."""
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.is_asked:
            self.end(session.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return session

    def _begin(
        self, request: FetchRequest, named: Named, now_ms: float, closed: asyncio.Future[None] | None
    ) -> _Session | None:
        """Begins a session; returns None if there is no room for it."""
        if not named.partitions or not self._make_room(len(named.partitions), now_ms):
            return None
        session_id = self._new_id()
        session = _Session(
            session_id, FetchPositions(self._movements), named.by_id, now_ms, _manner(request), closed=closed
        )
        if closed is not None:
            session.at_end = partial(self._end_of_connection, session_id)
            closed.add_done_callback(session.at_end)
        self._sessions[session_id] = session
        return session

    def _end_of_connection(self, session_id: int, _closed: asyncio.Future[None]) -> None:
        self.end(session_id)

    def _take_in(self, session: _Session, named: Named, request: FetchRequest) -> bool:
        """Takes in what a fetch asks; returns False, and ends the session, if there is no room for more partitions."""
        positions, forgotten = session.positions, request.forgotten_topics_data
        if session.manner != (manner := _manner(request)):
            session.manner = manner
            positions.note(list(positions.asked))
        before = len(positions.asked)
        session.names.update(named.names)
        for key, partition in named.partitions.items():
            positions.ask(key, partition)
            session.topic_ids.add(key[0])
        ids = {name: topic_id for topic_id, name in session.names.items()} if forgotten else {}
        for topic in forgotten:
            topic_id = topic.topic_id if session.by_id else ids.get(topic.topic)
            if topic_id is not None:
                for number in topic.partitions:
                    positions.forget((topic_id, number))
        self._partitions_count += len(positions.asked) - before
        if self._partitions_count > self._partitions_max and len(positions.asked) > before:
            self.end(session.session_id)
            return False
        return True

    def _make_room(self, partitions_count: int, now_ms: float) -> bool:
        if partitions_count > self._partitions_max:
            return False  # another session made room
        while len(self._sessions) >= self._slots or self._partitions_count + partitions_count > self._partitions_max:
            oldest_id = next(iter(self._sessions), NO_SESSION)
            if oldest_id == NO_SESSION or now_ms - self._sessions[oldest_id].used_ms < self._eviction_ms:
                return False
            self.end(oldest_id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, _EPOCH_MAX)
            if session_id not in self._sessions:
                return session_id


def _manner(request: FetchRequest) -> tuple[int, str, bool]:
    return request.isolation_level, request.rack_id, request.offsets_only
