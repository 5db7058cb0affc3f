"""Reads one range of offsets from whoever leads the partition, as whole record batches.

What is hard about it (streams, leader changes, backoff, fetching ahead within a bound) is the consumer's fetcher; added
here is what a fixed range needs: it ends, it belongs to one topic id, and records that are gone are an error of their
own (Spark's `failOnDataLoss`).

Whether a partition's log is still the one whose offsets were pinned.

A range is pinned together with the leader epoch of its time.  Whatever lay below the high watermark then has that epoch or an
older one; what an unclean election puts in its place has a newer one.  So each batch that is read tells by itself, and where
nothing is left to be read, the leader says where the pinned epoch ends in its log (OffsetsForLeaderEpoch, KIP-320).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from replog.client.cluster.addresses import LeaderAddress
from replog.client.cluster.offsets import epoch_ends, list_offsets
from replog.client.cluster.view import VISIBLE_WITHIN_MS, ClusterView
from replog.client.consumer.fetch_state import FetchedChunk, PartitionFetch
from replog.client.consumer.fetcher import FetchSettings
from replog.client.consumer.fetcher_pool import FetcherPool
from replog.client.ranges.offset_range import OffsetRange, Piece, RangeWords
from replog.client.ranges.patience import STALL_TIMEOUT_MS, UNSERVED_TIMEOUT_MS, named, why_unserved
from replog.client.types import TopicPartition
from replog.errors import (
    AuthenticationError,
    BrokerClosedError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    ReplogError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    raised_anew,
)
from replog.records import BatchHeader
from replog.rpc.messages import LATEST_TIMESTAMP, FetchResult

LOOK_S = 0.5
"""How often a range that brings nothing looks at the metadata."""

EPOCH_TIMEOUT_MS = 1_000
"""How long a leader may take to tell where an epoch ends; it is asked while the range brings nothing."""

FETCH_SETTINGS = FetchSettings(max_bytes=4 << 20, max_partition_bytes=4 << 20, buffer_memory_bytes=12 << 20)
"""One reply waits while the one before is decoded; a few large replies are cheaper than many small ones."""

_log = logging.getLogger(__name__)


class RangeReader:
    """Hands out the record batches of one range, in order.  Lives in the loop's thread.

    Args:
        view: An open view of the cluster; the owner calls `handle_metadata` when it changes.
        wanted: The range to read.
        fail_on_data_loss: Whether records that are gone raise; otherwise the reader goes on with what there is.
        words: How errors are told.
        poll_timeout_ms: How long the range may bring nothing, whatever the reason; None: UNSERVED_TIMEOUT_MS or
            STALL_TIMEOUT_MS, by what is known of the brokers.
        client_rack: The rack whose replicas are preferred to the leader; "": none is.
    """

    def __init__(
        self,
        view: ClusterView,
        wanted: OffsetRange,
        *,
        fail_on_data_loss: bool,
        words: RangeWords,
        poll_timeout_ms: int | None = None,
        client_rack: str = "",
    ) -> None:
        self._view = view
        self._wanted = wanted
        self._fail_on_data_loss = fail_on_data_loss
        self._words = words
        self._unserved_timeout_ms = poll_timeout_ms or UNSERVED_TIMEOUT_MS
        self._stall_timeout_ms = poll_timeout_ms or STALL_TIMEOUT_MS
        self._last_leader: LeaderAddress | None = None
        partition = TopicPartition(wanted.topic, wanted.partition)
        self._state = PartitionFetch(partition, wanted.topic_id, wanted.start_offset)
        self._pool = FetcherPool(
            view, FETCH_SETTINGS, client_rack=client_rack, on_chunk=self._take_in, on_trouble=self._notice
        )
        self._chunks: deque[FetchedChunk] = deque()
        self._is_deleted = False
        self._is_replaced = False
        self._is_given_up = False
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Begins to fetch.  A topic that is gone already shows in `next_piece`."""

        def visible() -> bool | None:
            if self._is_ours():
                return True
            self._view.request_refresh()  # this process may know less than the one that planned
            return None

        try:
            await self._view.wait_for(visible, timeout_ms=VISIBLE_WITHIN_MS, what=f"look up topic {self._wanted.topic}")
        except RequestTimedOutError:
            if not self._view.cluster_id:
                raise
        self.handle_metadata()

    async def close(self) -> None:
        """Stops fetching; no task is left."""
        self._pool.leave(self._state)
        while self._chunks:
            self._pool.release(self._chunks.popleft())
        await self._pool.close()

    def give_up(self) -> None:
        """Ends the waiting of `next_piece`: nobody wants what comes."""
        self._is_given_up = True
        self._wake.set()

    async def next_piece(self) -> Piece | None:
        """Waits for what comes next and returns it; None: the end of the range.

        Raises:
            OffsetOutOfRangeError, UnknownTopicOrPartitionError: Records of the range are gone.
            LogTruncatedError: Records of the range were replaced or cut off by an unclean election.
            RequestTimedOutError: Nothing came in time; it names the broker, the offset reached and the cause.
            CorruptRecordError: What a broker sent is damaged.
            BrokerClosedError: The reader was given up.
        """
        while not self._chunks:
            self._wake.clear()
            if self._is_at_end():
                return None
            self._raise_or_mend()
            if not self._is_at_end():
                await self._wait()
        chunk = self._chunks.popleft()
        start, end = chunk.headers[0], chunk.headers[-1]
        if not self._is_replaced and (offset := replaced_at(self._wanted, chunk.headers)) is not None:
            self._raise_or_warn(offset)
        data = memoryview(chunk.data)[start.position : end.end_position]
        piece = Piece(self._state.position, start.base_offset, data)
        self._state.position = chunk.next_offset
        self._pool.release(chunk)
        return piece

    def handle_metadata(self) -> None:
        """Goes to the partition's leader of the newest metadata."""
        if self._is_at_end():
            return
        if self._is_ours():
            self._pool.follow(self._state)
            self._pool.stop_idle()
            self._last_leader = self._state.leader or self._last_leader
            return
        self._pool.leave(self._state)
        if self._view.image.shared_offset < self._wanted.metadata_offset:
            return  # told by a broker that has just been started: newer ones will come
        self._is_deleted = True
        self._notice()

    # ---- what the fetcher reports ------------------------------------------------------------------------------------

    def _take_in(self, chunk: FetchedChunk) -> None:
        self._chunks.append(chunk)
        if self._is_at_end():
            self._pool.leave(self._state)
        self._wake.set()

    def _notice(self) -> None:
        self._wake.set()

    # ---- trouble -----------------------------------------------------------------------------------------------------

    def _raise_or_mend(self) -> None:
        """Looks at what stopped the fetcher once everything fetched before it is handed out."""
        if self._is_given_up:
            raise BrokerClosedError(f"{self._wanted} is not read any more")
        if self._state.error is not None:
            raise raised_anew(self._state.error)
        if self._state.out_of_range is not None:
            self._handle_out_of_range(self._state.out_of_range)
        elif self._state.diverging is not None:
            text = truncated_text(self._wanted, self._state.diverging.end_offset, self._words)
            self._lose(LogTruncatedError, text, self._state.fetch_offset)
        elif self._is_deleted:
            text = f"{self._wanted}: the topic was deleted or created anew since {self._words.planned}"
            self._lose(UnknownTopicOrPartitionError, text, self._wanted.end_offset)

    def _handle_out_of_range(self, result: FetchResult) -> None:
        offset, first, end = result.fetch_offset, result.log_start_offset, result.log_end_offset
        text = f"{self._wanted}: offset {offset} does not exist any more; the log has {first} to {end} (exclusive)"
        next_offset = first if offset < first < self._wanted.end_offset else self._wanted.end_offset
        self._lose(partial(OffsetOutOfRangeError, log_start_offset=first, log_end_offset=end), text, next_offset)

    def _lose(self, error: Callable[[str], ReplogError], text: str, next_offset: int) -> None:
        """Fails, or goes on at `next_offset`."""
        if self._fail_on_data_loss:
            raise error(f"{text}. {self._words.after_loss}")
        _log.warning("%s; going on at offset %d (failOnDataLoss is false)", text, next_offset)
        self._state.seek(next_offset)
        self._pool.wake(self._state)

    def _raise_or_warn(self, offset: int) -> None:
        """Fails where records were replaced, or hands out what is there instead, with one warning."""
        text = truncated_text(self._wanted, offset, self._words)
        if self._fail_on_data_loss:
            raise LogTruncatedError(f"{text}. {self._words.after_loss}", offset)
        _log.warning("%s; reading what is there instead (failOnDataLoss is false)", text)
        self._is_replaced = True

    async def _wait(self) -> None:
        """Returns when there is something to look at; fails when that takes too long."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
                return
            self._view.request_refresh()  # what is known of the leader may be old
            if await self._is_cut():
                return
            loss = self._pool.loss(self._state)
            if isinstance(loss, AuthenticationError):
                raise raised_anew(loss)
            waited_ms = int((loop.time() - began_s) * 1000)
            unserved = self._why_unserved()
            if waited_ms >= (self._unserved_timeout_ms if unserved else self._stall_timeout_ms):
                raise self._stalled(waited_ms, unserved)

    async def _is_cut(self) -> bool:
        """Looks whether the log ends inside of the range now; fails, or skips what is missing.

        Raises:
            LogTruncatedError: It does, and that is an error.
        """
        try:
            offset = await truncated_at(self._view, self._wanted, EPOCH_TIMEOUT_MS)
            if offset is None:
                return False
            if (
                not self._fail_on_data_loss
                and await visible_end(self._view, self._wanted, EPOCH_TIMEOUT_MS) > self._state.fetch_offset
            ):
                return False  # there is something to read yet
        except ReplogError:
            return (
                False  # whoever does not answer this does not serve records either, and that is told by its own words
            )
        self._lose(LogTruncatedError, truncated_text(self._wanted, offset, self._words), self._wanted.end_offset)
        return True

    def _why_unserved(self) -> str:
        """Returns why no broker could serve the range now; "" when one may."""
        loss = self._pool.loss(self._state)
        return why_unserved(self._view, self._state.leader, self._last_leader, loss, self._unserved_timeout_ms)

    def _stalled(self, waited_ms: int, unserved: str) -> RequestTimedOutError:
        state = self._state
        silent = f"its leader, {named(state.leader)}, sends no records; its high watermark is {state.high_watermark}"
        cause = self._pool.loss(state) or self._view.last_error
        return RequestTimedOutError(
            f"read {self._wanted}: at offset {state.position} nothing came for {waited_ms} ms: {unserved or silent}. "
            f"Start the broker again, or {self._words.wait_longer}. "
            f"Last cause: {f'{type(cause).__name__}: {cause}' if cause is not None else 'no answer'}"
        )

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def _is_ours(self) -> bool:
        topic = self._view.image.topics.get(self._wanted.topic)
        return topic is not None and topic.topic_id == self._wanted.topic_id

    def _is_at_end(self) -> bool:
        return self._state.fetch_offset >= self._wanted.end_offset


def replaced_at(wanted: OffsetRange, headers: Iterable[BatchHeader]) -> int | None:
    """Returns the first offset that was replaced since the range was pinned; None: none of these batches was.

    Args:
        wanted: The range.
        headers: Headers of batches that were read, in order.
    """
    if wanted.leader_epoch < 0:
        return None
    for header in headers:
        if header.partition_leader_epoch > wanted.leader_epoch and header.base_offset < wanted.end_offset:
            return max(header.base_offset, wanted.start_offset)
    return None


async def truncated_at(view: ClusterView, wanted: OffsetRange, timeout_ms: int) -> int | None:
    """Asks the leader where the log that was pinned ends now; returns that if it lies in the range, else None.

    None, too, where the leader does not know the epoch: it is one that was replaced, and metadata will say so.

    Raises:
        RequestTimedOutError: No leader answered in time.
        ReplogError: Whatever else `epoch_ends` raises.
    """
    if wanted.leader_epoch < 0:
        return None
    partition = TopicPartition(wanted.topic, wanted.partition)
    end = (await epoch_ends(view, {partition: wanted.leader_epoch}, timeout_ms=timeout_ms))[partition]
    return None if end is None or end.end_offset >= wanted.end_offset else end.end_offset


async def visible_end(view: ClusterView, wanted: OffsetRange, timeout_ms: int) -> int:
    """Asks the leader for the high watermark of a range's partition.

    Raises:
        RequestTimedOutError: No leader answered in time.
        ReplogError: Whatever else `list_offsets` raises.
    """
    partition = TopicPartition(wanted.topic, wanted.partition)
    found = await list_offsets(view, {partition: LATEST_TIMESTAMP}, timeout_ms=timeout_ms)
    return found[partition].offset


def truncated_text(wanted: OffsetRange, offset: int, words: RangeWords) -> str:
    """Returns the words for records of a range that an unclean election took away."""
    return (
        f"{wanted}: from offset {offset} on the log is not the one that was there when {words.planned} (leader epoch "
        f"{wanted.leader_epoch}): a replica without these records was elected"
    )
