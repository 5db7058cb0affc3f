"""What the streams of records may carry, made hostile: frames, record batches, and requests in a wrong order."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import UUID

from broker_kit import batch
from hostile_requests import LONG, hostile

from replog.pb.v1 import data_pb2
from replog.records._crc32c import crc32c
from replog.rpc import frames, watch_codec
from replog.rpc.messages import (
    FetchPartition,
    FetchRequest,
    ForgottenPartition,
    ProducePartition,
    ProduceRequest,
    WatchedPartition,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import WatchRequest

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


def hostile_frames(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Bytes where a frame should be."""
    yield "nothing", b""
    yield "ones", b"\xff" * 100
    yield "zeros", bytes(100)
    yield "a length that does not end", good[:1] + b"\xff" * 20
    yield "a length of 4 GiB", good[:1] + b"\xff\xff\xff\xff\x0f" + good[2:]
    for size in (1, 2, len(good) // 2, len(good) - 1):
        yield f"cut to {size}", good[:size]
    yield "with a tail", good + b"tail"
    yield "large", good + bytes(LONG)


def produce_requests(topic_id: UUID, broker_epoch: int) -> Iterator[tuple[str, bytes]]:
    """Frames for a produce stream: each field of the header made hostile, batches, then what is no frame."""
    good_batch = batch()
    partition = ProducePartition(topic_id, 0, 0)
    request = ProduceRequest(1, 1_000, -1, (partition,), (good_batch,))
    good = frames.encode_produce_request(request)
    header = data_pb2.ProduceRequest.FromString(bytes(frames._split(good)[1]))
    for what, changed in hostile(header, with_call=True):
        yield what, b"".join(frames._pieces(changed, [good_batch]))
    for what, records in hostile_batches():
        yield what, frames.encode_produce_request(ProduceRequest(1, 1_000, -1, (partition,), (records,)))
    twice = ProduceRequest(1, 1_000, -1, (partition,) * 9, (good_batch,) * 9)
    yield "one partition nine times", frames.encode_produce_request(twice)
    for acks in (0, 1, -1):
        many = tuple(ProducePartition(topic_id, number) for number in range(100_000))
        yield (
            f"100,000 partitions, acks={acks}",
            frames.encode_produce_request(ProduceRequest(1, 1_000, acks, many, (b"",) * len(many))),
        )
    yield from hostile_frames(good)


def fetch_requests(topic_id: UUID, broker_epoch: int) -> Iterator[tuple[str, bytes]]:
    """Frames for a fetch stream: of a consumer, of a follower, and incremental ones."""
    partition = FetchPartition(topic_id, 0, 0, 0, 0, 0, 0)
    forgotten = (ForgottenPartition(topic_id, 0),)
    for request in (
        FetchRequest(1, 1_000, -1, -1, 10, 1, 1 << 20, (partition,)),
        FetchRequest(1, 1_000, 1, broker_epoch, 10, 1, 1 << 20, (partition,)),
        FetchRequest(1, 1_000, 1, broker_epoch, 10, 1, 1 << 20, (partition,), incremental=True, forgotten=forgotten),
    ):
        yield from hostile(data_pb2.FetchRequests.FromString(frames.encode_fetch_request(request)), with_call=True)
        many = tuple(FetchPartition(topic_id, number, 0) for number in range(100_000))
        for name, partitions in (("100,000 partitions", many), ("one 9,000 times", (partition,) * 9_000)):
            hostile_one = FetchRequest(
                1, 1_000, request.replica_id, request.broker_epoch, 10, 1, 1 << 20, partitions, request.incremental
            )
            yield name, frames.encode_fetch_request(hostile_one)
    yield from hostile_frames(frames.encode_fetch_request(FetchRequest(1, 1, -1, -1, 0, 1, 1, (partition,))))


def watch_requests() -> Iterator[tuple[str, bytes]]:
    """What may begin a watch of the metadata: offsets that nobody has known, fields of no version, and what is no request."""
    good = watch_codec.encode_watch_request(WatchRequest(5, follow=True))
    for known_offset in (-(2**63), -2, -1, 0, 1, 2**31, 2**63 - 1):
        for follow in (False, True):
            yield f"{known_offset}, {follow}", watch_codec.encode_watch_request(WatchRequest(known_offset, follow))
    yield from hostile(data_pb2.WatchRequest.FromString(good), with_call=True)
    unknown, wire_type_of_bytes = 15 << 3, 2
    yield "an unknown number", good + bytes([unknown, 1])
    yield "a thousand unknown fields", good + bytes([unknown, 1]) * 1_000
    yield "an offset of bytes", bytes([1 << 3 | wire_type_of_bytes, 3]) + b"abc"
    yield "an offset that does not end", b"\x08" + b"\xff" * 11
    yield "an offset a thousand times", good * 1_000
    yield "groups in groups", bytes([unknown | 3]) * 10_000
    yield from hostile_frames(good)


def offsets_requests(topic_id: UUID) -> Iterator[tuple[str, bytes]]:
    """What may begin a watch of offsets."""
    partition = WatchedPartition(topic_id, 0)
    for cluster_id in ("", "c"):
        good = watch_codec.encode_offsets_request(WatchOffsetsRequest(cluster_id, (partition,)))
        yield from hostile(data_pb2.WatchOffsetsRequest.FromString(good), with_call=True)
        yield from hostile_frames(good)
    many = tuple(WatchedPartition(topic_id, number) for number in range(100_000))
    for name, partitions in (("100,000 partitions", many), ("one 9,000 times", (partition,) * 9_000), ("none", ())):
        yield name, watch_codec.encode_offsets_request(WatchOffsetsRequest("c", partitions))
