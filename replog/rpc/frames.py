"""Frames with record bytes: a small protobuf header, then the bytes themselves, never copied by protobuf.

Shape of a `FetchResponseFrame` (``data.proto``)::

    0a <varint length> <header>          field 1: FetchResponse, its sizes listing the record bytes
    7a <varint length> <record bytes>    field 15, last: the batches of all partitions in header order

That is valid protobuf, so any protobuf library reads it; this module reads it without copying the records: the
buffers handed out are views of the received message (owned by the message; they live as long as it does).

Every size that arrives is checked against what is really there before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from replog.errors import ErrorCode, InvariantViolationError, MalformedFrameError
from replog.pb.v1 import data_pb2, quorum_pb2
from replog.rpc.convert import from_proto, to_proto
from replog.rpc.messages import (
    Buffer,
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
)
from replog.rpc.request_limits import check_partitions

_HEADER_TAG = 0x0A
_HELLO_TAG = 0x12
_PAYLOAD_TAG = 0x7A
_CODES = frozenset(map(int, ErrorCode))


# ---- fetch requests: client or follower to broker -------------------------------------------------------------------


def encode_fetch_request(message: Hello | FetchRequest) -> bytes:
    out = data_pb2.FetchRequests()
    if isinstance(message, Hello):
        to_proto(message, out.hello)
        return out.SerializeToString()
    if message.read_committed or message.near:
        raise InvariantViolationError(
            "a fetch of committed records, or with replicas to prefer, begins in the broker itself"
        )
    to_proto(message, out.requests.add())
    return out.SerializeToString()


def decode_fetch_request(data: bytes | memoryview) -> Hello | FetchRequest:
    message = _parse(data_pb2.FetchRequests(), data)
    if message.HasField("hello"):
        return from_proto(Hello, message.hello)
    if len(message.requests) != 1:
        raise MalformedFrameError(f"a fetch frame carries {len(message.requests)} requests, expected one")
    request = message.requests[0]
    check_partitions(len(request.partitions) + len(request.forgotten))
    return from_proto(FetchRequest, request)


def encode_fetch_response(message: Hello | FetchResponse) -> bytes:
    return b"".join(fetch_response_pieces(message))


def fetch_response_pieces(message: Hello | FetchResponse) -> tuple[Buffer, ...]:
    """Returns what `encode_fetch_response` joins: the batches are the buffers that they were."""
    if isinstance(message, Hello):
        return (_encode_hello(message),)
    header = data_pb2.FetchResponse(correlation_id=message.correlation_id)
    for r, batches in zip(message.results, message.batches, strict=True):
        to_proto(r, header.results.add(size_bytes=len(batches)))
    return _pieces(header.SerializeToString(), message.batches)


def decode_fetch_response(data: bytes | memoryview) -> Hello | FetchResponse:
    kind, head, payload = _split(data)
    if kind == _HELLO_TAG:
        return _decode_hello(head)
    header = _parse(data_pb2.FetchResponse(), head)
    for r in header.results:
        if r.error not in _CODES:  # of a later version
            r.error = ErrorCode.UNKNOWN_SERVER_ERROR
    return FetchResponse(
        correlation_id=header.correlation_id,
        results=tuple([from_proto(FetchResult, r) for r in header.results]),
        batches=_cut(payload, [r.size_bytes for r in header.results]),
    )


# ---- shared -----------------------------------------------------------------------------------------------------------


def _pieces(header: bytes, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    size = sum(map(len, buffers))
    return (b"".join((bytes((_HEADER_TAG,)), _varint(len(header)), header, b"\x7a", _varint(size))), *buffers)


def _split(data: bytes | memoryview) -> tuple[int, memoryview, memoryview]:
    """Splits a frame into (tag of the first field, its bytes, payload), without a copy."""
    view = memoryview(data)
    kind, head, position = _field(view, 0)
    if kind not in {_HEADER_TAG, _HELLO_TAG}:
        raise MalformedFrameError(f"a frame starts with tag {kind:#x}, expected a header or a hello")
    if position == len(view):
        return kind, head, view[:0]
    tag, payload, position = _field(view, position)
    if tag != _PAYLOAD_TAG or position != len(view):
        raise MalformedFrameError(f"a frame has {len(view) - position} bytes after its payload")
    return kind, head, payload


def _field(view: memoryview, position: int) -> tuple[int, memoryview, int]:
    if position >= len(view):
        raise MalformedFrameError("an empty frame")
    tag = view[position]
    size = shift = 0
    for at in range(position + 1, min(position + 6, len(view))):
        size |= (view[at] & 0x7F) << shift
        shift += 7
        if view[at] < 0x80:
            end = at + 1 + size
            if end > len(view):
                raise MalformedFrameError(f"a field of {size} bytes in a frame of {len(view)}")
            return tag, view[at + 1 : end], end
    raise MalformedFrameError("a length that does not end")


def _cut(payload: memoryview, sizes: Sequence[int]) -> tuple[memoryview, ...]:
    if sum(sizes) != len(payload) or any(size < 0 for size in sizes):
        raise MalformedFrameError(f"the header lists {sum(sizes)} bytes of records, the frame has {len(payload)}")
    cuts = []
    position = 0
    for size in sizes:
        cuts.append(payload[position : position + size])
        position += size
    return tuple(cuts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parse(message: Any, data: bytes | memoryview) -> Any:
    try:
        message.ParseFromString(bytes(data))
    except DecodeError as error:
        raise MalformedFrameError(f"not a {type(message).__name__}: {error}") from error
    return message


def _encode_hello(hello: Hello) -> bytes:
    message = quorum_pb2.Hello()
    to_proto(hello, message)
    data = message.SerializeToString()
    return b"".join((bytes((_HELLO_TAG,)), _varint(len(data)), data))


def _decode_hello(data: memoryview) -> Hello:
    return from_proto(Hello, _parse(quorum_pb2.Hello(), data))
