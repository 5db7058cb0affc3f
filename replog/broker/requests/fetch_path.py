"""The leader's side of a fetch: read, or wait until there is something to read.

Runs on the replica driver.  A fetch that finds less than it asked for waits in the purgatory; appends and high
watermarks of the same drain wake it once, after the drain, so that one answer carries everything that arrived
together.  A follower's stream keeps what it has asked for (`incremental_fetch`).  A consumer's fetch stands for itself.  It is
read within its share of the memory for answers (`replog.waiting.unread_answers`), and waits in a line while there is none.
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
)
from replog.broker.requests.incremental_fetch import IncrementalFetch, IncrementalFetches
from replog.broker.requests.offset_watches import OffsetWatches
from replog.broker.requests.pending_fetch import PendingFetch, read_wholly
from replog.broker.requests.refusals import Refusal
from replog.errors import ErrorCode
from replog.replication.purgatory import Purgatory
from replog.rpc.messages import FetchRequest, FetchResponse
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
    """A request on its way.  `operation_id` is its id in the purgatory, 0 before.  Without `unread` it has no share."""

    request: FetchRequest
    answer: Answer
    unread: UnreadAnswer | None = None
    operation_id: int = 0
    is_withdrawn: bool = False


class _Reading(Struct, eq=False):
    """A fetch of many partitions that is read in several steps.

    Attributes:
        asked: The fetch.
        request: Its request, within its share.
        fresh: The partitions whose positions have just arrived.
        until_ms: The time until which it may wait.
        left_bytes: The bytes that may still be read.
        slots: The slots that were read, in the order of the partitions.
        touched: The partitions that had news meanwhile.
    """

    asked: _Asked
    request: FetchRequest
    fresh: Collection[ReplicaKey]
    until_ms: int | None
    left_bytes: int
    slots: list[Slot] = field(default_factory=list)
    touched: set[ReplicaKey] = field(default_factory=set)


class FetchPath:
    """Fetch requests of this broker.

    Args:
        stepper: What steps the replicas.
        reader: What reads partitions.
        serving: The function that says why this broker may not serve now; None when it may.
        wait_for_image: Has a call made after the next step of an image that is being applied; False: none is.

    Attributes:
        incremental: The incremental fetches of followers' streams.
        watches: The watches of high watermarks and log starts.
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
        self._purgatory: Purgatory[_Asked] = Purgatory(operations_max=MAX_WAITING_FETCHES)
        self.incremental = IncrementalFetches(stepper, self._reader, serving, wait_for_image)
        self.watches = OffsetWatches(stepper, self._reader, serving)
        self.unread = UnreadAnswers(stepper.config.queued_max_response_bytes, self._serve_line_soon)
        self._line: OrderedDict[int, None] = OrderedDict()  # of operations that wait for room
        self._serves_line = False
        self._touched: set[ReplicaKey] = set()
        self._readings: set[_Reading] = set()
        self._next_id = 0
        self._wait_for_image = wait_for_image
        stepper.fetches = self

    @property
    def waiting_count(self) -> int:
        """Fetches that wait for records; incremental ones are counted by themselves."""
        return len(self._purgatory)

    def submit(self, request: FetchRequest, answer: Answer, unread: UnreadAnswer | None = None) -> Withdraw:
        """Queues a request; `answer` is called once, on the loop, unless the request is withdrawn before.

        Args:
            request: The request.
            answer: The function that takes the answer.
            unread: The share of the answer, which holds its bytes; None: its room has no limit of this kind.
        """
        if len(request.partitions) > PARTITIONS_AT_ONCE:
            # To wait for more bytes would mean to look at all partitions again with each append.
            request = replace(request, min_bytes=min(request.min_bytes, 1))
        asked = _Asked(request, answer, unread)
        self._stepper.driver.submit(lambda: self._fetch(asked))
        return partial(self._withdraw, asked)

    def _withdraw(self, asked: _Asked) -> None:
        asked.is_withdrawn = True
        self._stepper.driver.submit(lambda: self._forget(asked))

    def _forget(self, asked: _Asked) -> None:
        self._purgatory.complete(asked.operation_id)
        self._line.pop(asked.operation_id, None)

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
            asked.answer(_all_refused(request, reason))
            return
        replicas = self._stepper.replicas
        keys = [(p.topic_id, p.partition_id) for p in request.partitions]
        if not all(key in replicas for key in keys) and self._wait_for_image(lambda: self._fetch(asked)):
            return
        wait_ms = min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        until_ms = self._stepper.clock.now_ms() + wait_ms if wait_ms > 0 and request.partitions else None
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
        request = asked.request
        if asked.unread is not None:
            share_bytes = self.unread.share_bytes() if has_turn or not self._line else 0
            if not share_bytes and not has_turn and request.partitions and len(self._purgatory) < MAX_WAITING_FETCHES:
                self._enter_line(asked, until_ms)
                return
            request = _within(request, share_bytes)
        if len(request.partitions) > PARTITIONS_AT_ONCE:
            left_bytes = min(request.max_bytes, MAX_RESPONSE_BYTES)
            self._hold(asked, left_bytes)  # so that fetches that are read in between leave it alone
            reading = _Reading(asked, request, fresh, until_ms, left_bytes)
            self._readings.add(reading)
            self._read_on(reading)
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
            self._readings.discard(reading)
            if reason is not None:
                reading.asked.answer(_all_refused(request, reason))
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
        PendingFetch(self._reader, request, slots, partial(self._has_read, reading)).start()

    def _has_read(self, reading: _Reading, slots: Sequence[Slot]) -> None:
        """Answers or parks a fetch of many partitions, unless one of them had news while others were read."""
        self._readings.discard(reading)
        request, until_ms = reading.request, reading.until_ms
        touched = (one for one in request.partitions if (one.topic_id, one.partition_id) in reading.touched)
        if (
            until_ms is not None
            and not is_worth_sending(request, slots)
            and any(self._reader.has_something(request, one) for one in touched)
        ):
            self._hold(reading.asked, 0)
            self._read(reading.asked, NOT_FRESH, until_ms)
            return
        self._answer_or_park(reading.asked, request, slots, until_ms)

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
            return
        if (
            until_ms is None
            or is_worth_sending(request, slots)
            or until_ms <= self._stepper.clock.now_ms()
            or len(self._purgatory) >= MAX_WAITING_FETCHES  # an empty answer now is better than an unbounded queue
        ):
            results = tuple(slot.result for slot in slots)
            self._hold(asked, _size(slots))
            asked.answer(FetchResponse(request.correlation_id, results, tuple(slot.data or b"" for slot in slots)))
            return
        self._hold(asked, 0)
        self._park(asked, [(p.topic_id, p.partition_id) for p in request.partitions], until_ms)

    def _park(self, asked: _Asked, keys: Sequence[ReplicaKey], until_ms: int) -> None:
        self._next_id += 1
        asked.operation_id = self._next_id
        self._purgatory.add(asked.operation_id, keys, until_ms, asked)

    # ---- the line for room ----------------------------------------------------------------------------------------------

    def _enter_line(self, asked: _Asked, until_ms: int | None) -> None:
        """Lets a fetch wait for room.  News of its partitions do not wake it."""
        least_ms = self._stepper.clock.now_ms() + ROOM_WAIT_MS
        self._park(asked, (), least_ms if until_ms is None else max(until_ms, least_ms))
        self._line[asked.operation_id] = None

    def _serve_line_soon(self) -> None:
        if self._line and not self._serves_line:
            self._serves_line = True
            self._stepper.driver.submit(self._serve_line)

    def _serve_line(self) -> None:
        """Reads for the waiting fetches that have room now, in order."""
        self._serves_line = False
        while self._line and self.unread.share_bytes():
            operation_id, _ = self._line.popitem(last=False)
            waiting = self._purgatory.complete(operation_id)
            if waiting is not None:
                self._answer(waiting.payload, waiting.deadline_ms, has_turn=True)

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
        for reading in self._readings:
            reading.touched.update(touched)
        for key in touched:
            for waiting in self._purgatory.check(key):
                if self._reader.would_answer(waiting.payload.request):
                    self._complete(waiting.operation_id)
        self.incremental.wake(touched)
        self.watches.wake(touched)

    def next_deadline_ms(self) -> int | None:
        deadlines_ms = (self._purgatory.next_deadline_ms(), self.incremental.next_deadline_ms())
        return min((deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None), default=None)

    def expire(self) -> None:
        now_ms = self._stepper.clock.now_ms()
        expired = self._purgatory.expire(now_ms)
        in_vain = [waiting for waiting in expired if waiting.operation_id in self._line]
        if in_vain:
            self.unread.end_oldest(now_ms, UNREAD_MS)
        for waiting in expired:
            self._line.pop(waiting.operation_id, None)
            self._answer(waiting.payload, has_turn=True)
        self.incremental.expire()

    def _complete(self, operation_id: int) -> None:
        waiting = self._purgatory.complete(operation_id)
        if waiting is not None:
            self._answer(waiting.payload)

    def _answer(self, asked: _Asked, until_ms: int | None = None, *, has_turn: bool = False) -> None:
        reason = self._serving()  # the lease may have expired while it was parked
        if reason is not None:
            asked.answer(_all_refused(asked.request, reason))
            return
        self._read(asked, NOT_FRESH, until_ms, has_turn=has_turn)


def _within(request: FetchRequest, share_bytes: int) -> FetchRequest:
    """Returns the request with its byte limits within its share."""
    if share_bytes >= min(request.max_bytes, MAX_RESPONSE_BYTES):
        return request
    return replace(request, max_bytes=share_bytes, min_bytes=min(request.min_bytes, share_bytes))


def _size(slots: Sequence[Slot]) -> int:
    return sum(len(slot.data or b"") for slot in slots)


def _all_refused(request: FetchRequest, reason: str) -> FetchResponse:
    refusal = Refusal(ErrorCode.BROKER_NOT_AVAILABLE, reason)
    results = tuple(refused_fetch(partition, refusal) for partition in request.partitions)
    return FetchResponse(request.correlation_id, results, (b"",) * len(results))
