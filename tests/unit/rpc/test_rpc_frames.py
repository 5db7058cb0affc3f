"""Frames with record bytes: what any protobuf library reads, read without a copy, and safe against anything else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rpc_values import values

from replog.errors import ErrorCode, InvariantViolationError, MalformedFrameError
from replog.pb.v1 import data_pb2
from replog.rpc import frames
from replog.rpc.messages import (
    DivergingEpoch,
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
)

TOPIC = UUID(int=7)
HELLO = Hello("c", 1, UUID(int=2), "me")


def with_batches(cls: type, element: str, element_cls: type) -> st.SearchStrategy[Any]:
    """As many batches as there are partitions."""

    pairs = st.lists(st.tuples(values(element_cls), st.binary(max_size=300)), max_size=4)

    def fill(message: Any, filled: list[tuple[Any, bytes]]) -> Any:
        elements, batches = [e for e, _ in filled], [b for _, b in filled]
        return replace(message, **{element: tuple(elements), "batches": tuple(batches)})

    return st.builds(fill, values(cls, element, "batches"), pairs)


FETCH_RESPONSES = with_batches(FetchResponse, "results", FetchResult)
HELLOS = values(Hello)

Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any], st.SearchStrategy[Any]]
CODECS: dict[str, Codec] = {
    "fetch request": (frames.encode_fetch_request, frames.decode_fetch_request, values(FetchRequest) | HELLOS),
    "fetch response": (frames.encode_fetch_response, frames.decode_fetch_response, FETCH_RESPONSES | HELLOS),
}
each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@each_codec
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_round_trip(codec: Codec, draw: st.DataObject) -> None:
    encode, decode, messages = codec
    message = draw.draw(messages)
    assert decode(encode(message)) == message


def fetched(*batches: bytes) -> FetchResponse:
    results = tuple(
        FetchResult(TOPIC, i, ErrorCode.NONE, 5, diverging=DivergingEpoch(1, 2)) for i in range(len(batches))
    )
    return FetchResponse(9, results, batches)


@pytest.mark.parametrize("batches", [(), (b"",), (b"abc", b"", b"d" * 300)])
def test_a_fetch_response_is_valid_protobuf(batches: tuple[bytes, ...]) -> None:
    frame = data_pb2.FetchResponseFrame.FromString(frames.encode_fetch_response(fetched(*batches)))
    assert [r.size_bytes for r in frame.header.results] == list(map(len, batches))
    assert frame.payload == b"".join(batches)


def test_what_protobuf_writes_is_read() -> None:
    ours = fetched(b"abc", b"de")
    frame = data_pb2.FetchResponseFrame.FromString(frames.encode_fetch_response(ours))
    assert frames.decode_fetch_response(frame.SerializeToString()) == ours
    hello = data_pb2.FetchResponseFrame.FromString(frames.encode_fetch_response(HELLO))
    assert frames.decode_fetch_response(hello.SerializeToString()) == HELLO


@pytest.mark.parametrize("unsendable", [{"read_committed": True}, {"near": (1,)}], ids=str)
def test_what_a_stream_does_not_carry_is_not_lost_in_silence(unsendable: dict[str, Any]) -> None:
    with pytest.raises(InvariantViolationError, match="in the broker itself"):
        frames.encode_fetch_request(FetchRequest(1, 0, -1, -1, 0, 0, 0, (), **unsendable))


def test_records_are_views_of_the_message() -> None:
    data = frames.encode_fetch_response(fetched(b"abc", b"de"))
    response = frames.decode_fetch_response(data)
    assert isinstance(response, FetchResponse)
    assert all(isinstance(batch, memoryview) and batch.obj is data for batch in response.batches)


@each_codec
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_bytes_are_malformed_and_nothing_else(codec: Codec, draw: st.DataObject) -> None:
    encode, decode, messages = codec
    data = bytearray(encode(draw.draw(messages)))
    for _ in range(draw.draw(st.integers(0, 4))):
        if data:
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, len(data)))
    more = draw.draw(st.binary(max_size=10))
    with contextlib.suppress(MalformedFrameError):
        decode(bytes(data[:cut]) + more)


@each_codec
@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_malformed_or_a_message(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(MalformedFrameError):
        codec[1](data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "an empty frame"),
        (b"\x0a", "a length that does not end"),
        (b"\x0a\xff\xff\xff\xff\xff\x01", "a length that does not end"),
        (b"\x0a\x05ab", "a field of 5 bytes in a frame of 4"),
        (b"\x1a\x00", "starts with tag 0x1a"),
        (b"\x0a\x00\x0a\x00", "bytes after its payload"),
        (b"\x0a\x00\x7a\x01x", "lists 0 bytes of records, the frame has 1"),
        (b"\x0a\x00\x7a\x00x", "1 bytes after its payload"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, why: str) -> None:
    with pytest.raises(MalformedFrameError, match=why):
        frames.decode_fetch_response(data)


def test_sizes_that_cancel_out_are_refused() -> None:
    header = data_pb2.FetchResponse()
    for size in (10, -10):
        header.results.add(topic_id=TOPIC.bytes, size_bytes=size)
    data = data_pb2.FetchResponseFrame(header=header).SerializeToString()
    with pytest.raises(MalformedFrameError, match="lists 0 bytes"):
        frames.decode_fetch_response(data)


def test_an_error_of_a_newer_version_is_unknown_not_malformed() -> None:
    header = data_pb2.FetchResponse(correlation_id=1)
    header.results.add(topic_id=TOPIC.bytes, error=4711)
    response = frames.decode_fetch_response(data_pb2.FetchResponseFrame(header=header).SerializeToString())
    assert isinstance(response, FetchResponse)
    assert [result.error for result in response.results] == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_one_fetch_request_per_frame() -> None:
    with pytest.raises(MalformedFrameError, match="carries 2 requests"):
        frames.decode_fetch_request(data_pb2.FetchRequests(requests=[{}, {}]).SerializeToString())


def test_results_and_batches_must_agree() -> None:
    with pytest.raises(ValueError, match="shorter"):
        frames.encode_fetch_response(FetchResponse(1, (FetchResult(TOPIC, 0, ErrorCode.NONE, 0),), ()))
