"""What a leader demands of a batch that a client sent (kafka-reference 4.1).

Header and checksum only: what is inside the records is the client's business until a client reads it.
"""

from __future__ import annotations

from replog.errors import InvalidRecordError, RecordTooLargeError
from replog.records.header import BatchHeader, check_crc, parse_header
from replog.records.model import Buffer, TimestampType


def validate_produced(buffer: Buffer, *, max_batch_bytes: int) -> BatchHeader:
    """Checks that `buffer` is exactly one well-formed client batch.

    Args:
        buffer: one batch, nothing before or after it; read only.
        max_batch_bytes: `max.message.bytes` of the topic.

    Returns:
        Its header, at position 0.

    Raises:
        RecordTooLargeError: bigger than `max_batch_bytes`.
        CorruptRecordError: not a batch of magic 2, cut short, or damaged on the way (send it again).
        InvalidRecordError: a rule for clients is broken (see the message; sending it again does not help).
        UnsupportedCompressionError: an unknown codec.
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
    header.codec  # noqa: B018 - the property raises for codecs that the format does not define
    return header


def _check_client_rules(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecordError(f"base offset {header.base_offset} in a client's batch: the leader assigns offsets")
    if header.is_control:
        raise InvalidRecordError("clients may not write control batches")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidRecordError("clients may not set the timestamp type to log append time")
    if header.records_count < 1 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"{header.records_count} records with a last offset delta of {header.last_offset_delta}: "
            "a client's batch has at least one record and no gaps"
        )
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecordError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence {header.base_sequence}; "
            "both must be at least 0"
        )
