"""`Consumer`: reads partitions from given offsets on, in order, never past the high watermark."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from replog.client.cluster import ClusterView
from replog.client.fetch_state import Chunk, PartitionState
from replog.client.fetcher import FetchSettings
from replog.client.fetcher_pool import FetcherPool
from replog.client.leader_calls import require_partitions
from replog.client.offsets import list_offsets
from replog.client.types import ConsumerRecord, FetchedBatches, TopicPartition
from replog.ending import Ending
from replog.errors import (
    BrokerClosedError,
    ConfigError,
    InvalidRequestError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    ReplogError,
    UnknownTopicOrPartitionError,
)
from replog.records import BatchHeader, decode_batch
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from replog.rpc.transport import Transport

OffsetReset = Literal["raise", "earliest", "latest"]
Start = Literal["earliest", "latest"]
Partitions = Iterable[tuple[str, int]]

CONNECT_TIMEOUT_MS = 10_000
DEFAULT_TIMEOUT_MS = 30_000
YIELD_BYTES = 64 * 1024
POLL_RECORDS_MAX = 500
POLL_TIMEOUT_MS = 1_000

_log = logging.getLogger(__name__)
_DEFAULTS = FetchSettings()


class Consumer:
    """Reads the partitions it is assigned; for now without groups and committed offsets.

    ::

        async with Consumer("127.0.0.1:9092") as consumer:
            await consumer.assign([("flights", 0), ("flights", 1)])
            async for record in consumer:
                print(record.partition, record.offset, record.value)

    It fetches ahead in the background, follows leaders, and hands records out by `async for`, `poll` or, undecoded,
    `fetch_batches`; the three share one position per partition and may be mixed.  One task at a time may read.

    Args:
        bootstrap_servers: "host:port,host:port" or a sequence of them.
        auto_offset_reset: what to do when a position does not exist in the log (any more): "raise"
            OffsetOutOfRangeError, or go to the "earliest" or "latest" offset.  Default "raise": skipping records is
            never decided silently.
        fetch_max_wait_ms, fetch_min_bytes, fetch_max_bytes, max_partition_fetch_bytes, buffer_memory_bytes,
            request_timeout_ms: see `FetchSettings`.
        connect_timeout_ms: how long `start` waits for a first broker to answer.
        client_rack: where this consumer runs: it reads from in-sync replicas on brokers with the same `broker.rack`, where
            the brokers' `replica.selector` is rack-aware; else from the leaders.
        client_id: names this client in the brokers' logs.
        transport: the default is gRPC.

    Raises:
        ConfigError: a setting is wrong.

    Invariants:
        - records of a partition come in order of offset, each once, unless `seek` says otherwise;
        - what is fetched ahead stays within `buffer_memory_bytes` (each leader may pass its share by one batch).
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        auto_offset_reset: OffsetReset = "raise",
        fetch_max_wait_ms: int = _DEFAULTS.max_wait_ms,
        fetch_min_bytes: int = _DEFAULTS.min_bytes,
        fetch_max_bytes: int = _DEFAULTS.max_bytes,
        max_partition_fetch_bytes: int = _DEFAULTS.max_partition_bytes,
        buffer_memory_bytes: int = _DEFAULTS.buffer_memory_bytes,
        request_timeout_ms: int = _DEFAULTS.request_timeout_ms,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        client_rack: str = "",
        client_id: str = "replog-consumer",
        transport: Transport | None = None,
    ) -> None:
        if auto_offset_reset not in {"raise", "earliest", "latest"}:
            raise ConfigError(
                "auto.offset.reset",
                auto_offset_reset,
                f'auto.offset.reset is {auto_offset_reset!r}; it is "raise", "earliest" or "latest".',
            )
        self._settings = FetchSettings(
            fetch_max_wait_ms,
            fetch_min_bytes,
            fetch_max_bytes,
            max_partition_fetch_bytes,
            buffer_memory_bytes,
            request_timeout_ms,
        )
        self._reset_policy: OffsetReset = auto_offset_reset
        self._connect_timeout_ms = connect_timeout_ms
        self._view = ClusterView(bootstrap_servers, transport=transport, client_id=client_id)
        self._view.add_listener(self._handle_metadata)
        self._states: dict[TopicPartition, PartitionState] = {}
        self._fetchers = FetcherPool(
            self._view, self._settings, client_rack=client_rack, on_chunk=self._take_in, on_trouble=self._handle_trouble
        )
        self._chunks: deque[Chunk] = deque()
        self._current: Chunk | None = None
        self._records: list[ConsumerRecord] = []  # of the current batch, last first
        self._wake = asyncio.Event()
        self._has_trouble = False
        self._bytes_since_yield = 0
        self._is_closed = False
        self._ending = Ending(self._release)

    # ---- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connects.  Raises: as `Producer.start`."""
        await self._view.ready(self._connect_timeout_ms)

    async def close(self) -> None:
        """Stops fetching and closes the connections.  A reader that waits gets BrokerClosedError."""
        self._is_closed = True
        self._wake.set()
        await self._ending.wait()

    async def _release(self) -> None:
        await self._fetchers.close()
        await self._view.close()
        self._chunks.clear()

    # ---- what to read ----------------------------------------------------------------------------------------------

    async def assign(
        self,
        partitions: Partitions,
        *,
        start: Start | Mapping[tuple[str, int], int] = "earliest",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """Reads these partitions from now on; positions of partitions that were assigned before are kept.

        Args:
            partitions: (topic, partition) pairs; replaces the assignment.
            start: where newly assigned partitions begin: "earliest", "latest" (the high watermark), or an offset for
                each, which saves asking the leaders.
            timeout_ms: limit of the time it takes to learn the offsets.

        Raises:
            UnknownTopicOrPartitionError: one does not exist.
            RequestTimedOutError: a leader did not tell its offsets in time.
        """
        self._raise_if_closed()
        wanted = list(dict.fromkeys(TopicPartition(*partition) for partition in partitions))
        await require_partitions(self._view, wanted)
        new = [partition for partition in wanted if not self._is_current(partition)]
        positions = await self._start_positions(new, start, timeout_ms)
        for partition in [p for p in self._states if p in new or p not in wanted]:
            self._unassign(partition)
        for partition in new:
            topic = self._view.image.topics.get(partition.topic)
            if topic is None:
                raise UnknownTopicOrPartitionError(f"topic {partition.topic} was deleted")
            self._states[partition] = PartitionState(partition, topic.topic_id, positions[partition])
        self._handle_metadata()

    async def assign_topic(self, topic: str, *, start: Start = "earliest") -> list[TopicPartition]:
        """Assigns all partitions of one topic; returns them."""
        info = await self._view.topic_or_raise(topic)
        partitions = [TopicPartition(topic, partition.partition_id) for partition in info.partitions]
        await self.assign(partitions, start=start)
        return partitions

    def assignment(self) -> list[TopicPartition]:
        return list(self._states)

    def position(self, partition: tuple[str, int]) -> int:
        """Offset of the next record that will be handed out.

        Raises:
            InvalidRequestError: the partition is not assigned.
        """
        return self._state(partition).position

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Reads on at `offset`.  Whether it exists shows when it is fetched (see `auto_offset_reset`).

        Raises:
            InvalidRequestError: the partition is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise InvalidRequestError(f"cannot seek to offset {offset}; see seek_to_beginning and seek_to_end")
        state = self._state(partition)
        for chunk in [chunk for chunk in self._chunks if chunk.state is state]:
            self._chunks.remove(chunk)
            self._fetchers.release(chunk)
        if self._current is not None and self._current.state is state:
            self._fetchers.release(self._current)
            self._current = None
            self._records = []
        state.seek(offset)
        self._fetchers.wake(state)

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Goes to the first offset that exists now; without arguments, in all assigned partitions."""
        for partition, offset in (await self.beginning_offsets(partitions or self._states)).items():
            self.seek(partition, offset)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Goes to the high watermark of now; without arguments, in all assigned partitions."""
        for partition, offset in (await self.end_offsets(partitions or self._states)).items():
            self.seek(partition, offset)

    async def beginning_offsets(
        self, partitions: Partitions, *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """First offset of each partition."""
        return await self._offsets(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    async def end_offsets(
        self, partitions: Partitions, *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """High watermark of each partition: the offset after the last record that can be read now."""
        return await self._offsets(partitions, LATEST_TIMESTAMP, timeout_ms)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record of any assigned partition; waits for one.

        Raises:
            OffsetOutOfRangeError: a position does not exist and `auto_offset_reset` is "raise"; `seek` mends it.
            LogTruncatedError: records that were read were lost in an unclean election, likewise.
            CorruptRecordError: what a broker sent is damaged.
            UnknownTopicOrPartitionError: a topic was deleted.
        """
        while not self._records:
            await self._fill(None)
        return self._hand_out()

    async def poll(
        self, max_records: int = POLL_RECORDS_MAX, timeout_ms: int = POLL_TIMEOUT_MS
    ) -> list[ConsumerRecord]:
        """Up to `max_records` records; waits up to `timeout_ms` for the first.  Raises: as `__anext__`."""
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        found: list[ConsumerRecord] = []
        while len(found) < max_records:
            if not self._records and not await self._fill(deadline_s, only_buffered=bool(found)):
                break
            found += self._hand_out_many(max_records - len(found))
        return found

    async def fetch_batches(self, timeout_ms: int = POLL_TIMEOUT_MS) -> list[FetchedBatches]:
        """Everything that is fetched ahead, undecoded; waits up to `timeout_ms` for the first piece.

        For readers that decode columns by themselves.  Control batches are left in.  Raises: as `__anext__`.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        pieces: list[FetchedBatches] = []
        while (chunk := await self._next_chunk(deadline_s, only_buffered=bool(pieces))) is not None:
            state = chunk.state
            start = chunk.headers[chunk.next_index].position
            data = memoryview(chunk.data)[start : chunk.headers[-1].end_position]
            piece = FetchedBatches(*state.partition, state.position, chunk.next_offset, chunk.high_watermark, data)
            pieces.append(piece)
            state.position = chunk.next_offset
            self._finish_current()
        return pieces

    def _hand_out(self) -> ConsumerRecord:
        record = self._records.pop()
        chunk = self._current
        if chunk is not None:
            chunk.state.position = record.offset + 1
            if not self._records:
                self._finish_batch(chunk)
        return record

    def _hand_out_many(self, count_max: int) -> list[ConsumerRecord]:
        """The next records of the current batch, in order; there are some."""
        records = self._records[: -count_max - 1 : -1]
        del self._records[-count_max:]
        chunk = self._current
        if chunk is not None:
            chunk.state.position = records[-1].offset + 1
            if not self._records:
                self._finish_batch(chunk)
        return records

    async def _fill(self, deadline_s: float | None, *, only_buffered: bool = False) -> bool:
        """Decodes the next batch that has records at or above the position; False when the time is up."""
        while not self._records:
            chunk = await self._next_chunk(deadline_s, only_buffered=only_buffered)
            if chunk is None:
                return False
            header = chunk.headers[chunk.next_index]
            try:
                self._records = _decode(chunk, header)
            except ReplogError as error:
                self._fail_current(chunk, error)
                continue
            if not self._records:
                self._finish_batch(chunk)
            self._bytes_since_yield += header.size_bytes
            if self._bytes_since_yield >= YIELD_BYTES:  # a busy reader lets the fetchers have their turn
                self._bytes_since_yield = 0
                await asyncio.sleep(0)
        return True

    def _finish_batch(self, chunk: Chunk) -> None:
        """The batch is handed out, records that compaction removed at its end included."""
        chunk.state.position = max(chunk.state.position, chunk.headers[chunk.next_index].next_offset)
        chunk.next_index += 1
        if chunk.next_index == len(chunk.headers):
            self._finish_current()

    def _finish_current(self) -> None:
        if self._current is not None:
            self._fetchers.release(self._current)
        self._current = None
        self._records = []

    def _fail_current(self, chunk: Chunk, error: ReplogError) -> None:
        """A batch that cannot be decoded: reading this partition stops there."""
        state, position = chunk.state, chunk.state.position
        self.seek(state.partition, position)
        state.error = error
        self._handle_trouble()

    async def _next_chunk(self, deadline_s: float | None, *, only_buffered: bool) -> Chunk | None:
        """The chunk to hand out from; None when there is none by the deadline."""
        while self._current is None:
            self._raise_if_closed()
            self._wake.clear()
            if self._has_trouble:
                self._raise_trouble()
                self._reset_diverging()
                await self._reset_out_of_range()
            if self._chunks:
                self._current = self._chunks.popleft()
                break
            if only_buffered or not await self._wait(deadline_s):
                return None
        return self._current

    async def _wait(self, deadline_s: float | None) -> bool:
        """Waits for the next event; False when the deadline has passed."""
        if not self._states:
            raise InvalidRequestError("no partition is assigned; call assign first")
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._wake.wait()
        except TimeoutError:
            return bool(self._chunks)
        return True

    # ---- trouble ---------------------------------------------------------------------------------------------------

    def _raise_trouble(self) -> None:
        """Raises the first error whose partition has nothing left that was fetched before it."""
        states = self._states.values()
        self._has_trouble = any(state.has_trouble for state in states)
        for state in states:
            if state.error is not None and not state.chunks_count:
                raise state.error

    def _reset_diverging(self) -> None:
        for state in list(self._states.values()):
            parted = state.diverging
            if parted is None or state.chunks_count:
                continue
            if self._reset_policy == "raise":
                raise LogTruncatedError(
                    f"{state.partition}: records from offset {parted.end_offset} to {state.fetch_offset} that were read are not "
                    "in the log any more: a replica without them was elected. Undo what was made of them, then seek to "
                    f"{parted.end_offset}.",
                    parted.end_offset,
                )
            _log.warning(
                "%s: the log was cut from %d to %d by an unclean election; reading on there",
                state.partition, state.fetch_offset, parted.end_offset,
            )  # fmt: skip
            self.seek(state.partition, parted.end_offset)

    async def _reset_out_of_range(self) -> None:
        for state in list(self._states.values()):
            refused = state.out_of_range
            if refused is None or state.chunks_count:
                continue
            partition, offset = state.partition, state.fetch_offset
            first = (await self.beginning_offsets([partition]))[partition]
            end = (await self.end_offsets([partition]))[partition]
            if state.out_of_range is not refused:
                continue
            if self._reset_policy == "raise":
                raise OffsetOutOfRangeError(
                    f"{partition}: offset {offset} does not exist; the log has offsets {first} to {end} (exclusive). "
                    'Seek to one of them, or set auto_offset_reset to "earliest" or "latest".',
                    first,
                    end,
                )
            self.seek(partition, first if self._reset_policy == "earliest" else end)

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise BrokerClosedError("this consumer was closed; make a new one")

    # ---- what the fetchers report ----------------------------------------------------------------------------------

    def _handle_metadata(self) -> None:
        """Newer metadata, or another assignment: each partition goes to the fetcher of its leader."""
        if self._is_closed:
            return
        for state in self._states.values():
            topic = self._view.image.topics.get(state.partition.topic)
            if topic is not None and topic.topic_id == state.topic_id:
                self._fetchers.follow(state)
            elif state.error is None:
                self._fetchers.leave(state)
                state.error = UnknownTopicOrPartitionError(f"topic {state.partition.topic} was deleted")
                self._handle_trouble()
        self._fetchers.stop_idle()

    def _handle_trouble(self) -> None:
        self._has_trouble = True
        self._wake.set()

    def _take_in(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        self._wake.set()

    def _unassign(self, partition: TopicPartition) -> None:
        state = self._states[partition]
        self.seek(partition, state.position)
        self._fetchers.leave(state)
        del self._states[partition]

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _is_current(self, partition: TopicPartition) -> bool:
        """Assigned, and the topic has not been deleted and made anew since."""
        state, topic = self._states.get(partition), self._view.image.topics.get(partition.topic)
        return state is not None and topic is not None and state.topic_id == topic.topic_id

    def _state(self, partition: tuple[str, int]) -> PartitionState:
        state = self._states.get(TopicPartition(*partition))
        if state is None:
            raise InvalidRequestError(f"{TopicPartition(*partition)} is not assigned; call assign first")
        return state

    async def _start_positions(
        self, new: list[TopicPartition], start: Start | Mapping[tuple[str, int], int], timeout_ms: int
    ) -> Mapping[TopicPartition, int]:
        if not isinstance(start, str):
            offsets = {TopicPartition(*partition): offset for partition, offset in start.items()}
            if missing := [str(partition) for partition in new if offsets.get(partition, -1) < 0]:
                raise InvalidRequestError(f"start has no offset for {', '.join(missing)}")
            return offsets
        return await self._offsets(new, EARLIEST_TIMESTAMP if start == "earliest" else LATEST_TIMESTAMP, timeout_ms)

    async def _offsets(self, partitions: Partitions, timestamp: int, timeout_ms: int) -> dict[TopicPartition, int]:
        self._raise_if_closed()
        wanted = {TopicPartition(*partition): timestamp for partition in partitions}
        found = await list_offsets(self._view, wanted, timeout_ms=timeout_ms) if wanted else {}
        return {partition: answer.offset for partition, answer in found.items()}


def _decode(chunk: Chunk, header: BatchHeader) -> list[ConsumerRecord]:
    """Records of one batch at or above the position, last first, so that handing out is a pop."""
    if header.is_control:
        return []
    topic, partition = chunk.state.partition
    position = chunk.state.position
    timestamp_type = header.timestamp_type
    new = tuple.__new__  # what ConsumerRecord(...) does in the end, at a third of the price
    return [
        new(ConsumerRecord, (topic, partition, offset, timestamp, timestamp_type, key, value, headers))
        for offset, timestamp, key, value, headers in reversed(decode_batch(chunk.data, header.position))
        if offset >= position
    ]
