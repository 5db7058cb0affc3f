"""The watches: one request, then what is new.

That of the metadata leads from one image of the cluster to the next, that of offsets from one state of partitions to the
next.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from replog.errors import MalformedFrameError
from replog.pb.v1 import data_pb2
from replog.rpc.convert import from_proto, to_proto
from replog.rpc.messages import OffsetsUpdate, WatchOffsetsRequest
from replog.rpc.metadata_messages import MetadataUpdate, WatchRequest
from replog.rpc.request_limits import check_partitions, check_request

T = TypeVar("T", bound=Struct)


def encode_watch_request(request: WatchRequest) -> bytes:
    return _encoded(request, data_pb2.WatchRequest())


def decode_watch_request(data: bytes | memoryview) -> WatchRequest:
    return _decoded(WatchRequest, data_pb2.WatchRequest(), data, "watch request")


def encode_update(update: MetadataUpdate) -> bytes:
    return _encoded(update, data_pb2.MetadataUpdate())


def decode_update(data: bytes | memoryview) -> MetadataUpdate:
    return _decoded(MetadataUpdate, data_pb2.MetadataUpdate(), data, "metadata update")


def encode_offsets_request(request: WatchOffsetsRequest) -> bytes:
    return _encoded(request, data_pb2.WatchOffsetsRequest())


def decode_offsets_request(data: bytes | memoryview) -> WatchOffsetsRequest:
    """Raises MalformedFrameError where it is none, or names more partitions than one request may."""
    message = data_pb2.WatchOffsetsRequest()
    _parse(message, data, "watch of offsets")
    check_partitions(len(message.partitions))
    request = from_proto(WatchOffsetsRequest, message)
    check_request(request)
    return request


def encode_offsets_update(update: OffsetsUpdate) -> bytes:
    return _encoded(update, data_pb2.OffsetsUpdate())


def decode_offsets_update(data: bytes | memoryview) -> OffsetsUpdate:
    return _decoded(OffsetsUpdate, data_pb2.OffsetsUpdate(), data, "update of offsets")


def _encoded(value: Struct, message: Message) -> bytes:
    to_proto(value, message)
    return message.SerializeToString()


def _decoded(cls: type[T], message: Message, data: bytes | memoryview, what: str) -> T:
    _parse(message, data, what)
    return from_proto(cls, message)


def _parse(message: Any, data: bytes | memoryview, what: str) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFrameError(f"not a {what}: {error}") from error
