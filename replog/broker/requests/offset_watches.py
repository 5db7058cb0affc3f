"""Watches of offsets: a client is told when high watermarks and log starts of partitions change, instead of asking again.

A watch has no queue: it keeps what it has told of each partition, and which of them moved since.  Even for a slow reader the next
update has the newest state, once for each partition.  Many changes cost one update, at most one in `TELL_INTERVAL_S`, and a
watch that is not read costs nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace

from replog.broker.replicas.replica import ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_reader import FetchReader
from replog.broker.requests.refusals import Refusal
from replog.errors import BrokerNotAvailableError, ErrorCode, InvalidRequestError, ThrottledError
from replog.rpc.messages import OffsetsUpdate, PolledOffsets, PollOffsets, WatchedOffsets, WatchedPartition
from replog.rpc.request_limits import check_partitions

WATCHES_MAX: Final = 1_000
WATCHED_PARTITIONS_MAX: Final = 200_000
"""The most partitions of all watches of this broker; one request names at most `request_limits.MAX_PARTITIONS`."""

TELL_INTERVAL_S: Final = 0.02
"""The least time between two updates that follow one another because something moved."""

EXPIRES_S: Final = 5.0
"""After how long without a poll a watch is forgotten: its client has gone, or begins anew."""

HEARTBEAT_S: Final = 1.0
"""How often an update comes even if there is no news, as of a log that grows uncommitted.  It says that this broker still serves,
and that all that was told holds."""

UPDATE_PARTITIONS: Final = 250
"""The most partitions of one update: some milliseconds of encoding."""


class OffsetWatches:
    """The watches of this broker.

    Args:
        stepper: The stepper of this broker's replicas.
        reader: The reader that says whether this broker answers for a partition.
        serving: The function that says why this broker may not serve now; None when it may.
    """

    def __init__(self, stepper: ReplicaStepper, reader: FetchReader, serving: Callable[[], str | None]) -> None:
        self._stepper = stepper
        self._reader = reader
        self._serving = serving
        self._watches: dict[int, OffsetWatch] = {}
        self._ids = itertools.count(1)
        self._by_key: dict[ReplicaKey, set[OffsetWatch]] = {}
        self._watched_count = 0

    def __len__(self) -> int:
        return len(self._watches)

    async def poll(self, request: PollOffsets) -> PolledOffsets:
        """Returns the next update of a watch: its state at first, then what changes, at least every `HEARTBEAT_S`.

        A watch that is not polled for `EXPIRES_S` is forgotten, and so is one that is over or refused.

        Raises:
            BrokerNotAvailableError: This broker may not serve now.
            ThrottledError: There are as many watches as there may be.
            InvalidRequestError: There is no such watch (any more); a new one begins with its state.
        """
        watch_id, watch = await self._watch(request)
        try:
            update = await self._next(watch)
        except BaseException:
            self._remove(watch_id)
            raise
        watch.polled_s = asyncio.get_running_loop().time()
        watch.is_polled = False
        if watch.is_over:
            self._remove(watch_id)
        return PolledOffsets(watch_id, update, watch.is_over)

    async def _watch(self, request: PollOffsets) -> tuple[int, OffsetWatch]:
        """Returns the watch that is polled, and its id."""
        if not request.watch_id:
            check_partitions(len(request.partitions))
            watch, watch_id = OffsetWatch(request.partitions), next(self._ids)
            watch.is_polled = True
            await self._stepper.driver.call(lambda: self._add(watch_id, watch))
            return watch_id, watch
        found = self._watches.get(request.watch_id)
        if found is None or found.is_polled:
            raise InvalidRequestError(f"there is no watch {request.watch_id} that waits to be polled; begin a new one")
        found.is_polled = True
        return request.watch_id, found

    async def _next(self, watch: OffsetWatch) -> OffsetsUpdate:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + HEARTBEAT_S
        while True:
            if not watch.has_news:
                await watch.wait(due_s - loop.time())
            await asyncio.sleep(max(0.0, watch.told_s + TELL_INTERVAL_S - loop.time()))
            watch.told_s = loop.time()
            update = await self._stepper.driver.call(partial(self._take, watch, is_due=watch.told_s >= due_s))
            if update is not None:
                return update

    def wake(self, keys: Iterable[ReplicaKey]) -> None:
        """Notes that replicas have news; it must run on the driver."""
        if not self._by_key:
            return
        for key in keys:
            for watch in self._by_key.get(key, ()):
                watch.note(key)

    # ---- on the driver -------------------------------------------------------------------------------------------------

    def _add(self, watch_id: int, watch: OffsetWatch) -> None:
        self._forget_expired()
        count = len(watch.asked)
        if len(self._watches) >= WATCHES_MAX or self._watched_count + count > WATCHED_PARTITIONS_MAX:
            raise ThrottledError(
                f"{len(self._watches):,} watches of {self._watched_count:,} partitions are open, {WATCHES_MAX:,} of "
                f"{WATCHED_PARTITIONS_MAX:,} may be: ask for the offsets instead"
            )
        self._watches[watch_id] = watch
        self._watched_count += count
        for key in watch.asked:
            self._by_key.setdefault(key, set()).add(watch)

    def _forget_expired(self) -> None:
        before_s = asyncio.get_running_loop().time() - EXPIRES_S
        for watch_id in [i for i, each in self._watches.items() if not each.is_polled and each.polled_s < before_s]:
            self._remove(watch_id)

    def _remove(self, watch_id: int) -> None:
        watch = self._watches.pop(watch_id, None)
        if watch is None:
            return
        self._watched_count -= len(watch.asked)
        for key in watch.asked:
            others = self._by_key[key]
            others.discard(watch)
            if not others:
                del self._by_key[key]

    def _take(self, watch: OffsetWatch, *, is_due: bool) -> OffsetsUpdate | None:
        """Returns the update to tell now; None: there is no news, and no update is due."""
        refused = self._serving()
        if refused is not None:
            raise BrokerNotAvailableError(refused)
        states = tuple(
            state
            for key in watch.take(UPDATE_PARTITIONS)
            if _is_news(state := self._state(watch.asked[key]), watch.told.get(key))
        )
        for state in states:
            watch.told[state.topic_id, state.partition_id] = state
        watch.is_over = not watch.has_news and all(_is_elsewhere(state) for state in watch.told.values())
        return OffsetsUpdate(states) if states or is_due or watch.is_over else None

    def _state(self, partition: WatchedPartition) -> WatchedOffsets:
        led = self._reader.leader_for(partition)
        if isinstance(led, Refusal):
            return WatchedOffsets(
                partition.topic_id, partition.partition_id, led.error, led.message,
                leader_epoch=led.leader_epoch, leader_id=led.leader_id,
            )  # fmt: skip
        replica, leader = led
        is_known = leader.latest_offset_available()
        return WatchedOffsets(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE if is_known else ErrorCode.OFFSET_NOT_AVAILABLE,
            high_watermark=leader.high_watermark if is_known else -1,
            log_start_offset=replica.log.log_start_offset,
            leader_epoch=leader.leader_epoch,
            leader_id=self._stepper.config.node_id,
            size_bytes=replica.log.size_bytes,
        )


class OffsetWatch:
    """One watch: its partitions, the states that were told, and the partitions that moved since.

    Attributes:
        asked: The partitions by key, as the client named them.
        told: The states that were told last.
        is_over: Whether there is nothing more to tell.
        is_polled: Whether its next update is being waited for.
        polled_s: The loop's time when the last update was told.
        told_s: The loop's time when its state was looked at last.
    """

    def __init__(self, partitions: Iterable[WatchedPartition]) -> None:
        self.asked = {(each.topic_id, each.partition_id): each for each in partitions}
        self.told: dict[ReplicaKey, WatchedOffsets] = {}
        self.is_over = False
        self.is_polled = False
        self.polled_s = self.told_s = -math.inf
        self._moved = dict.fromkeys(self.asked)
        self._news = asyncio.Event()

    @property
    def has_news(self) -> bool:
        """Whether something has moved that has not been taken."""
        return bool(self._moved)

    def note(self, key: ReplicaKey) -> None:
        """Notes that a partition has moved."""
        self._moved[key] = None
        self._news.set()

    def take(self, count_max: int) -> list[ReplicaKey]:
        """Returns partitions that have moved, and those that were refused before: they may have changed without a move."""
        taken = list(islice(self._moved, count_max)) or [key for key, state in self.told.items() if state.error]
        for key in taken:
            self._moved.pop(key, None)
        return taken

    async def wait(self, timeout_s: float) -> None:
        """Returns when something has moved, or after `timeout_s`."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()


def _is_news(state: WatchedOffsets, told: WatchedOffsets | None) -> bool:
    """Whether more than the log's size has changed: a log grows before the new records are committed."""
    return told is None or replace(state, size_bytes=told.size_bytes) != told


def _is_elsewhere(state: WatchedOffsets) -> bool:
    """Whether this broker does not answer for the partition.  A new leader that waits for its followers does."""
    return state.error not in {ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE}
