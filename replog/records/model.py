"""The words of record batches: constants, enums and the two shapes decoded records take.

Everything here is RecordBatch v2, magic 2 (docs/KAFKA.md 1.1 to 1.3). It stands apart from the code that reads
and writes the bytes because both codecs, the compiled one and its pure-Python twin, need the same names.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Literal, NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES = 61
"""Size of the batch header: the smallest legal batch has no records."""

LOG_OVERHEAD_BYTES = 12
"""Base offset and length field: what the length field itself does not count."""

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and a header count of one byte each. Bounds `records_count`."""

RECORD_HEADER_OVERHEAD_BYTES_MAX = 10
"""What a header of a record takes beyond its name and its value."""

CHARACTER_BYTES_MAX = 4
"""Of a header's name, in UTF-8."""

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Default ceiling for the decompressed records of one batch; a batch beyond it is refused, never materialised."""

TRUSTED_DECOMPRESSED_BYTES_MAX = 1024 * 1024 * 1024
"""The ceiling for batches in files of this machine: older versions of `open_log` wrote compressed batches up to here.

The one cap that lifts the ratio too; see `compression.decompressed_bytes_limit`."""

DECOMPRESSED_CALL_BYTES_MAX = 1024 * 1024 * 1024
"""Ceiling for all compressed batches of one call together: many small bombs are one large one."""

KEYLESS_TOLD_MAX = 1_000
"""How many records without a key are named: an answer is not to be larger than what was asked."""

PLACED_FIELDS_COUNT = 8
"""Of a record with its place: topic, partition, offset, timestamp, timestamp type, key, value, headers."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

Header: TypeAlias = tuple[str, bytes | None]


class TimestampType(IntEnum):
    """Who set the timestamps of a batch (attribute bit 3)."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Codec(IntEnum):
    """Compression of the records section (attribute bits 0 to 2)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CodecName: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
"""The codecs as settings name them."""


class Record(NamedTuple):
    """One record as clients see it; brokers never make one.

    Attributes:
        offset: The record's place in the partition.
        timestamp: The time in ms since 1970, -1 when none was set.
        key: The key or None, which is not the same as empty: only a null value is a tombstone, only a null key is
            "no key".
        value: The payload or None.
        headers: The headers in the order written; names may repeat.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class RecordsSurvey(NamedTuple):
    """What a leader may have to know of the records in a batch (docs/KAFKA.md 4.1).

    Attributes:
        records_count: The number of records; their offset deltas rise and stay within the batch.
        min_timestamp, max_timestamp: The bounds in ms, of the records that have a timestamp; -1 when none has.
        null_keys_count: The number of records without a key, which a compacted topic cannot take.
        null_key_places: The places of the first `KEYLESS_TOLD_MAX` of them in the batch, counted from 0.
    """

    records_count: int
    min_timestamp: int
    max_timestamp: int
    null_keys_count: int
    null_key_places: tuple[int, ...]


class Wanted(IntFlag):
    """The columns that `decode_columns` is to fill."""

    OFFSETS = 1
    TIMESTAMPS = 2
    KEYS = 4
    VALUES = 8
    HEADERS = 16


class HeaderColumns(NamedTuple):
    """Record headers as an Arrow list<struct<key: string, value: binary>> column; little-endian as in `Columns`.

    **Shapes** (n records, m headers in all): `list_offsets` is int32 * (n + 1): headers of record i are
    [list_offsets[i], list_offsets[i + 1]).  `list_validity` has a 1 for each record with at least one header and may be
    left out where no header is an empty list rather than null.  Names are valid UTF-8 (what is not is replaced).
    """

    headers_count: int
    list_offsets: Buffer
    list_validity: Buffer | None
    list_null_count: int
    key_offsets: Buffer
    key_data: Buffer
    value_offsets: Buffer
    value_data: Buffer
    value_validity: Buffer | None
    value_null_count: int


class Columns(NamedTuple):
    """Records as columns: Arrow's memory layout, so that no Python object is made per record.

    **Shapes** (little-endian, n = `count`): `offsets` and `timestamps` are int64 * n, `timestamp_type` is int32 * n.
    A variable-length column is int32 * (n + 1) offsets into its data, plus a validity bitmap: bit `i & 7` of byte
    `i >> 3`, least significant first, 1 = present; None = nothing is null. A column that was not asked for has
    empty buffers (b"") and a null count of 0; `headers` is None then.

    Example: values b"ab", None, b"" give value_offsets 0, 2, 2, 2, value_data b"ab", value_validity 0b101.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    offsets: Buffer
    timestamps: Buffer
    timestamp_type: Buffer
    key_offsets: Buffer
    key_data: Buffer
    key_validity: Buffer | None
    key_null_count: int
    value_offsets: Buffer
    value_data: Buffer
    value_validity: Buffer | None
    value_null_count: int
    headers: HeaderColumns | None = None
