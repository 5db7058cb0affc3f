"""`Consumer`: reads partitions from given offsets on, in order, never past the high watermark."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from types import TracebackType
from typing import Literal, Self, get_args

from replog.choices import require_at_least, require_choice, require_kind
from replog.client.arguments import (
    partition_of,
    partitions_of,
    require_limit,
    require_mapping,
    require_text,
    require_whole,
)
from replog.client.cluster.leader_calls import require_partitions
from replog.client.cluster.view import ClusterView
from replog.client.consumer.backlog import Backlog
from replog.client.consumer.fetch_state import FetchedChunk, PartitionFetch
from replog.client.consumer.fetcher import FetchSettings
from replog.client.consumer.fetcher_pool import FetcherPool
from replog.client.consumer.start import Start, check_start, is_offset, offsets_at, start_positions
from replog.client.types import ConsumerRecord, FetchedBatches, TopicPartition
from replog.ending import Ending
from replog.errors import (
    BrokerClosedError,
    InvalidRequestError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    raised_anew,
)
from replog.rpc.forks import raise_if_forked, tell_at_fork
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from replog.rpc.transport import Transport

OffsetReset = Literal["raise", "earliest", "latest"]
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
        auto_offset_reset: What to do when a position does not exist in the log (any more): "raise"
            OffsetOutOfRangeError, or go to the "earliest" or "latest" offset.  Default "raise": skipping records is
            never decided silently.
        fetch_max_wait_ms, fetch_min_bytes, fetch_max_bytes, max_partition_fetch_bytes: Fields of `FetchSettings`.
        buffer_memory_bytes, request_timeout_ms: Fields of `FetchSettings`, too.
        connect_timeout_ms: How long `start` waits for a first broker to answer.
        client_rack: Where this consumer runs: it reads from in-sync replicas on brokers with the same `broker.rack`,
            where the brokers' `replica.selector` is rack-aware; else from the leaders.
        client_id: The name of this client in the brokers' logs.
        transport: What connects to brokers; the default is gRPC.

    Raises:
        ConfigError: A setting is wrong.

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
        require_choice("auto.offset.reset", auto_offset_reset, get_args(OffsetReset))
        require_at_least("connect.timeout.ms", connect_timeout_ms, 1)
        require_kind("client.rack", client_rack, str)
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
        self._states: dict[TopicPartition, PartitionFetch] = {}
        self._fetchers = FetcherPool(
            self._view, self._settings, client_rack=client_rack, on_chunk=self._take_in, on_trouble=self._handle_trouble
        )
        self._backlog = Backlog(self._fetchers.release, self._handle_trouble)
        self._wake = asyncio.Event()
        self._has_trouble = False
        self._bytes_since_yield = 0
        self._is_closed = False
        self._ending = Ending(self._release)
        tell_at_fork(self)

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
        """Connects.  Raises: As `Producer.start`."""
        await self._view.ready(self._connect_timeout_ms)

    async def close(self) -> None:
        """Stops fetching and closes the connections.  A reader that waits gets BrokerClosedError."""
        if not self._view.is_out_of_reach:
            self._view.home.enter()
        self._is_closed = True
        self._backlog.clear()
        if self._view.is_out_of_reach:
            await self._view.close()
            return
        self._wake.set()
        await self._ending.wait()

    def handle_fork(self) -> None:
        """Drops in a forked child what is there already: nothing is handed out there, the parent reads on."""
        self._backlog.clear()

    async def _release(self) -> None:
        await self._fetchers.close()
        await self._view.close()
        self._backlog.clear()

    # ---- what to read ----------------------------------------------------------------------------------------------

    async def assign(
        self,
        partitions: Partitions,
        *,
        start: Start | Mapping[tuple[str, int], int] = "earliest",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """Reads these partitions from now on; positions of partitions that were assigned before are kept.

        A partition without a leader holds up no other: from "earliest" or an offset it is read as soon as it has a leader,
        and the log says that it is waited for.  "latest" is a place in time, which only a leader can tell: it is waited for.

        Args:
            partitions: (topic, partition) pairs, which replace the assignment.
            start: Where newly assigned partitions begin: "earliest", "latest" (the high watermark), or an offset for
                each, which saves asking the leaders.
            timeout_ms: Limit of the time it takes to learn the offsets.

        Raises:
            ConfigError: `start` is another word, or nothing of the kind.
            InvalidRequestError: It lacks a partition, or has something for one that is no offset, such as the -1 of
                `list_offsets` where no record is as late as asked for.
            UnknownTopicOrPartitionError: One does not exist.
            RequestTimedOutError: A leader did not tell its offsets in time, or, for "latest", there was none; it names the
                partitions.
        """
        self._raise_if_closed()
        check_start(start)
        require_limit("timeout_ms", timeout_ms)
        wanted = dict.fromkeys(partitions_of("partitions", partitions))
        await require_partitions(self._view, wanted)
        new = {partition: None for partition in wanted if not self._is_current(partition)}
        positions = await start_positions(self._view, new, start, timeout_ms)
        for partition in new:
            if (
                partition.topic not in self._view.image.topics
            ):  # before anything is changed: an assignment is all or nothing
                raise UnknownTopicOrPartitionError(f"topic {partition.topic} was deleted")
        for partition in [p for p in self._states if p in new or p not in wanted]:
            self._unassign(partition)
        for partition in new:
            self._states[partition] = self._new_state(partition, positions.get(partition))
        self._handle_metadata()

    def _new_state(self, partition: TopicPartition, position: int | None) -> PartitionFetch:
        """Makes the state of a partition read from `position`; None: from its log start, which nobody could tell."""
        topic_id = self._view.image.topics[partition.topic].topic_id
        if position is not None:
            return PartitionFetch(partition, topic_id, position)
        self._view.request_refresh()
        _log.warning("%s; it is read as soon as it has one", self._view.image.why_leaderless(*partition))
        state = PartitionFetch(partition, topic_id, 0)
        state.is_at_log_start = True
        return state

    async def assign_topic(
        self, topic: str, *, start: Start = "earliest", timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> list[TopicPartition]:
        """Assigns all partitions of one topic; returns them.

        Args:
            topic: The topic's name.
            start: Where newly assigned partitions begin: "earliest" or "latest"; for an offset of each, use `assign`.
            timeout_ms: Limit of the time it takes to learn the offsets.

        Raises: As `assign`.
        """
        require_choice("start", start, get_args(Start))
        require_text("topic", topic)
        info = await self._view.topic_or_raise(topic)
        partitions = [TopicPartition(topic, partition.partition_id) for partition in info.partitions]
        await self.assign(partitions, start=start, timeout_ms=timeout_ms)
        return partitions

    def assignment(self) -> list[TopicPartition]:
        return list(self._states)

    def position(self, partition: tuple[str, int]) -> int:
        """Returns the offset of the next record that will be handed out.

        Raises:
            InvalidRequestError: The partition is not assigned.
            LeaderNotAvailableError: It was assigned without a leader, and no leader has told yet where its log starts.
        """
        state = self._state(partition)
        if state.is_at_log_start:
            raise LeaderNotAvailableError(
                f"{self._view.image.why_leaderless(*state.partition)}: nobody can tell where it starts yet"
            )
        return state.position

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Reads on at `offset`.  Whether it exists shows when it is fetched (see `auto_offset_reset`).

        Raises:
            InvalidRequestError: The partition is not assigned, or the offset is negative.
        """
        if not is_offset(offset):
            raise InvalidRequestError(f"cannot seek to offset {offset!r}; see seek_to_beginning and seek_to_end")
        self._raise_if_closed()
        state = self._state(partition)
        self._backlog.drop(state)
        state.seek(index(offset))
        self._fetchers.wake(state)

    def rewind(self, positions: Mapping[TopicPartition, int]) -> None:
        """Takes back what was handed out from these offsets on: a caller could not pass it on to whom it was for."""
        self._raise_if_closed()
        require_mapping("positions", positions, 'a dict such as {("flights", 0): 17}')
        for partition, offset in positions.items():
            state = self._states.get(partition)
            if state is not None and offset < state.position:
                self._backlog.drop(state)
                state.rewind(offset)
                self._fetchers.wake(state)
        if positions:
            self._handle_metadata()  # a topic that was deleted meanwhile is told again

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
        """Asks the leaders for the first offset of each partition."""
        return await self._offsets(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    async def end_offsets(
        self, partitions: Partitions, *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Asks the leaders for the high watermark of each partition: the offset after the last readable record."""
        return await self._offsets(partitions, LATEST_TIMESTAMP, timeout_ms)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Returns the next record of any assigned partition; waits for one.

        Raises:
            OffsetOutOfRangeError: A position does not exist and `auto_offset_reset` is "raise"; `seek` mends it.
            LogTruncatedError: Records that were read were lost in an unclean election, likewise.
            CorruptRecordError: What a broker sent is damaged.
            UnknownTopicOrPartitionError: A topic was deleted.
            InvalidRequestError: No partition is assigned.
        """
        while not self._backlog.has_records:
            await self._decode_ahead(1, None)
        return self._backlog.take_one()

    async def poll(
        self, max_records: int = POLL_RECORDS_MAX, timeout_ms: int = POLL_TIMEOUT_MS
    ) -> list[ConsumerRecord]:
        """Returns up to `max_records` records; waits up to `timeout_ms` for the first.  Raises: As `__anext__`.

        A call that raises or is cancelled has handed out nothing and moved no position.
        """
        self._raise_if_closed()
        require_whole("max_records", max_records)
        require_limit("timeout_ms", timeout_ms)
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        await self._decode_ahead(max_records, deadline_s)
        return self._backlog.take(max_records)  # from here to the caller nothing waits

    async def fetch_batches(self, timeout_ms: int = POLL_TIMEOUT_MS) -> list[FetchedBatches]:
        """Returns everything that is fetched ahead, undecoded; waits up to `timeout_ms` for the first piece.

        For readers that decode columns by themselves.  Control batches are left in.  Raises: As `__anext__`, and as
        there, a call that raises or is cancelled has moved no position.
        """
        self._raise_if_closed()
        require_limit("timeout_ms", timeout_ms)
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        if not self._backlog.has_records:
            await self._wait_for_chunk(deadline_s)
        return self._backlog.take_pieces()

    async def _decode_ahead(self, count: int, deadline_s: float | None) -> None:
        """Decodes until `count` records can be handed out or all that is fetched is decoded; waits for the first.

        It moves no position past a record, so that a reader that is cancelled or told of an error here loses nothing.
        """
        backlog = self._backlog
        while backlog.records_count < count:
            if backlog.has_records and (self._has_trouble or not backlog.has_chunks):
                return  # trouble is told by the next call, once what there is has been handed out
            if not backlog.has_records and not await self._wait_for_chunk(deadline_s):
                return
            await self._decode_next()

    async def _decode_next(self) -> None:
        self._bytes_since_yield += self._backlog.decode_next()
        if self._bytes_since_yield >= YIELD_BYTES:  # a busy reader lets the fetchers have their turn
            self._bytes_since_yield = 0
            await asyncio.sleep(0)

    async def _wait_for_chunk(self, deadline_s: float | None) -> bool:
        """Waits until there is a chunk and nothing to tell before it; False when the deadline has passed."""
        while True:
            self._raise_if_closed()
            self._wake.clear()
            if self._has_trouble:
                self._raise_trouble()
                self._reset_diverging()
                await self._reset_out_of_range()
            if self._backlog.has_chunks:
                return True
            if not await self._wait(deadline_s):
                return False

    async def _wait(self, deadline_s: float | None) -> bool:
        """Waits for the next event; False when the deadline has passed without a chunk."""
        if not self._states:
            raise InvalidRequestError("no partition is assigned; call assign first")
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._wake.wait()
        except TimeoutError:
            return self._backlog.has_chunks
        return True

    # ---- trouble ---------------------------------------------------------------------------------------------------

    def _raise_trouble(self) -> None:
        """Raises the first error whose partition has nothing left that was fetched before it."""
        states = self._states.values()
        self._has_trouble = any(state.has_trouble for state in states)
        for state in states:
            if state.error is not None and not state.chunks_count:
                raise raised_anew(state.error)

    def _reset_diverging(self) -> None:
        for state in list(self._states.values()):
            parted = state.diverging
            if parted is None or state.chunks_count:
                continue
            if self._reset_policy == "raise":
                raise state.truncated_error(parted.end_offset)
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
            partition = state.partition
            first = (await self.beginning_offsets([partition]))[partition]
            end = (await self.end_offsets([partition]))[partition]
            if state.out_of_range is not refused:
                continue
            if self._reset_policy == "raise":
                raise state.out_of_range_error(first, end)
            self.seek(partition, first if self._reset_policy == "earliest" else end)

    def _raise_if_closed(self) -> None:
        raise_if_forked()
        if self._is_closed:
            raise BrokerClosedError("this consumer was closed; make a new one")
        self._view.home.enter()

    # ---- what the fetchers report ----------------------------------------------------------------------------------

    def _handle_metadata(self) -> None:
        """Gives each partition to the fetcher that reads it by the newest metadata; stops those of deleted topics."""
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

    def _take_in(self, chunk: FetchedChunk) -> None:
        self._backlog.add(chunk)
        self._wake.set()

    def _unassign(self, partition: TopicPartition) -> None:
        state = self._states[partition]
        self._backlog.drop(state)
        self._fetchers.leave(state)
        del self._states[partition]

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _is_current(self, partition: TopicPartition) -> bool:
        """Whether the partition is assigned, and its topic has not been deleted, or made anew, since."""
        state, topic = self._states.get(partition), self._view.image.topics.get(partition.topic)
        return state is not None and topic is not None and state.topic_id == topic.topic_id

    def _state(self, partition: tuple[str, int]) -> PartitionFetch:
        wanted = partition_of("partition", partition)
        state = self._states.get(wanted)
        if state is None:
            raise InvalidRequestError(f"{wanted} is not assigned; call assign first")
        return state

    async def _offsets(self, partitions: Partitions, timestamp: int, timeout_ms: int) -> dict[TopicPartition, int]:
        self._raise_if_closed()
        require_limit("timeout_ms", timeout_ms)
        return await offsets_at(self._view, partitions_of("partitions", partitions), timestamp, timeout_ms)
