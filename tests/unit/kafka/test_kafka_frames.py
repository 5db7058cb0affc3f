"""Frames of a connection, and answers in their order."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.tcp.frames import FRAME_BYTES_MIN, SHARED_BYTES, FrameReader, OrderedAnswers, SpareBuffers

BYTES_MAX = 300_000
sizes = st.one_of(
    st.integers(FRAME_BYTES_MIN, 100),
    st.integers(SHARED_BYTES - 10, SHARED_BYTES + 10),
    st.integers(FRAME_BYTES_MIN, BYTES_MAX),
)


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(reader: FrameReader, data: bytes, at: int, limit: int) -> tuple[list[bytes], int]:
    """Gives the reader at most `limit` bytes from `at` on; returns the frames that came, and where to go on."""
    buffer = reader.buffer()
    chunk = data[at : at + min(limit, len(buffer))]
    buffer[: len(chunk)] = chunk
    frames = [bytes(frame) for frame in reader.received(len(chunk))]
    if reader.wanted_bytes:
        reader.admit()
    return frames, at + len(chunk)


@settings(max_examples=60, deadline=None)
@given(st.lists(sizes, max_size=8), st.integers(0, 2**32))
def test_frames_come_out_whole_however_the_bytes_come(body_sizes: list[int], seed: int) -> None:
    rng = random.Random(seed)
    bodies = [rng.randbytes(size) for size in body_sizes]
    data, at, found = framed(*bodies), 0, []
    reader = FrameReader(BYTES_MAX, SpareBuffers())
    while at < len(data):
        frames, at = feed(reader, data, at, rng.choice([1, 3, 100, 5_000, 1 << 20]))
        found += frames
    assert found == bodies
    assert reader.is_between_frames


@pytest.mark.parametrize("cut", range(1, 4 + 12))
def test_a_frame_that_ends_at_any_byte_is_waited_for(cut: int) -> None:
    data, reader = framed(b"x" * 12), FrameReader(BYTES_MAX, SpareBuffers())
    assert feed(reader, data[:cut], 0, 100) == ([], cut)
    assert not reader.is_between_frames
    assert feed(reader, data[cut:], 0, 100) == ([b"x" * 12], 16 - cut)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, FRAME_BYTES_MIN - 1, BYTES_MAX + 1, 2**31 - 1])
def test_other_sizes_are_refused_without_memory(size: int) -> None:
    reader = FrameReader(BYTES_MAX, SpareBuffers())
    tracemalloc.start()
    try:
        assert feed(reader, framed(b"x" * 8) + struct.pack(">i", size), 0, 100)[0] == [b"x" * 8]
        assert f"said to have {size} bytes" in reader.trouble
        assert feed(reader, framed(b"x" * 8), 0, 100)[0] == []
        assert tracemalloc.get_traced_memory()[1] < 2 * SHARED_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS hello"),
        (b"PRI * HTTP/2.0\r\n\r\nSM", "gRPC"),
        (b"SSH-2.0-OpenSSH", "SSH"),
        (b"HTTP/1.1 400", "the answer of a web server"),
    ],
)
def test_a_wrong_client_is_named(first: bytes, text: str) -> None:
    reader = FrameReader(64 << 20, SpareBuffers())
    assert feed(reader, first, 0, 100)[0] == []
    assert text in reader.trouble


def test_memory_for_a_large_frame_is_taken_when_it_is_admitted() -> None:
    reader = FrameReader(64 << 20, SpareBuffers())
    head = struct.pack(">i", 32 << 20) + b"abcdefgh"
    tracemalloc.start()
    try:
        reader.buffer()[: len(head)] = head
        assert reader.received(len(head)) == []
        assert reader.wanted_bytes == 32 << 20
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        reader.admit()
        assert tracemalloc.get_traced_memory()[0] > 32 << 20
    finally:
        tracemalloc.stop()
    assert len(reader.buffer()) == (32 << 20) - 8


def test_a_large_frame_is_not_copied() -> None:
    body = bytes(SHARED_BYTES * 2)
    reader = FrameReader(BYTES_MAX, SpareBuffers())
    data = framed(body)
    reader.buffer()[:100] = data[:100]
    assert reader.received(100) == []
    reader.admit()
    target = reader.buffer()
    target[:] = data[100:]
    (frame,) = reader.received(len(target))
    assert frame.obj is target.obj


def test_what_comes_behind_a_frame_that_waits_is_kept() -> None:
    """Example: a large frame whose last bytes came together with two small ones."""
    reader = FrameReader(BYTES_MAX, SpareBuffers())
    large = b"l" * (SHARED_BYTES - 3)
    data = framed(b"a" * 8, large, b"b" * 9, b"c" * 10)
    found, at = [], 0
    while at < len(data):
        frames, at = feed(reader, data, at, 1 << 20)
        found += frames
    assert found == [b"a" * 8, large, b"b" * 9, b"c" * 10]


def test_readers_between_frames_have_no_buffer_of_their_own() -> None:
    """Goal: ten thousand idle connections are not 640 MiB."""
    spares = SpareBuffers()
    readers = [FrameReader(BYTES_MAX, spares) for _ in range(1_000)]
    data = framed(b"x" * 12)
    tracemalloc.start()
    try:
        for reader in readers:
            assert feed(reader, data, 0, 100)[0] == [b"x" * 12]
            feed(reader, framed(bytes(SHARED_BYTES))[:100], 0, 100)
            reader.buffer()[:] = bytes(len(reader.buffer()))
            assert len(reader.received(len(reader.buffer()))) == 1
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_buffer_is_of_one_reader_at_a_time() -> None:
    spares = SpareBuffers()
    first, second = FrameReader(BYTES_MAX, spares), FrameReader(BYTES_MAX, spares)
    halves = framed(b"a" * 12)[:9], framed(b"b" * 12)[:9]
    for _ in range(3):
        assert [feed(first, halves[0], 0, 100)[0], feed(second, halves[1], 0, 100)[0]] == [[], []]
        assert feed(first, b"a" * 7, 0, 100)[0] == [b"a" * 12]
        assert feed(second, b"b" * 7, 0, 100)[0] == [b"b" * 12]


# ---- answers -------------------------------------------------------------------------------------------------------


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_answers_leave_in_the_order_of_their_requests(order: list[int], silent: set[int]) -> None:
    answers: OrderedAnswers[str] = OrderedAnswers()
    numbers = [answers.begin() for _ in range(12)]
    written: list[str] = []
    for index in order:
        written += answers.finish(numbers[index], None if index in silent else f"answer {index}")
        done = order[: order.index(index) + 1]
        waits_from = next((n for n in range(12) if n not in done), 12)
        assert written == [f"answer {n}" for n in range(waits_from) if n not in silent]
        assert len(answers) == 12 - waits_from
    assert len(answers) == 0


@given(st.lists(st.booleans(), max_size=60), st.randoms(use_true_random=False))
def test_requests_may_come_while_others_are_answered(begins: list[bool], rng: random.Random) -> None:
    answers: OrderedAnswers[int] = OrderedAnswers()
    open_numbers: list[int] = []
    written: list[int] = []
    for begin in begins:
        if begin or not open_numbers:
            open_numbers.append(answers.begin())
        else:
            number = open_numbers.pop(rng.randrange(len(open_numbers)))
            written += answers.finish(number, number)
    for number in open_numbers:
        written += answers.finish(number, number)
    assert written == sorted(written) == list(range(len(written)))
