"""Compaction of batches in pure Python: the twin of the compiled `_compaction`, and the readable statement of it.

Both make equal bytes, counts and errors.  Only the hash of keys differs (keyed BLAKE2b here, keyed SipHash there): it is
never stored, so nobody can see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from replog.errors import CorruptRecordError, InvalidRecordError
from replog.records._crc32c import crc32c
from replog.records.compaction_rules import (
    SLOT_BYTES,
    FillProgress,
    RewriteRules,
    Rewritten,
    TransactionFilter,
    checked_seed,
    map_room,
)
from replog.records.compression import compress_readable, decompress
from replog.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    scan,
)
from replog.records.model import HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_TIMESTAMP, Buffer, Codec, TimestampType

IMPLEMENTATION = "python"

_INT64_MAX: Final = 2**63 - 1
_HASH_BYTES: Final = 16
_OUT_OF_RANGE: Final = "a number or a field runs past the end of its record"


class OffsetMap:
    """Key -> offset of its newest record, by a 128-bit hash of the key, in one buffer that is allocated once.

    Why hashes: a map of keys would grow with the keys.  Two different keys of n get one hash with a probability of
    n^2 / 2^129: for the 5 million keys of the default buffer 4e-26 a pass.  The seed is secret and new for each pass, so
    that nobody can choose keys that collide.

    **Shape**: open addressing; slot = hash (16 bytes) | offset + 1 (8 bytes), native order; 0 = free.

    Args:
        size_bytes: The size of the buffer; memory is used only as entries come in.
        load_factor: The share of the slots that may be used, above 0, at most 0.99; high means slow look-ups.
        seed: 16 random bytes.

    Raises:
        ConfigError: No entry fits.

    Invariants:
        - `count <= capacity`;
        - offsets of a key never fall.
    """

    __slots__ = ("_seed", "_slots", "_table", "capacity", "count")

    def __init__(self, size_bytes: int, load_factor: float, seed: bytes) -> None:
        self._slots, self.capacity = map_room(size_bytes, load_factor)
        self._seed = checked_seed(seed)
        self._table = memoryview(bytearray(self._slots * SLOT_BYTES)).cast("Q")
        self.count = 0

    def put(self, key: Buffer, offset: int) -> bool:
        """Notes that `key` was written at `offset`, not below an earlier one; False when it is new and the map is full."""
        if not 0 <= offset < _INT64_MAX:
            raise ValueError(f"{offset} is no offset")
        table, slot, high, low = self._table, *self._find(key)
        if not table[3 * slot + 2]:
            if self.count >= self.capacity:
                return False
            self.count += 1
            table[3 * slot], table[3 * slot + 1] = high, low
        table[3 * slot + 2] = offset + 1
        return True

    def get(self, key: Buffer) -> int:
        """Returns the offset of the newest record of `key`; -1 when there is none."""
        return self._table[3 * self._find(key)[0] + 2] - 1

    def _find(self, key: Buffer) -> tuple[int, int, int]:
        """Returns (slot, two halves of the hash); the slot holds the key or is free."""
        digest = blake2b(key, digest_size=_HASH_BYTES, key=self._seed).digest()
        high, low = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
        slot = (high * self._slots) >> 64
        table = self._table
        while table[3 * slot + 2] and (table[3 * slot] != high or table[3 * slot + 1] != low):
            slot += 1
            if slot == self._slots:
                slot = 0
        return slot, high, low


class _Raw(NamedTuple):
    """One record as it stands in its batch: bytes [start, end), of which the rest after the timestamp begins at `rest`."""

    start: int
    rest: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool


def fill_offset_map(
    offset_map: OffsetMap,
    buffer: Buffer,
    start_offset: int,
    transactions: TransactionFilter,
    max_decompressed_bytes: int,
) -> FillProgress:
    """Implements `replog.records.compaction.fill_offset_map` in Python."""
    size_bytes = records_count = 0
    end_offset = -1
    for header in _checked(buffer):
        if not _is_dropped(header, buffer, transactions) and not header.is_control:
            for raw in _walk(header, _body(header, buffer, max_decompressed_bytes)):
                offset = header.base_offset + raw.offset_delta
                if raw.key is not None and offset >= start_offset and not offset_map.put(raw.key, offset):
                    return FillProgress(size_bytes, records_count, offset, is_full=True)
                records_count += 1
        size_bytes += header.size_bytes
        end_offset = header.next_offset
    return FillProgress(size_bytes, records_count, end_offset, is_full=False)


def rewrite_batches(
    buffer: Buffer,
    offset_map: OffsetMap,
    rules: RewriteRules,
    transactions: TransactionFilter,
    keeps_last: bool,
    max_decompressed_bytes: int,
) -> Rewritten:
    """Implements `replog.records.compaction.rewrite_batches` in Python."""
    out = bytearray()
    batches: list[tuple[int, int, int]] = []
    size_bytes = records_read = records_kept = 0
    for header in _checked(buffer):
        is_dropped = _is_dropped(header, buffer, transactions)
        keeps_header = (keeps_last and header.end_position == len(buffer)) or _is_last_of_producer(header, rules)
        batch, max_timestamp, count = _rewrite(
            header, buffer, offset_map, rules, is_dropped, keeps_header, max_decompressed_bytes
        )
        if batch:
            out += batch
            batches.append((len(batch), header.last_offset, max_timestamp))
        size_bytes += header.size_bytes
        records_read += header.records_count
        records_kept += count
    return Rewritten(bytes(out), batches, size_bytes, records_read, records_kept)


def _checked(buffer: Buffer) -> Iterator[BatchHeader]:
    for header in scan(buffer):
        check_crc(buffer, header)
        yield header


def _is_dropped(header: BatchHeader, buffer: Buffer, transactions: TransactionFilter) -> bool:
    """Whether a batch is aborted data, or a marker that decides nothing any more."""
    if header.is_control:
        return transactions.drops_marker(bytes(buffer[header.position : header.end_position]))
    return header.is_transactional and transactions.drops_data(header.producer_id, header.last_offset)


def _is_last_of_producer(header: BatchHeader, rules: RewriteRules) -> bool:
    if not header.has_producer_id:
        return False
    if header.is_control:
        return rules.marker_epochs.get(header.producer_id) == header.producer_epoch
    return header.last_offset in rules.last_data_offsets


def _rewrite(
    header: BatchHeader,
    buffer: Buffer,
    offset_map: OffsetMap,
    rules: RewriteRules,
    is_dropped: bool,
    keeps_header: bool,
    max_decompressed_bytes: int,
) -> tuple[bytes, int, int]:
    """Returns (bytes of the batch, its max timestamp, records in it); no bytes when nothing of it is kept."""
    is_past_horizon = header.has_delete_horizon and rules.now_ms >= header.base_timestamp
    kept: list[_Raw] = []
    body = b""
    if not is_dropped or (header.is_control and not is_past_horizon):
        body = _body(header, buffer, max_decompressed_bytes)
        raws = _walk(header, body)
        kept = [raw for raw in raws if header.is_control or _keeps(header, raw, offset_map, rules, is_past_horizon)]
    if not kept:
        return _empty(header, buffer) if keeps_header else b"", header.max_timestamp, 0
    has_tombstone = any(not raw.has_value for raw in kept) and header.last_offset < rules.clean_end_offset
    gets_horizon = (has_tombstone or (is_dropped and header.is_control)) and not header.has_delete_horizon
    if len(kept) == header.records_count and not gets_horizon:
        return bytes(buffer[header.position : header.end_position]), header.max_timestamp, len(kept)
    horizon = min(rules.now_ms + rules.delete_retention_ms, _INT64_MAX) if gets_horizon else None
    return *_rebuilt(header, body, kept, horizon), len(kept)


def _keeps(header: BatchHeader, raw: _Raw, offset_map: OffsetMap, rules: RewriteRules, is_past_horizon: bool) -> bool:
    offset = header.base_offset + raw.offset_delta
    if offset >= rules.clean_end_offset:
        return True
    if raw.key is None or offset_map.get(raw.key) > offset:
        return False
    return raw.has_value or not is_past_horizon


def _empty(header: BatchHeader, buffer: Buffer) -> bytes:
    """Returns only the header of a batch, so that offsets, sequence and epoch survive."""
    if header.size_bytes == HEADER_BYTES:
        return bytes(buffer[header.position : header.end_position])
    kept_bits = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
    return _batch(header, header.attributes & kept_bits, NO_TIMESTAMP, header.max_timestamp, 0, b"")


def _rebuilt(header: BatchHeader, body: bytes, kept: list[_Raw], horizon: int | None) -> tuple[bytes, int]:
    """Returns the batch with these records only: (its bytes, its max timestamp).

    Args:
        header: The header of the original; offsets, producer and codec stay.
        body: The original's records, decompressed.
        kept: The records that stay.
        horizon: The new base timestamp, to which every timestamp delta is made relative; None: the base stays.
    """
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    max_timestamp, base = NO_TIMESTAMP, header.base_timestamp
    parts: list[bytes] = []
    for raw in kept:
        timestamp = header.max_timestamp if is_append_time else base + raw.timestamp_delta
        max_timestamp = max(max_timestamp, timestamp)
        parts.append(body[raw.start : raw.end] if horizon is None else _rebased(header, body, raw, timestamp - horizon))
    attributes = header.attributes | (DELETE_HORIZON_BIT if horizon is not None else 0)
    section = compress_readable(header.codec, records := b"".join(parts))
    if section is None:
        attributes, section = attributes & ~CODEC_MASK, records
    batch = _batch(header, attributes, base if horizon is None else horizon, max_timestamp, len(kept), section)
    return batch, max_timestamp


def _batch(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, records_count: int, section: bytes
) -> bytes:
    """Returns a batch with the offsets, epoch and producer fields of `header`."""
    out = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        out,
        0,
        header.base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(section),
        header.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        records_count,
    )
    out += section
    crc = crc32c(memoryview(out)[ATTRIBUTES_POSITION:])
    out[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(out)


def _rebased(header: BatchHeader, body: bytes, raw: _Raw, timestamp_delta: int) -> bytes:
    if not -_INT64_MAX - 1 <= timestamp_delta <= _INT64_MAX:
        raise CorruptRecordError("", header.position, f"timestamp delta {timestamp_delta} cannot be stored")
    rest = b"\0" + _varint(timestamp_delta) + body[raw.rest : raw.end]
    return _varint(len(rest)) + rest


def _body(header: BatchHeader, buffer: Buffer, max_decompressed_bytes: int) -> bytes:
    section = memoryview(buffer)[header.position + HEADER_BYTES : header.end_position]
    if header.records_count == 0:
        return b""
    try:
        codec = header.codec
        return bytes(section) if codec is Codec.NONE else decompress(codec, section, max_decompressed_bytes)
    except InvalidRecordError as error:
        raise CorruptRecordError("", header.position, str(error)) from error


def _walk(header: BatchHeader, body: bytes) -> Iterator[_Raw]:
    """Yields the records of a batch, which must fill the body exactly and stay in its offsets.  Reads no headers."""
    position, last_delta = 0, -1
    for _ in range(header.records_count):
        try:
            raw = _read_raw(body, position)
        except ValueError as error:
            raise CorruptRecordError("", header.position, str(error)) from None
        _check_raw(header, raw, last_delta)
        position, last_delta = raw.end, raw.offset_delta
        yield raw
    if position != len(body):
        raise CorruptRecordError("", header.position, "bytes are left after the last record")


def _check_raw(header: BatchHeader, raw: _Raw, last_delta: int) -> None:
    if not last_delta < raw.offset_delta <= header.last_offset_delta:
        raise CorruptRecordError("", header.position, "offset deltas do not rise, or leave the batch")
    if header.timestamp_type is not TimestampType.LOG_APPEND_TIME:
        timestamp = header.base_timestamp + raw.timestamp_delta
        if not -_INT64_MAX - 1 <= timestamp <= _INT64_MAX:
            raise CorruptRecordError("", header.position, "a timestamp delta leaves the range of a timestamp")


def _read_raw(body: bytes, start: int) -> _Raw:
    length, position = _number(body, start, len(body), 5)
    end = position + length
    if length < 1 or end > len(body):
        raise ValueError(_OUT_OF_RANGE)
    timestamp_delta, rest = _number(body, position + 1, end, 10)
    offset_delta, position = _number(body, rest, end, 5)
    key_bytes, key_start = _number(body, position, end, 5)
    position = key_start + max(0, key_bytes)
    if key_bytes < -1 or position > end:
        raise ValueError(_OUT_OF_RANGE)
    value_bytes, position = _number(body, position, end, 5)
    if value_bytes < -1 or position + max(0, value_bytes) > end:
        raise ValueError(_OUT_OF_RANGE)
    key = body[key_start : key_start + key_bytes] if key_bytes >= 0 else None
    return _Raw(start, rest, end, offset_delta, timestamp_delta, key, value_bytes >= 0)


def _number(body: bytes, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Reads a zig-zag varint; returns (the number, the position behind it).

    Raises:
        ValueError: It does not end before `end`, or not within `bytes_max` bytes.
    """
    zigzag = 0
    for i in range(min(bytes_max, end - position)):
        byte = body[position + i]
        zigzag |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            zigzag &= (1 << (32 if bytes_max == 5 else 64)) - 1
            return (zigzag >> 1) ^ -(zigzag & 1), position + i + 1
    raise ValueError(_OUT_OF_RANGE)


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
