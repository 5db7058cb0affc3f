"""What nodes that meet over TCP have on the wire; sizes and codes are big-endian.

    opening, from who connects size:4  STREAM_KEY:2  version:2  kind:4  first message
    from then on, both ways    size:4  tag:1  body

The opening has the shape of a request of Kafka's protocol, so that a client which has lost its way is told.  A message has the bytes that it has over gRPC (`replog.rpc.frames` and its neighbours).

| tag | body |
|---|---|
| MESSAGE | the message |
| ERROR | code:2 and a text: why the stream ends |
| PING, PONG | nothing: the client asks in a silence whether somebody is there |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final

from msgspec import Struct

from replog.errors import ErrorCode, MalformedFrameError, ReplogError
from replog.errors.from_code import error_code_of, error_from_code
from replog.rpc import quorum_codec
from replog.rpc.call_stream import decode_items, encode_items
from replog.rpc.messages import Buffer

STREAM_KEY: Final = 0x7270
"""In the place of a Kafka API key: the connection becomes a stream.  Kafka's keys end below 100."""

STREAM_VERSION: Final = 0

MAX_MESSAGE_BYTES: Final = 64 << 20
"""Bound of one message either way.  A batch (message.max.bytes) and a fetch response must fit."""

TEXT_BYTES_MAX: Final = 4_096
"""Of the text that ends a stream."""

_opening = struct.Struct(">hhi")
_size = struct.Struct(">i")
_head = struct.Struct(">iB")
_code = struct.Struct(">h")


class StreamKind(IntEnum):
    """What a connection is opened for."""

    CALLS = 0
    CONTROLLER = 1
    FETCH = 2
    QUORUM = 3


class Tag(IntEnum):
    """What a frame holds."""

    MESSAGE = 0
    ERROR = 1
    PING = 2
    PONG = 3


class Codec(Struct, frozen=True):
    """How the messages of one end become bytes, and bytes messages.

    Attributes:
        encode: The function that returns the pieces of a message, which are written one behind the other.
        decode: The function that makes a message of its bytes, which stay valid as long as it refers to them.
    """

    encode: Callable[[Any], Sequence[Buffer]]
    decode: Callable[[memoryview], Any]


def whole(encode: Callable[[Any], bytes]) -> Callable[[Any], Sequence[Buffer]]:
    """Makes of an encoder that returns one piece an encoder of a `Codec`."""
    return lambda message: (encode(message),)


QUORUM: Final = Codec(whole(quorum_codec.encode_quorum_message), quorum_codec.decode_quorum_message)
CALLS: Final = Codec(whole(encode_items), decode_items)
"""Of messages that both ends send alike; the other codecs stand beside the end that has them."""


def opening(kind: StreamKind, first: Sequence[Buffer]) -> bytes:
    """Returns the frame that opens a stream.

    Args:
        kind: The kind of the stream.
        first: The pieces of its first message.
    """
    size = _opening.size + sum(map(len, first))
    return b"".join((_size.pack(size), _opening.pack(STREAM_KEY, STREAM_VERSION, kind), *first))


def is_opening(frame: memoryview) -> bool:
    """Whether a request opens a stream."""
    key: int = _opening.unpack_from(frame)[0]
    return key == STREAM_KEY


def parse_opening(frame: memoryview) -> tuple[int, int, memoryview]:
    """Returns the version, the kind and the first message of a frame that opens a stream."""
    _, version, kind = _opening.unpack_from(frame)
    return version, kind, frame[_opening.size :]


def head(tag: Tag, size: int) -> bytes:
    """Returns what stands in front of the body of a frame.

    Args:
        tag: What the frame holds.
        size: The size of its body.
    """
    return _head.pack(size + 1, tag)


def encode_error(error: ReplogError) -> bytes:
    """Returns the body of a frame with an error, its text cut to a size that can always be sent."""
    return _code.pack(error_code_of(error)) + str(error).encode()[:TEXT_BYTES_MAX]


def decode_error(body: memoryview) -> ReplogError:
    """Returns the error that the other side has sent."""
    if len(body) < _code.size:
        return MalformedFrameError("an error without a code")
    code: int = _code.unpack_from(body)[0]
    text = bytes(body[_code.size :]).decode(errors="replace")
    try:
        return error_from_code(ErrorCode(code), text)
    except ValueError:  # of a newer version
        return ReplogError(f"error {code}: {text}")
