"""RecordBatch v2: the bytes that producers, logs, replicas and consumers pass on to each other, unchanged.

Pure: no clock, no I/O. Brokers use the header functions only (`parse_header`, `scan`, `check_crc`, `validate_produced`,
`restamped_prefix`); records are decoded in clients.
"""

from replog.records.batch import (
    IMPLEMENTATION,
    BatchBuilder,
    RecordInput,
    attribute_bits,
    batch_bytes_bound,
    check_records,
    decode_batch,
    decode_columns,
    decode_records,
    encode_batch,
    encode_empty_batch,
)
from replog.records.control import (
    ControlRecordType,
    LeaderChange,
    control_record_type,
    decode_leader_change,
    encode_end_transaction_marker,
    encode_leader_change,
)
from replog.records.header import (
    BatchHeader,
    check_crc,
    parse_header,
    restamped_prefix,
    scan,
    whole_batches_bytes,
)
from replog.records.model import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Buffer,
    Codec,
    Columns,
    Header,
    Record,
    TimestampType,
)
from replog.records.produced import validate_produced

__all__ = [
    "DECOMPRESSED_BYTES_MAX",
    "HEADER_BYTES",
    "IMPLEMENTATION",
    "LOG_OVERHEAD_BYTES",
    "BatchBuilder",
    "BatchHeader",
    "Buffer",
    "Codec",
    "Columns",
    "ControlRecordType",
    "Header",
    "LeaderChange",
    "Record",
    "RecordInput",
    "TimestampType",
    "attribute_bits",
    "batch_bytes_bound",
    "check_crc",
    "check_records",
    "control_record_type",
    "decode_batch",
    "decode_columns",
    "decode_leader_change",
    "decode_records",
    "encode_batch",
    "encode_empty_batch",
    "encode_end_transaction_marker",
    "encode_leader_change",
    "parse_header",
    "restamped_prefix",
    "scan",
    "validate_produced",
    "whole_batches_bytes",
]
