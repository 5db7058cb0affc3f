"""What a consumer has fetched and not handed out: chunks, and batches of them that are decoded already.  Pure.

Why decoding and handing out are two steps: what was handed out is exactly what lies below a position.  A reader waits, and
may be cancelled or told of an error, while batches are decoded; never between moving a position and returning what is below
it.  So nothing here waits, and only what returns records or pieces moves a position past them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from replog.client.consumer.fetch_state import FetchedChunk, PartitionFetch
from replog.client.typed_records import RecordDecoder, Typed
from replog.client.types import ConsumerRecord, FetchedBatches, TopicPartition
from replog.errors import InvalidRecordError, RecordDecodeError, ReplogError, RetriableError
from replog.records import BatchHeader, check_crc, decode_placed


class _Decoded(Struct):
    """One batch.

    Attributes:
        records: What is not handed out of it, last first, so that handing out is a pop.
        next_index: The chunk's first batch after this one.
        end_offset: Where the position is when all of them are handed out: the end of the batch, or a record that cannot be decoded.
    """

    chunk: FetchedChunk
    records: list[Typed]
    next_index: int
    end_offset: int


class Backlog:
    """Invariants:
        - chunks and batches are handed out in the order in which they came;
        - the first decoded batch has records;
        - a chunk is released once, when the last of it was handed out or dropped.

    Args:
        release: A function that is told of each chunk that is done with.
        on_trouble: A function that is called when a batch is damaged, or a record cannot be decoded: the partition's state has the
            error then.
        decoder: What decodes keys and values; None: they are bytes.

    Attributes:
        records_count: The records that are decoded and not handed out.
    """

    def __init__(
        self,
        release: Callable[[FetchedChunk], None],
        on_trouble: Callable[[], None],
        decoder: RecordDecoder | None = None,
    ) -> None:
        self._release = release
        self._on_trouble = on_trouble
        self._decoder = decoder
        self.records_count = 0
        self._chunks: deque[FetchedChunk] = deque()  # with batches that are not decoded
        self._decoded: deque[_Decoded] = deque()
        self._parked: dict[PartitionFetch, tuple[list[_Decoded], list[FetchedChunk]]] = {}  # of paused partitions

    @property
    def has_chunks(self) -> bool:
        """Whether there is something to decode."""
        return bool(self._chunks)

    @property
    def has_records(self) -> bool:
        """Whether there is something decoded to hand out."""
        return bool(self._decoded)

    @property
    def held_bytes(self) -> int:
        """Size of the chunks that are not released."""
        parked = [chunk for state in self._parked for chunk in self._parked_chunks(state)]
        return sum(len(chunk.data) for chunk in (*self._all_chunks(), *parked))

    def add(self, chunk: FetchedChunk) -> None:
        """Takes in what was fetched."""
        parked = self._parked.get(chunk.state)
        if parked is None:
            self._chunks.append(chunk)
        else:
            parked[1].append(chunk)

    def park(self, state: PartitionFetch) -> None:
        """Sets aside what is, and will be, fetched of a partition."""
        decoded = [batch for batch in self._decoded if batch.chunk.state is state]
        self._parked[state] = (decoded, [chunk for chunk in self._chunks if chunk.state is state])
        self._remove(state)

    def unpark(self, state: PartitionFetch) -> None:
        """Hands out again what was set aside, behind what else there is."""
        decoded, chunks = self._parked.pop(state, ([], []))
        self._decoded.extend(decoded)
        self._chunks.extend(chunks)
        self._recount()

    def decode_next(self) -> int:
        """Decodes the next batch; there is one.  Returns its size in bytes.

        A damaged one stops its partition, a record that cannot be decoded does so behind those before it.

        Raises:
            RetriableError, MemoryError: A codec cannot work now; nothing has changed.
        """
        chunk = self._chunks[0]
        header = chunk.headers[chunk.decoded_count]
        undecodable: RecordDecodeError | None = None
        try:
            if self._decoder is None:
                records: list[Typed] = _decode(chunk, header)
            else:
                records, undecodable = self._decoder.decode_all(lambda: _decode(chunk, header))
        except RetriableError:
            raise
        except ReplogError as error:
            self._stop_at(chunk, header.base_offset, _placed(error, chunk.state.partition, header))
            return header.size_bytes
        end_offset = header.next_offset if undecodable is None else undecodable.record.offset
        chunk.decoded_count += 1
        if chunk.decoded_count == len(chunk.headers):
            self._chunks.popleft()
        self.records_count += len(records)
        self._decoded.append(_Decoded(chunk, records, chunk.decoded_count, end_offset))
        if undecodable is not None:
            self._stop_at(chunk, end_offset, undecodable)
        self._finish_empty()
        return header.size_bytes

    def take_one(self) -> Typed:
        """Hands out the next record; there is one."""
        batch = self._decoded[0]
        record = batch.records.pop()
        self.records_count -= 1
        batch.chunk.state.position = record.offset + 1
        if not batch.records:
            self._finish_empty()
        return record

    def take(self, count_max: int) -> list[Typed]:
        """Hands out the next records, in order."""
        found: list[Typed] = []
        while self._decoded and len(found) < count_max:
            batch = self._decoded[0]
            count = count_max - len(found)
            records = batch.records[: -count - 1 : -1]
            del batch.records[-count:]
            batch.chunk.state.position = records[-1].offset + 1
            if not batch.records:
                self._finish_empty()
            found += records
        self.records_count -= len(found)
        return found

    def take_pieces(self) -> list[FetchedBatches]:
        """Hands out everything, undecoded; of batches that were handed out in part the whole."""
        chunks = self._all_chunks()
        self._chunks.clear()
        self._decoded.clear()
        self.records_count = 0
        return [self._piece(chunk) for chunk in chunks]

    def drop(self, state: PartitionFetch) -> None:
        """Forgets what was fetched of one partition."""
        dropped = [chunk for chunk in self._all_chunks() if chunk.state is state]
        if dropped:
            self._remove(state)
        if state in self._parked:
            dropped += self._parked_chunks(state)
            self._parked[state] = ([], [])
        for chunk in dropped:
            self._release(chunk)

    def clear(self) -> None:
        """Forgets everything and releases nothing."""
        self._chunks.clear()
        self._decoded.clear()
        self._parked.clear()
        self.records_count = 0

    def _remove(self, state: PartitionFetch) -> None:
        self._chunks = deque(chunk for chunk in self._chunks if chunk.state is not state)
        self._decoded = deque(batch for batch in self._decoded if batch.chunk.state is not state)
        self._recount()

    def _recount(self) -> None:
        self.records_count = sum(len(batch.records) for batch in self._decoded)
        self._finish_empty()

    def _parked_chunks(self, state: PartitionFetch) -> list[FetchedChunk]:
        decoded, chunks = self._parked[state]
        return list(dict.fromkeys((*(batch.chunk for batch in decoded), *chunks)))

    def _all_chunks(self) -> list[FetchedChunk]:
        return list(dict.fromkeys((*(batch.chunk for batch in self._decoded), *self._chunks)))

    def _piece(self, chunk: FetchedChunk) -> FetchedBatches:
        state, start_offset = chunk.state, chunk.state.position
        start = chunk.headers[chunk.next_index].position
        data = memoryview(chunk.data)[start : chunk.headers[-1].end_position]
        state.position = chunk.next_offset
        if (
            state.fetch_offset < chunk.next_offset
        ):  # it was stopped at a record that no codec decodes, and which goes out here
            state.rewind(chunk.next_offset)
        self._release(chunk)
        return FetchedBatches(*state.partition, start_offset, chunk.next_offset, chunk.high_watermark, data)

    def _finish_empty(self) -> None:
        """Passes the batches at the front that have no record (left): removed by compaction, control, handed out."""
        while self._decoded and not self._decoded[0].records:
            batch = self._decoded.popleft()
            chunk = batch.chunk
            chunk.next_index = batch.next_index
            chunk.state.position = max(chunk.state.position, batch.end_offset)
            if chunk.next_index == len(chunk.headers):
                self._release(chunk)

    def _stop_at(self, chunk: FetchedChunk, offset: int, error: ReplogError) -> None:
        """Ends the reading of this partition in front of `offset`; what was decoded before it is handed out first."""
        state = chunk.state
        dropped = [later for later in self._chunks if later.state is state and later is not chunk]
        self._chunks = deque(other for other in self._chunks if other.state is not state)
        del chunk.headers[chunk.decoded_count :]
        if len(chunk.headers) == chunk.next_index:
            dropped.append(chunk)
        state.stop(max(state.position, offset), error.with_traceback(None))
        for each in dropped:
            self._release(each)
        self._on_trouble()


def _placed(error: ReplogError, partition: TopicPartition, header: BatchHeader) -> ReplogError:
    """Returns an error of records with where they stand; their checksum is right, so it would be the same from any replica."""
    if type(error) is not InvalidRecordError:
        return error
    return InvalidRecordError(
        f"{partition}: the records at offsets {header.base_offset} to {header.last_offset} cannot be read, as their producer wrote "
        f"them: {error}. seek({tuple(partition)!r}, {header.next_offset}) goes on behind them"
    )


def _decode(chunk: FetchedChunk, header: BatchHeader) -> list[ConsumerRecord]:
    """Returns the records of one batch at or above the position, last first; of a control batch none."""
    if header.is_control:
        check_crc(chunk.data, header)  # a wrong attribute would hide records
        return []
    place = (*chunk.state.partition, header.timestamp_type)
    return decode_placed(chunk.data, header.position, chunk.state.position, ConsumerRecord, place)
