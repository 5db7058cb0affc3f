"""One partition of a fake cluster: a list of batches, with the producer's sequence checked as a broker does."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from replog.errors import (
    ErrorCode,
)
from replog.records import Record, decode_records, parse_header, restamped_prefix
from replog.rpc.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    DivergingEpoch,
)


@dataclass
class FakeLog:
    topic_id: UUID
    partition_id: int
    leader: int
    leader_epoch: int = 0
    log_start_offset: int = 0
    parted: DivergingEpoch | None = None  # where what consumers have read parts from what is there
    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    high_watermark: int | None = None
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)  # producer id -> epoch, next sequence
    recent: dict[tuple[int, int, int], int] = field(default_factory=dict)  # (id, epoch, base sequence) -> base offset

    @property
    def visible_offset(self) -> int:
        return self.end_offset if self.high_watermark is None else self.high_watermark

    def append(self, batch: bytes) -> tuple[ErrorCode, int]:
        """A leader's append, duplicates recognised."""
        header = parse_header(batch)
        if header.producer_id >= 0:
            epoch = header.producer_epoch
            key = (header.producer_id, epoch, header.base_sequence)
            if key in self.recent:
                return ErrorCode.NONE, self.recent[key]
            last_epoch, expected = self.sequences.get(header.producer_id, (epoch, header.base_sequence))
            if epoch < last_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.base_sequence != (0 if epoch > last_epoch else expected):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.sequences[header.producer_id] = epoch, header.base_sequence + header.records_count
            self.recent[key] = self.end_offset
            for old in [k for k in self.recent if k[0] == header.producer_id][:-5]:
                del self.recent[old]  # a broker remembers five batches of a producer
        base_offset = self.end_offset
        prefix = restamped_prefix(batch, 0, base_offset, self.leader_epoch)
        self.batches.append(prefix + batch[len(prefix) :])
        self.end_offset += header.records_count
        return ErrorCode.NONE, base_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        for batch in self.batches:
            header = parse_header(batch)
            if header.next_offset <= offset or header.next_offset > self.visible_offset:
                continue
            if found and sum(map(len, found)) + len(batch) > max_bytes:
                break
            found.append(batch)
        return b"".join(found)

    def find(self, timestamp: int) -> tuple[int, int]:
        """A leader's answer to one look-up of an offset: offset and timestamp."""
        if timestamp == EARLIEST_TIMESTAMP:
            return self.log_start_offset, -1
        if timestamp == LATEST_TIMESTAMP:
            return self.visible_offset, -1
        for record in self.records():
            if record.timestamp >= timestamp and self.log_start_offset <= record.offset < self.visible_offset:
                return record.offset, record.timestamp
        return -1, -1

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """A leader's answer about the end of a leader epoch: the largest epoch not above it that wrote, and its end."""
        headers = [parse_header(batch) for batch in self.batches]
        later = [header.base_offset for header in headers if header.partition_leader_epoch > epoch]
        known = [h.partition_leader_epoch for h in headers if h.partition_leader_epoch <= epoch]
        return max(known, default=0), min(later, default=self.end_offset)

    def truncate(self, offset: int) -> None:
        """Loses what an unclean election takes away."""
        self.batches = [batch for batch in self.batches if parse_header(batch).next_offset <= offset]
        self.end_offset = offset

    def records(self) -> list[Record]:
        return decode_records(b"".join(self.batches))

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]
