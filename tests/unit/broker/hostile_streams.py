"""What a stranger may send to the port of clients: batches of records, and the bodies of requests."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec
from broker_kit import batch

from replog.protocol.private import PRIVATE_APIS, REQUEST_BYTES_MAX
from replog.records._crc32c import crc32c
from replog.wire.primitives import Writer

LARGE = 9_000_000
CRC_AT, CRC_FROM = 17, 21
HEADER_FIELDS = (
    ("base offset", 0, ">q"), ("length", 8, ">i"), ("leader epoch", 12, ">i"), ("magic", 16, ">b"), ("attributes", 21, ">h"),
    ("last offset delta", 23, ">i"), ("first timestamp", 27, ">q"), ("last timestamp", 35, ">q"), ("producer id", 43, ">q"),
    ("producer epoch", 51, ">h"), ("base sequence", 53, ">i"), ("count", 57, ">i"),
)  # fmt: skip
"""Name, place and shape of what the header of a record batch says."""


def hostile_batches() -> Iterator[tuple[str, bytes]]:
    """Bytes where a record batch should be: one field changed in every way, cut, repeated, large, or anything at all."""
    good = batch(b"one", b"two", b"three")
    for name, place, shape in HEADER_FIELDS:
        bits = 8 * struct.calcsize(shape)
        for value in (-(1 << bits - 1), -2, -1, 0, 1, 5, 0x7F, (1 << bits - 1) - 1):
            changed = bytearray(good)
            struct.pack_into(shape, changed, place, value)
            yield f"{name} = {value}, wrong checksum", bytes(changed)
            yield f"{name} = {value}", with_checksum(changed)
    for size in (0, 1, 11, 16, 60, 61, len(good) - 1):
        yield f"cut to {size}", good[:size]
    yield "twice", good + good
    yield "with a tail", good + b"x"
    yield "records of zeros", with_checksum(bytearray(good[:61] + bytes(len(good) - 61)))
    yield "records of ones", with_checksum(bytearray(good[:61] + b"\xff" * (len(good) - 61)))
    yield "zeros", bytes(LARGE)
    yield "ones", b"\xff" * LARGE
    yield "a large one", batch(b"v" * LARGE)
    yield "a thousand", good * 1_000


def with_checksum(changed: bytearray) -> bytes:
    """The batch with the checksum that belongs to it."""
    struct.pack_into(">I", changed, CRC_AT, crc32c(bytes(changed[CRC_FROM:])))
    return bytes(changed)


VALUES: tuple[Any, ...] = (
    None, True, -1, 2**63, 2**64 - 1, -(2**63), 1.5, "", "\0", "x" * 40_000, b"", b"\xff" * 16, b"u" * 17, [], [[]],
    [None] * 3_000, list(range(20_000)), {}, {"a": {}}, [{}] * 20_000, [{"topic_id": bytes(16), "partition_id": 0}],
    [{"topic_id": str(UUID(int=7)), "partition_id": number} for number in range(20_000)],
)  # fmt: skip
"""For each field of a private request."""

DEEP = 300_000


def bodies() -> Iterator[tuple[str, bytes]]:
    """MessagePack that is no struct, or only nearly one."""
    yield "nothing", b""
    yield "never used", b"\xc1"
    yield "ones", b"\xff" * 100
    yield "a map that is cut", b"\x84"
    yield "a map of four billion", b"\xdf\xff\xff\xff\xff"
    yield "an array of four billion", b"\xdd\xff\xff\xff\xff"
    yield "four GiB of text", b"\x81\xdb\xff\xff\xff\xff"
    yield "an unknown field", msgspec.msgpack.encode({"unknown": [1, 2, {"three": None}]})
    yield "a name of no text", b"\x81\xa2\xff\xfe\xc0"
    yield "arrays in arrays", b"\x81\xa1x" + b"\x91" * DEEP + b"\xc0"
    yield "maps in maps", b"\x81\xa1x" * DEEP + b"\xc0"
    yield "two", msgspec.msgpack.encode({}) * 2
    yield "no map", msgspec.msgpack.encode(list(range(10)))
    yield "thousands of unknown fields", msgspec.msgpack.encode({str(number): number for number in range(50_000)})


def private_requests() -> Iterator[tuple[str, int, bytes]]:
    """What it is, the key of the API, and what follows the header."""
    for request, api in PRIVATE_APIS.items():
        for what, body in bodies():
            yield f"{request.__name__}: {what}", api.API_KEY, framed(body)
        for field in request.__struct_fields__:
            for value in VALUES:
                body = msgspec.msgpack.encode({field: value})
                yield f"{request.__name__}.{field} = {str(value)[:40]}", api.API_KEY, framed(body)
        good = framed(msgspec.msgpack.encode({}), tags=((0, b""), (10_000, b"x"), (2**31, bytes(60_000))))
        yield f"{request.__name__}: tags", api.API_KEY, good
        for size in range(len(good[:12])):
            yield f"{request.__name__}: cut to {size}", api.API_KEY, good[:size]
        yield f"{request.__name__}: too large", api.API_KEY, framed(bytes(REQUEST_BYTES_MAX + 1))


def framed(body: bytes, *, timeout_ms: int = 50, tags: tuple[tuple[int, bytes], ...] = ()) -> bytes:
    """A private request behind its header."""
    writer = Writer()
    writer.fixed(struct.Struct(">i"), timeout_ms)
    writer.raw(body, True)  # noqa: FBT003 -- as generated messages call it
    writer.uvarint(len(tags))
    for tag, value in tags:
        writer.uvarint(tag)
        writer.uvarint(len(value))
        writer.fixed(struct.Struct(f"{len(value)}s"), value)
    return writer.joined()
