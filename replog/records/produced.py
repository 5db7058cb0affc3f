"""What a leader demands of a batch that a client sent (docs/KAFKA.md 4.1).

Header and checksum always, and the records of a batch that is not compressed: one that is none, with a right checksum,
stops librdkafka and kcat for ever without a word, and Kafka refuses it, too.  It is walked over in compiled code, from length to
length, without an object per record; keys and values are not touched, which the checksum has just brought into the cache.
Compressed records are looked at only where a topic's rules cannot be checked otherwise (keys of compacted topics, a lower
limit for timestamps), with a bound on what they decompress to: that takes ten to a hundred times as long as the checksum, on
the loop that serves everybody.  On other topics they are the client's business until a client reads them.  The largest timestamp is
the one the header states.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from replog.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from replog.records._crc32c import crc32c
from replog.records.batch import check_records, survey_records
from replog.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    parse_header,
)
from replog.records.model import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    Buffer,
    Codec,
    TimestampType,
)

_LOW_ATTRIBUTES_POSITION = ATTRIBUTES_POSITION + 1
_MAX_TIMESTAMP_POSITION = 35
_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")


def stamp_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Turns one batch into a LogAppendTime batch, in place: attribute bit 3, max timestamp, checksum.

    Why: where `message.timestamp.type=LogAppendTime`, readers see the time of the append on every record.  Kafka writes it
    into one place, the header's max timestamp, and leaves the records as they are: no record is decoded, recompressed or
    moved.  Attributes and max timestamp stand under the checksum, so the batch gets a new one.

    Args:
        batch: Exactly one batch whose checksum was found right (a wrong one would be made right here); writable.
        timestamp_ms: The wall time of the append, ms since 1970, from 0: what every record reads as from now on.

    Raises:
        InvalidRecordError: `batch` is shorter than a header, or `timestamp_ms` is no time.
    """
    if len(batch) < HEADER_BYTES:
        raise InvalidRecordError(f"{len(batch)} bytes are no batch; a header alone has {HEADER_BYTES}")
    if not 0 <= timestamp_ms < 2**63:
        raise InvalidRecordError(f"append time {timestamp_ms} ms is no time since 1970")
    batch[_LOW_ATTRIBUTES_POSITION] |= LOG_APPEND_TIME_BIT
    _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))


UNLIMITED_MS: Final = 2**63 - 1
"""For timestamp limits: any distance is allowed."""

LEADER_DECOMPRESSED_BYTES_MAX: Final = 32 * 1024 * 1024
"""What a leader decompresses of one batch: as much as the largest batch may have uncompressed."""

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, timestamp, offset, no key, no value and no headers, a byte each (docs/KAFKA.md 1.2)."""

UNDEFINED_BITS: Final = ~(CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT)


class KeylessRecordsError(InvalidRecordError):
    """Records have no key, and that is all that is wrong with their batch.

    Attributes:
        places: Where they stand in the batch, counted from 0; the first `KEYLESS_TOLD_MAX` of them.
    """

    def __init__(self, message: str, places: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.places = places


class RecordRules(Struct, frozen=True):
    """A topic's rules for records.

    Attributes:
        are_keys_required: Whether the topic is compacted, so that a record without a key could never be removed.
        timestamp_type: The kind of timestamps; with LOG_APPEND_TIME those of the client are ignored and not checked.
        timestamp_before_max_ms: The most that a timestamp may lie before the leader's clock, ms, from 0.
        timestamp_after_max_ms: The most that it may lie after it, ms, from 0.
    """

    are_keys_required: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = UNLIMITED_MS
    timestamp_after_max_ms: int = UNLIMITED_MS


NO_RULES: Final = RecordRules()


def validate_produced(
    buffer: Buffer, *, max_batch_bytes: int, rules: RecordRules = NO_RULES, now_ms: int = 0, decompresses: bool = True
) -> BatchHeader:
    """Checks that `buffer` is exactly one well-formed client batch.

    Args:
        buffer: The bytes of one batch, nothing before or after it; read only.
        max_batch_bytes: `max.message.bytes` of the topic.
        rules: The rules of the topic.
        now_ms: The wall time of the leader, for timestamp limits.
        decompresses: Whether compressed records are looked at where the rules ask for it; False: the caller has that done
            where it may take long, see `must_decompress`.

    Returns:
        Its header, at position 0.

    Raises:
        RecordTooLargeError: The batch is bigger than `max_batch_bytes`.
        CorruptRecordError: It is no batch of magic 2, cut short, or damaged on the way (send it again).
        InvalidRecordError: A rule for clients is broken, or the records are none (sending it again does not help).
        InvalidTimestampError: The topic does not take the timestamp type or a timestamp.
        UnsupportedCompressionError: The codec is unknown, or its library is missing here although it is needed.
    """
    header = parse_header(buffer)
    if header.size_bytes > max_batch_bytes:
        raise RecordTooLargeError(
            f"batch of {header.size_bytes} bytes, max.message.bytes is {max_batch_bytes}: "
            "send smaller batches or raise the topic's limit"
        )
    if header.size_bytes < len(buffer):
        raise InvalidRecordError(f"{len(buffer) - header.size_bytes} bytes follow the batch; one batch is expected")
    check_crc(buffer, header)
    _check_client_rules(header)
    _check_records(buffer, header, rules, now_ms, decompresses=decompresses)
    return header


def must_decompress(header: BatchHeader, rules: RecordRules) -> bool:
    """Whether the rules of a topic cannot be checked without the compressed records of a batch.

    A client decides how long that takes: up to `LEADER_DECOMPRESSED_BYTES_MAX`, of a few kilobytes.
    """
    return header.codec is not Codec.NONE and _looks_at_records(rules)


def _looks_at_records(rules: RecordRules) -> bool:
    has_limits = rules.timestamp_type is TimestampType.CREATE_TIME
    return rules.are_keys_required or (has_limits and rules.timestamp_before_max_ms != UNLIMITED_MS)


def _check_client_rules(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecordError(f"base offset {header.base_offset} in a client's batch: the leader assigns offsets")
    if header.is_control:
        raise InvalidRecordError("clients may not write control batches")
    if header.is_transactional and not header.has_producer_id:
        raise InvalidRecordError("the batch claims to be part of a transaction, and names no producer")
    if header.attributes & UNDEFINED_BITS:
        raise InvalidRecordError(f"attributes {header.attributes:#x} in a client's batch: bits 7 to 15 have no meaning")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestampError("clients may not set the timestamp type to log append time")
    if header.records_count < 1 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"{header.records_count} records with a last offset delta of {header.last_offset_delta}: "
            "a client's batch has at least one record and no gaps"
        )
    if header.records_count > _records_count_max(header):
        raise InvalidRecordError(
            f"{header.records_count} records in a batch of {header.size_bytes} bytes: the shortest record takes "
            f"{RECORD_BYTES_MIN}"
        )
    if header.has_delete_horizon:
        raise InvalidRecordError("clients may not set a delete horizon: compaction does")
    _check_header_timestamps(header)
    _check_producer_fields(header)


def _records_count_max(header: BatchHeader) -> int:
    """Returns the most records that a header may claim; more would use up offsets that no record ever gets."""
    is_compressed = bool(header.attributes & CODEC_MASK)
    records_bytes = LEADER_DECOMPRESSED_BYTES_MAX if is_compressed else header.size_bytes - HEADER_BYTES
    return records_bytes // RECORD_BYTES_MIN


def _check_header_timestamps(header: BatchHeader) -> None:
    """Checks the timestamps of a header, which time indexes and retention would go by."""
    if header.base_timestamp < NO_TIMESTAMP or header.max_timestamp < header.base_timestamp:
        raise InvalidTimestampError(
            f"base timestamp {header.base_timestamp} and largest timestamp {header.max_timestamp}: each is a time since "
            f"1970 in milliseconds or {NO_TIMESTAMP} for none, and the largest is the later one"
        )


def _check_producer_fields(header: BatchHeader) -> None:
    """Checks epoch and sequence of an idempotent batch; without a producer id they say nothing (aiokafka sends sequence 0)."""
    if header.has_producer_id and min(header.producer_id, header.producer_epoch, header.base_sequence) < 0:
        raise InvalidRecordError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence {header.base_sequence}; "
            "all must be at least 0"
        )


def _check_records(buffer: Buffer, header: BatchHeader, rules: RecordRules, now_ms: int, *, decompresses: bool) -> None:
    is_compressed = header.codec is not Codec.NONE  # raises for codecs that the format does not define
    has_limits = rules.timestamp_type is TimestampType.CREATE_TIME
    min_timestamp, max_timestamp = NO_TIMESTAMP, header.max_timestamp
    if _looks_at_records(rules) and (decompresses or not is_compressed):
        survey = survey_records(buffer, max_decompressed_bytes=LEADER_DECOMPRESSED_BYTES_MAX, is_checked=False)
        if rules.are_keys_required and survey.null_keys_count:
            raise KeylessRecordsError(
                f"{survey.null_keys_count} of {survey.records_count} records have no key: "
                "a compacted topic (cleanup.policy) keeps the newest record of every key",
                survey.null_key_places,
            )
        min_timestamp, max_timestamp = survey.min_timestamp, max(max_timestamp, survey.max_timestamp)
    elif not is_compressed:
        check_records(buffer, is_checked=False)
    if has_limits:
        _check_timestamps(min_timestamp, max_timestamp, rules, now_ms)


def _check_timestamps(min_timestamp: int, max_timestamp: int, rules: RecordRules, now_ms: int) -> None:
    if max_timestamp != NO_TIMESTAMP and max_timestamp - now_ms > rules.timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {max_timestamp} is {max_timestamp - now_ms} ms after the leader's clock, "
            f"message.timestamp.after.max.ms is {rules.timestamp_after_max_ms}"
        )
    if min_timestamp != NO_TIMESTAMP and now_ms - min_timestamp > rules.timestamp_before_max_ms:
        raise InvalidTimestampError(
            f"timestamp {min_timestamp} is {now_ms - min_timestamp} ms before the leader's clock, "
            f"message.timestamp.before.max.ms is {rules.timestamp_before_max_ms}"
        )
