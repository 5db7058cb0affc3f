"""Incremental fetches: a stream's requests name changes, and its answers have news (the idea of KIP-227).

The stream is the session: both sides forget it when it ends, and messages arrive in order, so it needs neither id nor epoch.
Its cost grows with the number of changes, not with the number of partitions that are followed.

A *position* is the follower's place in one partition, as it said last.  It stands until it is answered with something that
moves the follower: records, a divergence, an error.  Other news (a high watermark, a log start) leave the position where it
is.  One request of the follower waits at a time.  If another one comes meanwhile, its positions are added, and one answer, to
the later of the two, serves both.  So an answer covers every position up to the request that it names, and no later one.

Partitions are looked at in the order in which they moved.  One that did not fit into an answer stays in front, so a
busy partition does not hold up the others.  Nor does one whose records must come from the disk: its turn is when they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from replog.broker.replicas.image_queue import WaitForImage
from replog.broker.replicas.replica import ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_reader import (
    FETCH_WAIT_MAX_MS,
    MAX_RESPONSE_BYTES,
    FetchReader,
    Slot,
    is_worth_sending,
    refused_fetch,
    state_of,
)
from replog.broker.requests.refusals import Refusal
from replog.errors import ErrorCode
from replog.replication.fetch_positions import FetchPositions, Movements
from replog.rpc.messages import FetchPartition, FetchRequest, FetchResponse
from replog.waiting.deadlines import Deadlines

Answer: TypeAlias = Callable[[FetchResponse], None]

LOOKED_TOGETHER: Final = 500
"""Partitions that are looked at in one step, some 10 ms; thousands move at once when their leaders do."""


class _Found(Struct, frozen=True):
    """Records that the disk has brought for a position, of the slot that asked for them."""

    position: FetchPartition
    slot: Slot
    data: bytes


class IncrementalFetch:
    """The positions of one stream, and what it has not been told yet.  Everything runs on the replica driver.

    Args:
        owner: The incremental fetches of all streams.
        fetch_id: The number of this one.
        answer: The function that takes an answer, on the loop.
        merged: The function that is called when one answer will serve two requests.
    """

    def __init__(self, owner: IncrementalFetches, fetch_id: int, answer: Answer, merged: Callable[[], None]) -> None:
        self._owner = owner
        self._fetch_id = fetch_id
        self._answer = answer
        self._merged = merged
        self._request: FetchRequest | None = None  # the newest that is not answered; its partitions are not used
        self._until_ms = 0
        self._positions: FetchPositions[FetchPartition] = FetchPositions(owner.movements)
        self._positions.on_moved = self._look_if_moved
        self._looked_at: set[ReplicaKey] = set()  # moved, and looked at since, but nothing to answer for
        self._has_more = False  # to tell than the last answer had
        self._fresh: set[ReplicaKey] = set()
        self._postponed: set[ReplicaKey] = set()
        self._cold: dict[ReplicaKey, int] = {}  # being read from the disk -> so many bytes at most
        self._found: dict[ReplicaKey, _Found] = {}  # read from the disk and not told
        self._queued: set[ReplicaKey] = set()  # to be read from the disk when others have been

    def submit(self, request: FetchRequest) -> None:
        """Takes in a request, and answers if there is something to tell."""
        for forgotten in request.forgotten:
            self._forget((forgotten.topic_id, forgotten.partition_id))
        for partition in request.partitions:
            key = (partition.topic_id, partition.partition_id)
            self._positions.ask(key, partition)
            self._positions.told.pop(key, None)
            self._queued.discard(key)
            self._fresh.add(key)
            self._looked_at.discard(key)
        until_ms = self._owner.now_ms() + min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        if self._has_more:
            until_ms = self._owner.now_ms()
        if self._request is not None:
            until_ms = min(until_ms, self._until_ms)
            self._merged()
        self._until_ms = until_ms
        self._request = request
        self._owner.set_deadline(self._fetch_id, self._until_ms)
        self.look()

    def _look_if_moved(self, keys: Sequence[ReplicaKey]) -> None:
        """Reads if there may be something to tell of partitions that have moved."""
        self._looked_at.difference_update(keys)
        request = self._request
        if request is not None and any(
            self._owner.reader.has_something(request, self._positions.asked[key])
            for key in keys
            if not self._has_turn_later(key)
        ):
            self.look()

    def look(self) -> None:
        """Reads the partitions to look at, some in each step; answers if there is enough to tell, or the time is over."""
        request = self._request
        if request is None:
            return
        refused = self._owner.serving()
        if refused is not None:
            self._refuse(request, refused)
            return
        self._postpone_unknown()
        self._drop_useless()
        found = list(self._found.values())
        found_bytes = sum(len(one.data) for one in found)
        cold_bytes = request.max_bytes - found_bytes - sum(self._cold.values())
        if cold_bytes > 0:
            self._looked_at -= self._queued
            self._queued.clear()
        readable = self._readable()
        unread_count = sum(key not in self._looked_at for key in readable)
        asked = self._asked(request, readable, found_bytes)
        keys = {(position.topic_id, position.partition_id) for position in asked.partitions}
        fresh = self._fresh & keys
        self._fresh -= keys
        slots = self._owner.reader.read_warm(asked, fresh, cold_bytes=cold_bytes, is_first=not found)
        is_worth = is_worth_sending(asked, [*(one.slot._replace(data=one.data) for one in found), *slots])
        if is_worth or self._until_ms <= self._owner.now_ms():
            self._found.clear()
            from_disk = [self._owner.reader.checked(request, one.position, one.slot, one.data) for one in found]
            news = [slot for slot in (*from_disk, *slots) if self._is_new(asked, slot)]
            self._has_more = not is_worth and len(readable) > LOOKED_TOGETHER
            self._send(request, news)
        else:
            self._looked_at |= keys
            if unread_count > LOOKED_TOGETHER:
                self._owner.look_later(self.look)
        self._read_cold(asked, [read for read in zip(asked.partitions, slots, strict=True) if read[1].data is None])

    def close(self) -> None:
        """Forgets all positions: the stream has ended."""
        self._request = None
        self._forget_all()
        self._owner.ended(self._fetch_id)

    def _postpone_unknown(self) -> None:
        """Postpones replicas that the next image may create until after it; the others do not wait for it."""
        unknown = {key for key in self._fresh if not self._owner.is_known(key) and key not in self._postponed}
        if unknown and self._owner.wait_for_image(self._image_applied):
            self._postponed |= unknown

    def _image_applied(self) -> None:
        self._postponed.clear()
        self.look()

    def _readable(self) -> list[ReplicaKey]:
        """Returns the partitions that have moved, but for those that wait for an image, or for the disk and tell no progress."""
        return [
            key
            for key in self._positions.moved
            if key not in self._postponed and (key in self._fresh or not self._has_turn_later(key))
        ]

    def _asked(self, request: FetchRequest, keys: Sequence[ReplicaKey], found_bytes: int) -> FetchRequest:
        """Returns the request with the positions to look at, within what is left of an answer."""
        if len(keys) > LOOKED_TOGETHER:  # those first for which there may be something to answer
            keys = sorted(keys, key=self._looked_at.__contains__)[:LOOKED_TOGETHER]
        partitions: list[FetchPartition] = []
        for key in keys:
            position = self._positions.asked[key]
            # one that waits for the disk tells progress, which must not wait
            partitions.append(replace(position, max_bytes=0) if self._has_turn_later(key) else position)
        max_bytes = max(0, min(request.max_bytes, MAX_RESPONSE_BYTES) - found_bytes)
        return replace(request, partitions=tuple(partitions), max_bytes=max_bytes)

    def _has_turn_later(self, key: ReplicaKey) -> bool:
        """Whether a partition's records are on the way from the disk, or will be, or wait to be told."""
        return key in self._cold or key in self._found or key in self._queued

    def _read_cold(self, asked: FetchRequest, reads: Sequence[tuple[FetchPartition, Slot]]) -> None:
        """Starts to read partitions from the disk; each is told when its records are there, which may be at once.

        A partition without room is not looked at again until there is room.
        """
        self._queued.update(
            (position.topic_id, position.partition_id) for position, slot in reads if not slot.max_bytes
        )
        begun = [read for read in reads if read[1].max_bytes]
        self._cold.update({(position.topic_id, position.partition_id): slot.max_bytes for position, slot in begun})
        for position, slot in begun:
            self._owner.reader.read_cold(asked, position, slot, partial(self._take_cold, position, slot))

    def _take_cold(self, position: FetchPartition, slot: Slot, data: bytes | None) -> None:
        key = (position.topic_id, position.partition_id)
        self._cold.pop(key, None)
        self._looked_at.discard(key)
        if data:
            self._found[key] = _Found(position, slot, data)
        if data != b"":  # else the disk has too much to do: it is asked again when the request's time is over
            self.look()

    def _drop_useless(self) -> None:
        """Drops records of positions that the follower has left while the disk was read or the records waited."""
        for key, found in list(self._found.items()):
            stands = self._positions.asked.get(key)
            if stands is None or _place(stands) != _place(found.position):
                del self._found[key]

    def _is_new(self, asked: FetchRequest, slot: Slot) -> bool:
        """Whether the slot has news for its position; notes what is told."""
        result = slot.result
        key = (result.topic_id, result.partition_id)
        position = self._positions.asked.get(key)
        if position is None or slot.data is None:
            return False  # told already, or read from the disk from now on
        if slot.data or slot.is_news:
            self._forget(key)
            return True
        if self._owner.reader.has_something(asked, position):
            return False  # there was no room for it: next time
        return self._positions.tell(key, state_of(result), goes_on=False)

    def _send(self, request: FetchRequest, slots: Sequence[Slot]) -> None:
        self._request = None
        self._owner.clear_deadline(self._fetch_id)
        results = tuple(slot.result for slot in slots)
        self._answer(FetchResponse(request.correlation_id, results, tuple(slot.data or b"" for slot in slots)))

    def _refuse(self, request: FetchRequest, reason: str) -> None:
        refusal = Refusal(ErrorCode.BROKER_NOT_AVAILABLE, reason)
        slots = [
            Slot(refused_fetch(position, refusal), b"", 0, min_one_batch=False)
            for position in self._positions.asked.values()
        ]
        self._forget_all()
        self._send(request, slots)

    def _forget_all(self) -> None:
        for key in list(self._positions.asked):
            self._forget(key)

    def _forget(self, key: ReplicaKey) -> None:
        self._positions.forget(key)
        self._looked_at.discard(key)
        self._found.pop(key, None)
        self._queued.discard(key)
        self._fresh.discard(key)


def _place(position: FetchPartition) -> tuple[int, int, int]:
    """Returns the parts of a position that a read depends on."""
    return position.fetch_offset, position.last_fetched_epoch, position.leader_epoch


class IncrementalFetches:
    """The incremental fetches of all streams.

    Args:
        stepper: The stepper of this broker's replicas.
        reader: The reader of their records.
        serving: The function that says why this broker may not serve now; None when it may.
        wait_for_image: Has a call made after the next step of an image that is being applied; False: none is.
        movements: The readers of all partitions.
    """

    def __init__(
        self,
        stepper: ReplicaStepper,
        reader: FetchReader,
        serving: Callable[[], str | None],
        wait_for_image: WaitForImage,
        movements: Movements,
    ) -> None:
        self.reader = reader
        self.serving = serving
        self.wait_for_image = wait_for_image
        self.movements = movements
        self._stepper = stepper
        self._fetches: dict[int, IncrementalFetch] = {}
        self._deadlines = Deadlines[int]()
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._fetches)

    @property
    def waiting_count(self) -> int:
        """Streams whose request has not been answered."""
        return len(self._deadlines)

    def open(self, answer: Answer, merged: Callable[[], None]) -> IncrementalFetch:
        """Opens an incremental fetch for a new stream; `close` it with the stream.

        Args:
            answer: The function that takes an answer, on the loop.
            merged: The function that is called when one answer will serve two requests.
        """
        self._last_id += 1
        fetch = self._fetches[self._last_id] = IncrementalFetch(self, self._last_id, answer, merged)
        return fetch

    def next_deadline_ms(self) -> int | None:
        """Returns when a request has waited long enough; None when none waits."""
        return self._deadlines.next_deadline_ms()

    def expire(self) -> None:
        """Sends the answers of requests that have waited long enough."""
        for fetch_id in self._deadlines.pop_expired(self.now_ms()):
            self._fetches[fetch_id].look()

    # ---- for the fetches themselves ---------------------------------------------------------------------------------------

    def look_later(self, look: Callable[[], None]) -> None:
        """Queues a look of a fetch at more partitions behind the other work of the driver."""
        self._stepper.driver.submit(look)

    def now_ms(self) -> int:
        return self._stepper.clock.now_ms()

    def is_known(self, key: ReplicaKey) -> bool:
        return key in self._stepper.replicas

    def set_deadline(self, fetch_id: int, deadline_ms: int) -> None:
        self._deadlines.discard(fetch_id)
        self._deadlines.add(fetch_id, deadline_ms)

    def clear_deadline(self, fetch_id: int) -> None:
        self._deadlines.discard(fetch_id)

    def ended(self, fetch_id: int) -> None:
        self._deadlines.discard(fetch_id)
        self._fetches.pop(fetch_id, None)
