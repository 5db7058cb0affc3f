"""What a consumer reads: its partitions, what is fetched ahead of them, and what stops one of them until somebody decides."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Literal
from uuid import UUID

from replog.client.cluster.view import ClusterView
from replog.client.consumer.backlog import Backlog
from replog.client.consumer.epoch_spans import NO_EPOCH
from replog.client.consumer.fetch_state import FetchedChunk, PartitionFetch
from replog.client.consumer.fetcher import FetchSettings
from replog.client.consumer.fetcher_pool import FetcherPool
from replog.client.consumer.start import offsets_at
from replog.client.typed_records import RecordDecoder
from replog.client.types import TopicPartition
from replog.errors import (
    AuthenticationError,
    BrokerClosedError,
    InvalidRequestError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    UnknownTopicOrPartitionError,
    raised_anew,
)
from replog.host.forks import raise_if_carried
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

OffsetReset = Literal["raise", "earliest", "latest"]

DEFAULT_TIMEOUT_MS = 30_000
YIELD_BYTES = 64 * 1024
RESET_MIN_MS = 1_000
"""How long leaders have to say where a log begins and ends, also where a read may wait for less, milliseconds."""

_log = logging.getLogger(__name__)


class PartitionReader:
    """Reads partitions for one task at a time.

    Invariants:
        - no position moves but in the step that hands out what is below it.

    Args:
        view: The open cluster view of the consumer.
        settings: How records are fetched.
        reset_policy: What to do where a position does not exist in the log.
        client_rack: The rack that the consumer is in; empty: it reads from leaders.
        decoder: What decodes keys and values; None: they are bytes.

    Attributes:
        states: The partitions that are read.
        backlog: What is fetched and not handed out.
        attend: What is awaited, in the reader's own task, each time before it waits for records; None: nothing.
        wake: What ends such a wait.
        on_reset: The function that is told of a position that was not in the log, and where reading goes on.
        is_parting: Whether a listener hears of the partitions that go as the consumer ends.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: FetchSettings,
        *,
        reset_policy: OffsetReset,
        client_rack: str,
        decoder: RecordDecoder | None = None,
    ) -> None:
        self.states: dict[TopicPartition, PartitionFetch] = {}
        self.wake = asyncio.Event()
        self.is_parting = False
        self.on_reset: Callable[[TopicPartition, int], None] | None = None
        self.attend: Callable[[], Awaitable[None]] | None = None
        self._view = view
        self._reset_policy = reset_policy
        self._fetchers = FetcherPool(
            view, settings, client_rack=client_rack, on_chunk=self._take_in, on_trouble=self._handle_trouble
        )
        self.backlog = Backlog(self._fetchers.release, self._handle_trouble, decoder)
        self._has_trouble = False
        self._wants: Callable[[str], bool] = _everything
        self._named: frozenset[str] | re.Pattern[str] | None = None
        self._tells_deletions = True
        self._bytes_since_yield = 0
        self._is_closed = False
        view.add_listener(self.follow)

    # ---- which partitions ------------------------------------------------------------------------------------------

    def add(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        position: int | None,
        error: ReplogError | None = None,
        epoch: int = NO_EPOCH,
    ) -> None:
        """Reads a partition from `position` on, None: from its log start, which nobody could tell.

        Args:
            partition: The partition.
            topic_id: The id of its topic.
            position: The first offset to hand out.
            error: What is raised instead of reading, until a seek.
            epoch: The leader epoch of the record before `position`; -1 where it is not known.
        """
        self.states[partition] = state = PartitionFetch(partition, topic_id, position or 0, epoch)
        if error is not None:
            state.stop(0, error)
            self._handle_trouble()
        elif position is None:
            self._view.request_refresh()
            _log.warning("%s; it is read as soon as it has one", self._view.image.why_leaderless(*partition))
            state.is_at_log_start = True

    def remove(self, partition: TopicPartition) -> None:
        """Reads a partition no more, and forgets what was fetched of it."""
        state = self.states.pop(partition, None)
        if state is None:
            return
        self.backlog.unpark(state)
        self.backlog.drop(state)
        self._fetchers.leave(state)

    def pause(self, state: PartitionFetch) -> None:
        """Hands out nothing of a partition; what is fetched of it waits."""
        if not state.is_paused:
            state.is_paused = True
            self.backlog.park(state)

    def resume(self, state: PartitionFetch) -> None:
        """Goes on with a partition that was paused."""
        if state.is_paused:
            state.is_paused = False
            self.backlog.unpark(state)
            self._fetchers.wake(state)
            self._has_trouble = self._has_trouble or state.has_trouble
            self.wake.set()

    def is_current(self, partition: TopicPartition) -> bool:
        """Whether the partition is read, and its topic has not been deleted, or made anew, since."""
        state, topic = self.states.get(partition), self._view.image.topics.get(partition.topic)
        return state is not None and topic is not None and state.topic_id == topic.topic_id

    def seek(self, state: PartitionFetch, offset: int) -> None:
        """Reads on at `offset`."""
        self.backlog.drop(state)
        state.seek(offset)
        self._fetchers.wake(state)

    def rewind(self, positions: Mapping[TopicPartition, int]) -> None:
        """Takes back what was handed out from these offsets on."""
        for partition, offset in positions.items():
            state = self.states.get(partition)
            if state is not None and offset < state.position:
                self._rewind(state, offset)
        if positions:
            self.follow()  # a topic that was deleted meanwhile is told again

    def _rewind(self, state: PartitionFetch, offset: int) -> None:
        self.backlog.drop(state)
        state.rewind(offset)
        self._fetchers.wake(state)

    def follow(self) -> None:
        """Gives each partition to the fetcher that reads it by the newest metadata; stops those of deleted topics."""
        if self._is_closed:
            return
        for state in self.states.values():
            topic = self._view.image.topics.get(state.partition.topic)
            if topic is not None and topic.topic_id == state.topic_id:
                self._fetchers.follow(state)
            elif state.error is None:
                self._fetchers.leave(state)
                if self._tells_deletions:
                    state.error = self.deleted_error(state.partition.topic)
                    self._handle_trouble()
        self._fetchers.stop_idle()

    def deleted_error(self, topic: str) -> UnknownTopicOrPartitionError:
        """Returns what is told of a topic that was deleted while it was read."""
        return UnknownTopicOrPartitionError(
            f"topic {topic} was deleted{self._view.image.or_hidden}; assign or subscribe to others. One that is made anew is another "
            "topic: assign it anew, too"
        )

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def fill(self, count: int, deadline_s: float | None) -> None:
        """Decodes until `count` records can be handed out or all that is fetched is decoded; waits for the first.

        It moves no position past a record, so that a reader that is cancelled or told of an error here loses nothing.
        """
        backlog = self.backlog
        while backlog.records_count < count:
            if backlog.has_records and (self._has_trouble or not backlog.has_chunks):
                return  # trouble is told by the next call, once what there is has been handed out
            if not backlog.has_records and not await self.wait_for_chunk(deadline_s):
                return
            try:
                self._bytes_since_yield += backlog.decode_next()
            except (RetriableError, MemoryError):  # a codec's; what is decoded is handed out first
                if not backlog.has_records:
                    raise
                return
            if self._bytes_since_yield >= YIELD_BYTES:  # a busy reader lets the fetchers have their turn
                self._bytes_since_yield = 0
                await asyncio.sleep(0)
                if deadline_s is not None and not backlog.has_records and _now_s() >= deadline_s:
                    return  # a turn of nothing but records that are skipped, and there may be any number of them

    async def wait_for_chunk(self, deadline_s: float | None) -> bool:
        """Waits until there is a chunk and nothing to tell before it; False when the deadline has passed."""
        while True:
            self.raise_if_closed()
            self.wake.clear()
            if self.attend is not None:
                await self.attend()
            if self._has_trouble:
                self._raise_trouble()
                self._reset_diverging()
                await self._reset_out_of_range(deadline_s)
            if self.backlog.has_chunks:
                return True
            if not await self._wait(deadline_s):
                return False

    async def _wait(self, deadline_s: float | None) -> bool:
        """Waits for the next event; False when the deadline has passed without a chunk."""
        if not self.states and self.attend is None:
            raise InvalidRequestError("no partition is assigned; call assign or subscribe first")
        try:
            async with asyncio.timeout_at(deadline_s):
                await self.wake.wait()
        except TimeoutError:
            return self.backlog.has_chunks
        return True

    # ---- trouble ---------------------------------------------------------------------------------------------------

    def _raise_trouble(self) -> None:
        """Raises the first error whose partition has nothing left that was fetched before it."""
        troubled = self._troubled()
        self._has_trouble = bool(troubled)
        for state in troubled:
            if state.error is not None and not state.chunks_count and not state.is_paused:
                raise raised_anew(state.error)
        for state in self.states.values():
            loss = self._fetchers.loss(state)
            if isinstance(loss, AuthenticationError) and not state.chunks_count:
                raise raised_anew(loss)

    def _troubled(self) -> list[PartitionFetch]:
        return [state for state in self.states.values() if state.has_trouble and self._wants(state.partition.topic)]

    def _reset_diverging(self) -> None:
        for state in self._troubled():
            parted = state.diverging
            if parted is None or state.chunks_count or state.is_paused:
                continue
            if self._reset_policy == "raise":
                raise state.truncated_error(parted.end_offset)
            _log.warning(
                "%s: the log was cut from %d to %d by an unclean election; reading on there",
                state.partition, state.fetch_offset, parted.end_offset,
            )  # fmt: skip
            # What is left is compared again: the logs may have parted even before.
            self._rewind(state, parted.end_offset)
            self._tell_reset(state)

    async def _reset_out_of_range(self, deadline_s: float | None) -> None:
        """Asks the leaders where to read on; where they do not tell in time, the next read asks again."""
        loop = asyncio.get_running_loop()
        for state in self._troubled():
            refused = state.out_of_range
            if refused is None or state.chunks_count or state.is_paused or not self.is_current(state.partition):
                continue
            left_ms = DEFAULT_TIMEOUT_MS if deadline_s is None else int((deadline_s - loop.time()) * 1000)
            try:
                first, end = await self._ends(state.partition, min(max(left_ms, RESET_MIN_MS), DEFAULT_TIMEOUT_MS))
            except RequestTimedOutError:
                if deadline_s is None:
                    raise
                return
            except UnknownTopicOrPartitionError:
                if self.is_current(state.partition):
                    raise
                continue  # deleted meanwhile
            if state.out_of_range is not refused:
                continue
            if first <= state.fetch_offset <= end:
                self._ask_again(state)
                continue
            if self._reset_policy == "raise":
                raise state.out_of_range_error(first, end)
            offset = first if self._reset_policy == "earliest" else end
            _log.warning(
                "%s: offset %d does not exist, the log has offsets %d to %d; reading on at %d, as auto_offset_reset says",
                state.partition, state.fetch_offset, first, end, offset,
            )  # fmt: skip
            self.seek(state, offset)
            self._tell_reset(state)

    def _ask_again(self, state: PartitionFetch) -> None:
        """Fetches again, after a pause, an offset that one leader refused and the next one has.

        A leader that is deposed before its followers have heard of a deletion takes the new log start with it.
        """
        state.out_of_range = None
        state.back_off(asyncio.get_running_loop().time())
        self._fetchers.wake(state)

    async def _ends(self, partition: TopicPartition, timeout_ms: int) -> tuple[int, int]:
        """Asks the leader for the first offset of a partition, and for its high watermark."""
        first = await offsets_at(self._view, [partition], EARLIEST_TIMESTAMP, timeout_ms)
        end = await offsets_at(self._view, [partition], LATEST_TIMESTAMP, timeout_ms)
        return first[partition], end[partition]

    def _tell_reset(self, state: PartitionFetch) -> None:
        if self.on_reset is not None:
            self.on_reset(state.partition, state.position)

    def _handle_trouble(self) -> None:
        self._has_trouble = True
        self.wake.set()

    def _take_in(self, chunk: FetchedChunk) -> None:
        self.backlog.add(chunk)
        self.wake.set()

    # ---- the end ---------------------------------------------------------------------------------------------------

    def raise_if_closed(self) -> None:
        """Raises: BrokerClosedError: The consumer was closed, or is a copy in a forked process."""
        self._raise_if(is_closed=self._is_closed)

    def _raise_if(self, *, is_closed: bool) -> None:
        raise_if_carried(self._view.home.loop)
        if is_closed:
            raise BrokerClosedError("this consumer was closed; make a new one")
        self._view.home.enter()

    def raise_if_gone(self) -> None:
        """Raises as `raise_if_closed` does, but not while a listener hears of the partitions that go with the end."""
        self._raise_if(is_closed=self._is_closed and not self.is_parting)

    def want(self, topics: Collection[str] | re.Pattern[str] | None) -> None:
        """Sets which topics are wanted: the troubles of others are told no more, for their partitions go soon.

        Args:
            topics: The topics that are wanted, or the pattern that their names match; None: all that are assigned.
        """
        self._named = topics if isinstance(topics, re.Pattern) or topics is None else frozenset(topics)
        if isinstance(topics, re.Pattern):
            self._wants = lambda topic: topics.fullmatch(topic) is not None
        else:
            self._wants = _everything if topics is None else frozenset(topics).__contains__
        self._tells_deletions = not isinstance(topics, re.Pattern)
        self._handle_trouble()  # what was left out before may have to be told now

    @property
    def wanted_topics(self) -> frozenset[str]:
        """The topics that `want` has named; where it named none, those of the partitions."""
        return self._named if isinstance(self._named, frozenset) else frozenset(each.topic for each in self.states)

    def stop(self) -> None:
        """Hands out nothing from now on; who waits is told."""
        self._is_closed = True
        self.backlog.clear()

    async def close(self) -> None:
        """Ends the streams; no task is left."""
        await self._fetchers.close()
        self.backlog.clear()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _everything(_: str) -> bool:
    return True
