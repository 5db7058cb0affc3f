"""What a consumer knows of one partition: where it reads, what is fetched ahead, why it waits.  Pure.

Two offsets move forward on their own: `fetch_offset` when a reply is accepted, `position` when records are handed out.
Nothing is skipped or repeated, for a reply counts only when it answers the request that is waited for (`token`) and
continues exactly where the last one ended; a change of leader or a seek makes the old token worthless.
"""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

from msgspec import Struct

from replog.client.cluster.addresses import LeaderAddress
from replog.client.consumer.epoch_spans import NO_EPOCH, EpochSpans
from replog.client.types import TopicPartition
from replog.errors import CorruptRecordError, LogTruncatedError, NoOffsetError, OffsetOutOfRangeError, ReplogError
from replog.records import BatchHeader, Buffer, scan
from replog.rpc.messages import DivergingEpoch, FetchResult

BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 0.5


class FetchedChunk(Struct, eq=False):
    """Whole batches of one partition, fetched and not handed out yet.

    Attributes:
        data: The bytes as they came: a view of the received message, which lives as long as the chunk.
        headers: The headers of the batches in it that are wanted; the first may begin below the position.
        owner: The fetcher whose share of memory it takes.
        next_index: The first batch that is not handed out.
        decoded_count: The batches at its front that are decoded; from `next_index` on they wait to be handed out.
    """

    state: PartitionFetch
    data: Buffer
    headers: list[BatchHeader]
    high_watermark: int
    owner: Any
    next_index: int = 0
    decoded_count: int = 0

    @property
    def next_offset(self) -> int:
        """Exclusive end."""
        return self.headers[-1].next_offset


class PartitionFetch:
    """Invariants:
        - `position <= fetch_offset`, and what lies between is in chunks, in order;
        - at most one request for this partition is in flight.

    Attributes:
        position: The next offset to hand out.
        fetch_offset: The next offset to ask for.
        token: The number that requests carry now; a reply to one with another number is dropped.
        error: Why reading stopped until a seek; raised to the user once what was fetched before is handed out.
        epochs: The leader epochs of what was accepted; after a seek, of nothing.
        out_of_range: The answer that refused the offset; the consumer's reset policy decides.
        diverging: The answer that what was read is not in the log any more; the same policy decides.
        leader_only: Whether the leader is asked for a while, because another replica could not serve.
        is_paused: Whether nothing of it is asked for or handed out until it is resumed.
        is_at_log_start: Whether reading begins where the log starts, and no leader has told yet where: `position` is a guess.
    """

    def __init__(self, partition: TopicPartition, topic_id: UUID, position: int, epoch: int = NO_EPOCH) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.position = position
        self.fetch_offset = position
        self.token = 0
        self.is_in_flight = False
        self.buffered_bytes = 0
        self.chunks_count = 0
        self.leader: LeaderAddress | None = None
        self.high_watermark = -1
        self.log_start_offset = -1
        self.error: ReplogError | None = None
        self.epochs = EpochSpans(position, epoch)
        self.out_of_range: FetchResult | None = None
        self.diverging: DivergingEpoch | None = None
        self.backoff_until_s = 0.0
        self.leader_only = False
        self.is_at_log_start = False
        self.is_paused = False
        self._leader_only_until_s = -math.inf
        self._leader_only_s = 0.0
        self._failures_count = 0

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the record before the fetch offset, -1 if not known: leaders compare it with their logs."""
        return self.epochs.before(self.fetch_offset)

    @property
    def has_trouble(self) -> bool:
        """Whether reading waits for somebody's decision."""
        return self.error is not None or self.out_of_range is not None or self.diverging is not None

    @property
    def has_no_position(self) -> bool:
        """Whether nobody knows yet where to begin."""
        return self.is_at_log_start or isinstance(self.error, NoOffsetError)

    def seek(self, offset: int) -> None:
        """Reads on at `offset`; what was fetched or asked for is forgotten (the caller drops the chunks)."""
        self.position = self.fetch_offset = offset
        self.is_at_log_start = False
        self.epochs = EpochSpans(offset)
        self.error = None
        self.out_of_range = None
        self.diverging = None
        self.forget_request()
        self.clear_backoff()

    def follow_log_start(self, result: FetchResult) -> bool:
        """Moves up to the log start that a refusal names, if the position is a guess below it; else False."""
        if not self.is_at_log_start or result.log_start_offset <= self.fetch_offset:
            return False
        self.position = self.fetch_offset = result.log_start_offset
        return True

    def forget_told(self) -> bool:
        """Gives up the epoch that was committed beside the position, if nothing else is known; returns whether there was one.

        A leader refuses an epoch that it cannot place as it does an offset, which may exist all the same.
        """
        if not self.epochs.is_told:
            return False
        self.epochs = EpochSpans(self.fetch_offset)
        return True

    def rewind(self, offset: int) -> None:
        """Hands out again from `offset` on: as `seek`, but what was read is still compared with the leaders' logs."""
        epochs = self.epochs
        epochs.cut(offset)
        self.seek(offset)
        self.epochs = epochs

    def stop(self, offset: int, error: ReplogError) -> None:
        """Reads nothing from `offset` on until a seek, because of `error`."""
        self.fetch_offset = offset
        self.error = error
        self.forget_request()

    def truncated_error(self, end_offset: int) -> LogTruncatedError:
        """Makes the error for a reader whose records are not in the log any more from `end_offset` on."""
        return LogTruncatedError(
            f"{self.partition}: records from offset {end_offset} to {self.fetch_offset} that were read are not in the log any "
            "more: a replica without them was elected. Undo what was made of them, then seek to "
            f"{end_offset}.",
            end_offset,
        )

    def out_of_range_error(self, log_start_offset: int, end_offset: int) -> OffsetOutOfRangeError:
        """Makes the error for a reader whose position is not in the log, which has the offsets between the two."""
        return OffsetOutOfRangeError(
            f"{self.partition}: offset {self.fetch_offset} does not exist; the log has offsets {log_start_offset} to "
            f'{end_offset} (exclusive). Seek to one of them, or set auto_offset_reset to "earliest" or "latest".',
            log_start_offset,
            end_offset,
        )

    def forget_request(self) -> None:
        """Gives up whatever is in flight: a reply to it is dropped."""
        self.token += 1
        self.is_in_flight = False

    def can_fetch(self, now_s: float, *, buffered_bytes_max: int) -> bool:
        """Whether to ask for more: nothing is in flight, nothing is wrong, and little enough is buffered."""
        return (
            not self.is_in_flight
            and not self.is_paused
            and not self.has_trouble
            and self.buffered_bytes < buffered_bytes_max
            and now_s >= self.backoff_until_s
        )

    def confirm(self) -> None:
        """Takes in that a broker serves the partition at the fetch offset, perhaps without anything new to tell."""
        self._failures_count = 0
        self.is_at_log_start = False

    def accept(self, result: FetchResult, data: Buffer, owner: Any) -> FetchedChunk | None:
        """Takes in a reply without an error; returns the chunk that it brings, None when it brings nothing.

        Raises:
            CorruptRecordError: The bytes are not batches that continue at the fetch offset.
        """
        self.confirm()
        self.high_watermark = max(self.high_watermark, result.high_watermark)
        self.log_start_offset = max(self.log_start_offset, result.log_start_offset)
        headers = self._headers(data)
        if not headers:
            if len(data):
                raise CorruptRecordError("", 0, f"{self.partition}: no whole batch at or above {self.fetch_offset}")
            return None
        data = memoryview(data)[: headers[-1].end_position]
        self.fetch_offset = headers[-1].next_offset
        self.epochs.add(headers)
        self.buffered_bytes += len(data)
        self.chunks_count += 1
        return FetchedChunk(self, data, headers, result.high_watermark, owner)

    def _headers(self, data: Buffer) -> list[BatchHeader]:
        """Returns the headers of what can be read, up to the first that cannot be or cannot follow.

        The next fetch begins there, or at the batch before, whose checksum is looked at first: a broker looks at the
        checksum only where a read begins, and would not find the damage of a reader that begins anew before it.

        Raises:
            CorruptRecordError: The first header cannot be.
        """
        headers: list[BatchHeader] = []
        try:
            for header in scan(data):
                if headers and header.base_offset < headers[-1].next_offset:
                    break
                if header.next_offset > self.fetch_offset:
                    headers.append(header)
        except CorruptRecordError:
            if not headers:
                raise
        return headers

    def part(self, diverging: DivergingEpoch) -> None:
        """Takes in the answer that the log does not go on from what was read.

        Other clients commit the epoch in which a leader has told them an offset, which may have ended without a record: then
        another one is told, and nothing is lost as long as that reaches up to here.
        """
        if diverging.end_offset >= self.fetch_offset and self.forget_told():
            return
        end_offset = self.epochs.parting(diverging.epoch, diverging.end_offset)
        self.diverging = DivergingEpoch(diverging.epoch, end_offset)

    def release(self, chunk: FetchedChunk) -> None:
        """Counts `chunk` out of what is buffered: it has been handed out or dropped."""
        self.buffered_bytes -= len(chunk.data)
        self.chunks_count -= 1

    def back_off(self, now_s: float) -> None:
        """Pauses after a retriable error, longer each time."""
        self.backoff_until_s = now_s + min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(self._failures_count, 8))
        self._failures_count += 1

    def avoid_replica(self, now_s: float, pause_s_min: float, pause_s_max: float) -> float:
        """Begins a pause in which only the leader is asked, for another replica could not serve; returns its seconds.

        It is twice as long each time, up to `pause_s_max`, and begins anew at `pause_s_min` once a replica has served
        for longer than the last pause.
        """
        has_served = now_s - self._leader_only_until_s > max(self._leader_only_s, pause_s_min)
        self._leader_only_s = pause_s_min if has_served else min(pause_s_max, 2 * self._leader_only_s)
        self._leader_only_until_s = now_s + self._leader_only_s
        self.leader_only = True
        return self._leader_only_s

    def clear_backoff(self) -> None:
        """Ends the pause after errors: something has changed (a leader, the position), so ask at once."""
        self.backoff_until_s = 0.0
        self._failures_count = 0
