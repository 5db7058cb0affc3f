"""The leader's side of a fetch: read, or wait until there is something to read.

Runs on the replica driver.  A fetch that finds less than it asked for waits; appends and high watermarks of the same drain wake
it once, after the drain, so that one answer carries everything that arrived together.  A follower's stream keeps what it has
asked for (`incremental_fetch`), and so does a consumer's session: its fetches look only at the partitions that moved, and its
answers name only news.  Any other fetch stands for itself.  A consumer's is read within its share of the memory for answers
(`replog.waiting.unread_answers`), and waits in a line while there is none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from replog.broker.replicas.image_queue import WaitForImage
from replog.broker.replicas.replica import ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_reader import (
    FETCH_WAIT_MAX_MS,
    MAX_RESPONSE_BYTES,
    NOT_FRESH,
    FetchReader,
    Slot,
    is_worth_sending,
    refused_fetch,
    state_of,
)
from replog.broker.requests.incremental_fetch import IncrementalFetch, IncrementalFetches
from replog.broker.requests.pending_fetch import PendingFetch, read_wholly
from replog.broker.requests.refusals import Refusal
from replog.errors import ErrorCode
from replog.replication.fetch_positions import FetchPositions, Movements
from replog.rpc.messages import FetchPartition, FetchRequest, FetchResponse
from replog.waiting.deadlines import Deadlines
from replog.waiting.unread_answers import UnreadAnswer, UnreadAnswers

MAX_WAITING_FETCHES = 10_000

PARTITIONS_AT_ONCE = 500
"""Partitions that are read in one step of the driver.  A fetch of more is answered as soon as one of them has records."""

ROOM_WAIT_MS = 1_000
"""How long a fetch waits in the line for room, even if it wants to wait less: when it leaves, it loses its place."""

UNREAD_MS = 15_000
"""How long an answer may be unread while other fetches wait in the line."""

Answer = Callable[[FetchResponse], None]

Withdraw = Callable[[], None]
"""Gives up a request whose answer is not wanted any more."""


class _Asked(Struct, eq=False):
    """A fetch on its way.

    Attributes:
        request: The request.
        answer: The function that takes the answer.
        unread: The share of the answer; None: its room has no limit of this kind.
        positions: The partitions that it is about; None: those of the request, and none of them is heard of.
        is_of_session: Whether the positions are those of a session, of which only what has moved is looked at.
        touched: The partitions that had news since it was read.
        number: Its number among the fetches that wait; 0: it has not waited.
        until_ms: The time until which it waits.
        is_withdrawn: Whether nobody wants the answer any more.
    """

    request: FetchRequest
    answer: Answer
    unread: UnreadAnswer | None = None
    positions: FetchPositions[FetchPartition] | None = None
    is_of_session: bool = False
    touched: set[ReplicaKey] = field(default_factory=set)
    number: int = 0
    until_ms: int = 0
    is_withdrawn: bool = False

    def hear(self, movements: Movements) -> FetchPositions[FetchPartition]:
        """Returns the positions; from here on the fetch can hear of them."""
        if self.positions is None:
            self.positions = FetchPositions(movements)
            for one in self.request.partitions:
                self.positions.ask((one.topic_id, one.partition_id), one)
        return self.positions

    def leave(self) -> None:
        """Hears of nothing any more."""
        if self.positions is not None:
            self.positions.on_moved = None
            if not self.is_of_session:
                self.positions.clear()
                self.positions = None


class _Reading(Struct, eq=False):
    """A fetch of many partitions that is read in several steps.

    Attributes:
        asked: The fetch.
        request: Its request, within its share.
        fresh: The partitions whose positions have just arrived.
        until_ms: The time until which it may wait.
        left_bytes: The bytes that may still be read.
        slots: The slots that were read, in the order of the partitions.
    """

    asked: _Asked
    request: FetchRequest
    fresh: Collection[ReplicaKey]
    until_ms: int | None
    left_bytes: int
    slots: list[Slot] = field(default_factory=list)


class FetchPath:
    """Fetch requests of this broker.

    Args:
        stepper: What steps the replicas.
        reader: What reads partitions.
        serving: The function that says why this broker may not serve now; None when it may.
        wait_for_image: Has a call made after the next step of an image that is being applied; False: none is.

    Attributes:
        movements: The readers of each partition: streams, sessions, and fetches that wait.
        incremental: The incremental fetches of followers' streams.
        unread: The answers that consumers have not read.
    """

    def __init__(
        self,
        stepper: ReplicaStepper,
        reader: FetchReader,
        serving: Callable[[], str | None],
        wait_for_image: WaitForImage,
    ) -> None:
        self._stepper = stepper
        self._serving = serving
        self._reader = reader
        self._waiting: dict[int, _Asked] = {}
        self._deadlines = Deadlines[int]()
        self.movements = Movements()
        self.incremental = IncrementalFetches(stepper, self._reader, serving, wait_for_image, self.movements)
        self.unread = UnreadAnswers(stepper.config.queued_max_response_bytes, self._serve_line_soon)
        self._line: OrderedDict[int, None] = OrderedDict()  # of those that wait for room
        self._serves_line = False
        self._touched: set[ReplicaKey] = set()
        self._last_number = 0
        self._wait_for_image = wait_for_image
        stepper.fetches = self

    @property
    def waiting_count(self) -> int:
        """Fetches that wait for records; incremental ones are counted by themselves."""
        return len(self._waiting)

    def submit(
        self,
        request: FetchRequest,
        answer: Answer,
        unread: UnreadAnswer | None = None,
        session: FetchPositions[FetchPartition] | None = None,
    ) -> Withdraw:
        """Queues a request; `answer` is called once, on the loop, unless the request is withdrawn before.

        Args:
            request: The request.
            answer: The function that takes the answer.
            unread: The share of the answer, which holds its bytes; None: its room has no limit of this kind.
            session: The positions of the session that it is a fetch of, those of the request among them; one fetch of a session
                is on its way at a time.  Its answer names news only.  None: the answer has all partitions of the request.
        """
        if len(request.partitions) > PARTITIONS_AT_ONCE:
            # To wait for more bytes would mean to look at all partitions again with each append.
            request = replace(request, min_bytes=min(request.min_bytes, 1))
        asked = _Asked(request, answer, unread, session, session is not None)
        self._stepper.driver.submit(lambda: self._fetch(asked))
        return partial(self._withdraw, asked)

    def _withdraw(self, asked: _Asked) -> None:
        asked.is_withdrawn = True
        self._stepper.driver.submit(lambda: self._forget(asked))

    def _forget(self, asked: _Asked) -> None:
        self._line.pop(asked.number, None)
        self._leave(asked)

    def submit_incremental(self, fetch: IncrementalFetch, request: FetchRequest) -> None:
        """Queues a request of a stream that keeps what it asks for."""
        self._stepper.driver.submit(lambda: fetch.submit(request))

    def close_incremental(self, fetch: IncrementalFetch) -> None:
        """Ends the incremental fetch of a stream that has ended."""
        self._stepper.driver.submit(fetch.close)

    def _fetch(self, asked: _Asked) -> None:
        request = asked.request
        reason = self._serving()
        if reason is not None:
            asked.answer(_all_refused(asked, reason))
            return
        replicas = self._stepper.replicas
        keys = [(p.topic_id, p.partition_id) for p in request.partitions]
        if not all(key in replicas for key in keys) and self._wait_for_image(lambda: self._fetch(asked)):
            return
        wait_ms = min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        until_ms = self._stepper.clock.now_ms() + wait_ms if wait_ms > 0 and (keys or asked.is_of_session) else None
        self._read(asked, frozenset(keys), until_ms)

    def _read(
        self, asked: _Asked, fresh: Collection[ReplicaKey], until_ms: int | None, *, has_turn: bool = False
    ) -> None:
        """Reads within the share of the answer.

        Args:
            asked: The request.
            fresh: The partitions whose positions have just arrived.
            until_ms: The time until which it may wait for more; None: it is answered at once.
            has_turn: Whether it has waited in the line: then it is answered with as much as there is room for, even nothing.
        """
        request = _asking(asked)
        if asked.positions is not None and asked.is_of_session:
            asked.touched.clear()
            asked.positions.on_moved = asked.touched.update
        if asked.unread is not None:
            share_bytes = self.unread.share_bytes() if has_turn or not self._line else 0
            if not share_bytes and not has_turn and request.partitions and len(self._waiting) < MAX_WAITING_FETCHES:
                self._enter_line(asked, until_ms)
                return
            request = _within(request, share_bytes)
        if len(request.partitions) > PARTITIONS_AT_ONCE:
            left_bytes = min(request.max_bytes, MAX_RESPONSE_BYTES)
            self._hold(asked, left_bytes)  # so that fetches that are read in between leave it alone
            asked.touched.clear()
            asked.hear(self.movements).on_moved = asked.touched.update
            self._read_on(_Reading(asked, request, fresh, until_ms, left_bytes))
            return
        read_wholly(
            self._reader,
            request,
            fresh,
            lambda slots: self._answer_or_park(asked, request, slots, until_ms),
            partial(self._hold, asked),
        )

    def _read_on(self, reading: _Reading) -> None:
        """Reads the next partitions of a fetch of many; others have their turn in between."""
        request, slots = reading.request, reading.slots
        reason = self._serving()
        if reading.asked.is_withdrawn or reason is not None:
            if reason is not None:
                reading.asked.answer(_all_refused(reading.asked, reason))
            reading.asked.leave()
            return
        partitions = request.partitions[len(slots) : len(slots) + PARTITIONS_AT_ONCE]
        step = replace(request, partitions=partitions, max_bytes=max(0, reading.left_bytes))
        is_first = all(slot.data == b"" for slot in slots)
        found = self._reader.read_warm(step, reading.fresh, is_first=is_first)
        reading.left_bytes -= _size(found) + sum(slot.max_bytes for slot in found if slot.data is None)
        slots += found
        if len(slots) < len(request.partitions):
            self._stepper.driver.submit(partial(self._read_on, reading))
            return
        self._hold(reading.asked, _size(slots) + sum(slot.max_bytes for slot in slots if slot.data is None))
        PendingFetch(
            self._reader,
            request,
            slots,
            lambda slots: self._answer_or_park(reading.asked, request, slots, reading.until_ms),
        ).start()

    def _hold(self, asked: _Asked, size_bytes: int) -> None:
        if asked.unread is not None:
            asked.unread.hold(size_bytes, self._stepper.clock.now_ms())

    def _answer_or_park(
        self, asked: _Asked, request: FetchRequest, slots: Sequence[Slot], until_ms: int | None
    ) -> None:
        """Sends the records that were read, or lets the fetch wait until `until_ms` for more; with None it is sent at once.

        Args:
            asked: The fetch.
            request: Its request, as it was read.
            slots: The slots that were read.
            until_ms: The time until which it may wait.
        """
        if asked.is_withdrawn:
            asked.leave()
            return
        if (
            until_ms is None
            or until_ms <= self._stepper.clock.now_ms()
            or len(self._waiting) >= MAX_WAITING_FETCHES  # an empty answer now is better than an unbounded queue
            or self._is_worth_sending(asked, request, slots)
        ):
            if asked.is_of_session:
                slots = self._news(asked, slots)
            self._hold(asked, _size(slots))
            asked.leave()
            results = tuple(slot.result for slot in slots)
            asked.answer(FetchResponse(request.correlation_id, results, tuple(slot.data or b"" for slot in slots)))
            return
        self._hold(asked, 0)
        if any(self._has_something(asked, key) for key in asked.touched):
            self._read(asked, NOT_FRESH, until_ms)
            return
        asked.hear(self.movements).on_moved = partial(self._look_if_moved, asked)
        self._park(asked, until_ms)

    def _is_worth_sending(self, asked: _Asked, request: FetchRequest, slots: Sequence[Slot]) -> bool:
        """Whether there is enough for an answer before the request's time is over."""
        if not request.offsets_only:
            return is_worth_sending(request, slots)
        told = asked.positions.told if asked.positions is not None else {}
        return any(told.get(_key(slot)) != state_of(slot.result) for slot in slots)

    def _has_something(self, asked: _Asked, key: ReplicaKey) -> bool:
        """Whether there may be something to tell of a partition that has moved."""
        positions = asked.positions
        if positions is None or (position := positions.asked.get(key)) is None:
            return False
        if asked.request.offsets_only:
            return positions.told.get(key) != state_of(self._reader.offsets(position))
        return self._reader.has_something(asked.request, position)

    def _news(self, asked: _Asked, slots: Sequence[Slot]) -> list[Slot]:
        """Returns the slots that a session is told, and notes it.

        A partition is looked at again, even if it does not move, as long as it has more than is told, or is refused.
        """
        positions, news = asked.positions, []
        for slot in slots:
            key = _key(slot)
            if positions is None or (position := positions.asked.get(key)) is None:
                continue  # the session has ended meanwhile
            if asked.request.offsets_only:
                must_tell, goes_on = False, slot.result.error is not ErrorCode.NONE
            else:
                must_tell = bool(slot.data) or slot.is_news
                result, is_committed = slot.result, asked.request.read_committed
                end_offset = result.last_stable_offset if is_committed else result.high_watermark
                goes_on = must_tell or end_offset > position.fetch_offset  # there was no room
            goes_on = goes_on or key in asked.touched
            if positions.tell(key, state_of(slot.result), goes_on=goes_on, has_records=bool(slot.data)) or must_tell:
                news.append(slot)
        return news

    def _park(self, asked: _Asked, until_ms: int) -> None:
        self._last_number += 1
        asked.number, asked.until_ms = self._last_number, until_ms
        self._waiting[asked.number] = asked
        self._deadlines.add(asked.number, until_ms)

    def _leave(self, asked: _Asked) -> None:
        """Lets a fetch wait no longer; does nothing if it does not wait."""
        if self._waiting.pop(asked.number, None) is not None:
            self._deadlines.discard(asked.number)
            asked.leave()

    # ---- the line for room ----------------------------------------------------------------------------------------------

    def _enter_line(self, asked: _Asked, until_ms: int | None) -> None:
        """Lets a fetch wait for room.  News of its partitions do not wake it."""
        least_ms = self._stepper.clock.now_ms() + ROOM_WAIT_MS
        asked.leave()
        self._park(asked, least_ms if until_ms is None else max(until_ms, least_ms))
        self._line[asked.number] = None

    def _serve_line_soon(self) -> None:
        if self._line and not self._serves_line:
            self._serves_line = True
            self._stepper.driver.submit(self._serve_line)

    def _serve_line(self) -> None:
        """Reads for the waiting fetches that have room now, in order."""
        self._serves_line = False
        while self._line and self.unread.share_bytes():
            asked = self._waiting[self._line.popitem(last=False)[0]]
            self._leave(asked)
            self._answer(asked, asked.until_ms, has_turn=True)

    # ---- waiting ------------------------------------------------------------------------------------------------------

    def progressed(self, key: ReplicaKey) -> None:
        """Notes that a replica has news for the fetches that wait for it."""
        self._touched.add(key)

    def answer_progressed(self) -> None:
        """Looks again at the fetches whose partitions moved in the drain that just ended."""
        if not self._touched:
            return
        touched = tuple(self._touched)
        self._touched.clear()
        self.movements.tell(touched)

    def _look_if_moved(self, asked: _Asked, keys: Sequence[ReplicaKey]) -> None:
        """Answers a fetch that waits, if there is enough now."""
        if any(self._has_something(asked, key) for key in keys) and self._reader.has_enough(_asking(asked)):
            self._leave(asked)
            self._answer(asked)

    def next_deadline_ms(self) -> int | None:
        deadlines_ms = (self._deadlines.next_deadline_ms(), self.incremental.next_deadline_ms())
        return min((deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None), default=None)

    def expire(self) -> None:
        now_ms = self._stepper.clock.now_ms()
        expired = self._deadlines.pop_expired(now_ms)
        if any(number in self._line for number in expired):
            self.unread.end_oldest(now_ms, UNREAD_MS)
        for number in expired:
            asked = self._waiting.pop(number)
            self._line.pop(number, None)
            asked.leave()
            self._answer(asked, has_turn=True)
        self.incremental.expire()

    def _answer(self, asked: _Asked, until_ms: int | None = None, *, has_turn: bool = False) -> None:
        reason = self._serving()  # the lease may have expired while it was parked
        if reason is not None:
            asked.answer(_all_refused(asked, reason))
            return
        self._read(asked, NOT_FRESH, until_ms, has_turn=has_turn)


def _asking(asked: _Asked) -> FetchRequest:
    """Returns a fetch with the partitions to look at."""
    if asked.positions is None or not asked.is_of_session:
        return asked.request
    return replace(asked.request, partitions=asked.positions.to_look_at())


def _within(request: FetchRequest, share_bytes: int) -> FetchRequest:
    """Returns the request with its byte limits within its share."""
    if share_bytes >= min(request.max_bytes, MAX_RESPONSE_BYTES):
        return request
    return replace(request, max_bytes=share_bytes, min_bytes=min(request.min_bytes, share_bytes))


def _size(slots: Sequence[Slot]) -> int:
    return sum(len(slot.data or b"") for slot in slots)


def _key(slot: Slot) -> ReplicaKey:
    return slot.result.topic_id, slot.result.partition_id


def _all_refused(asked: _Asked, reason: str) -> FetchResponse:
    refusal = Refusal(ErrorCode.BROKER_NOT_AVAILABLE, reason)
    partitions = asked.request.partitions
    if asked.is_of_session and asked.positions is not None:
        partitions = tuple(asked.positions.asked.values())
    results = tuple(refused_fetch(partition, refusal) for partition in partitions)
    return FetchResponse(asked.request.correlation_id, results, (b"",) * len(results))
