"""Metadata records as the values of the metadata log (``__cluster_metadata-0``).

One value is a frame byte and a protobuf ``MetadataRecord``::

    80 | protobuf bytes

Kafka's frame version is 1; ours starts at 0x80, so neither system can start on the other's metadata log by mistake.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from replog.errors import CorruptRecordError, UnsupportedVersionError
from replog.metadata import records
from replog.metadata.records import MetadataRecord
from replog.pb.v1 import metadata_pb2
from replog.rpc.convert import from_proto, structs_of, to_proto

FRAME_VERSION = 0x80

_KINDS = structs_of(metadata_pb2.MetadataRecord, records)
_NAMES = {cls: name for name, cls in _KINDS.items()}


def encode_metadata_record(record: MetadataRecord) -> bytes:
    message = metadata_pb2.MetadataRecord()
    target = getattr(message, _NAMES[type(record)])
    target.SetInParent()
    to_proto(record, target)
    return bytes((FRAME_VERSION,)) + message.SerializeToString()


def decode_metadata_record(value: bytes | None, *, offset: int) -> MetadataRecord:
    """Decodes the record at `offset` of the metadata log.

    Raises:
        UnsupportedVersionError: It is another system's record, or of a kind this version does not know; the node
            must not go on, since every node replays every record.
        CorruptRecordError: It is not a metadata record at all.
        MalformedFrameError: A field of it is none of ours.
    """
    if not value:
        raise CorruptRecordError("__cluster_metadata-0", offset, "a record without a value")
    if value[0] != FRAME_VERSION:
        raise UnsupportedVersionError(
            f"__cluster_metadata-0 offset {offset}: frame version {value[0]}, expected {FRAME_VERSION}. "
            "This directory was written by another system or a newer replog."
        )
    message: Any = metadata_pb2.MetadataRecord()
    try:
        message.ParseFromString(value[1:])
    except DecodeError as error:
        raise CorruptRecordError("__cluster_metadata-0", offset, f"not a metadata record: {error}") from error
    name = message.WhichOneof("record")
    if name is None:
        raise UnsupportedVersionError(
            f"__cluster_metadata-0 offset {offset}: a record of a kind this version does not know. Upgrade this node."
        )
    record: MetadataRecord = from_proto(_KINDS[name], getattr(message, name))
    return record
