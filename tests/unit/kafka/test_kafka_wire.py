"""The primitive types of Kafka's protocol."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.errors import MalformedFrameError
from replog.wire.primitives import ELEMENTS_MAX, SMALL_BYTES_MAX, TEXT_BYTES_MAX, Reader, Writer
from tests.work_counts import calls_of

UUID_1 = UUID(int=1)
flexibles = pytest.mark.parametrize("flexible", [False, True])


def reader(*parts: bytes) -> Reader:
    return Reader(memoryview(b"".join(parts)))


def written(write: Callable[[Writer], object]) -> bytes:
    writer = Writer()
    write(writer)
    return writer.joined()


@given(st.integers(0, 2**32 - 1))
def test_a_varint_comes_back(value: int) -> None:
    data = written(lambda w: w.uvarint(value))
    found = reader(data)
    assert (found.uvarint(), found.left) == (value, 0)
    assert len(data) == max(1, (value.bit_length() + 6) // 7)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x80\x80\x80\x80\x10", "more than 32 bits"),
        (b"\xff" * 6, "more than 5 bytes"),
        (b"\x80\x80", "1 bytes are said to follow where 0 are left"),
        (b"", "1 bytes"),
    ],
)
def test_other_varints_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(MalformedFrameError, match=text):
        reader(data).uvarint()


@flexibles
@pytest.mark.parametrize("text", [None, "", "a", "\u00e9\U0001f600", "x" * 300])
def test_texts_and_bytes_come_back(text: str | None, flexible: bool) -> None:
    data = None if text is None else text.encode()
    found = reader(
        written(lambda w: w.nullable_text(text, flexible)),
        written(lambda w: w.nullable_raw(data, flexible)),
        written(lambda w: w.nullable_raw(data, flexible)),
    )
    assert found.nullable_text(flexible) == text
    assert found.nullable_raw(flexible) == data
    assert found.nullable_view(flexible) == data
    found.finish()


@pytest.mark.parametrize("flexible", [False, True])
def test_many_texts_are_written_as_one_by_one(flexible: bool) -> None:
    texts = ["", "t", "ü" * 63, "t" * 126, "t" * 127, "t" * 300, "flights"]
    one_by_one, together = Writer(), Writer()
    for each in texts:
        one_by_one.text(each, flexible)
    together.texts(texts, flexible)
    assert together.joined() == one_by_one.joined()
    with pytest.raises(ValueError, match="longer than"):
        together.texts(["t" * 2**15], flexible)
    assert calls_of(lambda: together.texts(["flights"] * 1_000, flexible)) < 100, (
        "Trap: four calls for each of 10,000 topics"
    )


@flexibles
@pytest.mark.parametrize("method", ["text", "raw", "count"])
def test_null_is_refused_where_it_must_not_be(method: str, flexible: bool) -> None:
    null = b"\0" if flexible else b"\xff" * (2 if method == "text" else 4)
    arguments = (flexible, 1) if method == "count" else (flexible,)
    with pytest.raises(MalformedFrameError, match="null"):
        getattr(reader(null), method)(*arguments)
    with pytest.raises(ValueError, match="is None"):
        getattr(Writer(), method)(None, flexible)


@pytest.mark.parametrize("length", [-2, -(2**15)])
def test_negative_lengths_are_refused(length: int) -> None:
    with pytest.raises(MalformedFrameError, match=f"a length is {length}"):
        reader(struct.pack(">h", length), b"abc").nullable_text(False)


def test_a_text_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(MalformedFrameError, match="no UTF-8"):
        reader(b"\x00\x02\xff\xfe").text(False)


def test_a_text_that_old_versions_cannot_hold_is_refused() -> None:
    Writer().text("x" * TEXT_BYTES_MAX, False)
    with pytest.raises(ValueError, match="longer than 32767"):
        Writer().text("x" * (TEXT_BYTES_MAX + 1), False)


@flexibles
@pytest.mark.parametrize(("least_bytes", "fits"), [(4, True), (5, False)])
def test_a_count_is_compared_with_what_is_left(flexible: bool, least_bytes: int, fits: bool) -> None:
    """Example: 3 elements are said to be in 12 bytes."""
    head = b"\x04" if flexible else struct.pack(">i", 3)
    found = reader(head, bytes(12))
    if fits:
        assert found.count(flexible, least_bytes) == 3
        return
    with pytest.raises(MalformedFrameError, match="an array of 3 elements is said to be in 12 bytes"):
        found.count(flexible, least_bytes)


@pytest.mark.parametrize(
    "read",
    [
        lambda r: r.nullable_view(False),
        lambda r: r.numbers(r.count(False, 4), "i"),
        lambda r: [r.uuid() for _ in range(r.count(False, 16))],
    ],
    ids=["bytes", "numbers", "ids"],
)
def test_no_memory_is_taken_for_a_length_that_lies(read: Callable[[Reader], Any]) -> None:
    lying = reader(struct.pack(">i", 2**31 - 1), bytes(100))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFrameError):
            read(lying)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_views_are_of_the_message_itself() -> None:
    message = bytearray(struct.pack(">i", 3) + b"abc")
    view = Reader(memoryview(message)).nullable_view(False)
    message[4] = ord("x")
    assert view == b"xbc"


def test_long_bytes_are_not_copied() -> None:
    large, writer = memoryview(bytes(SMALL_BYTES_MAX + 1)), Writer()
    writer.uuid(UUID_1)
    writer.raw(b"small", True)
    writer.raw(large, True)
    writer.uvarint(7)
    buffers = writer.buffers()
    assert [len(each) for each in buffers] == [16 + 6 + 2, SMALL_BYTES_MAX + 1, 1]
    assert buffers[1] is large
    assert writer.joined() == b"".join(buffers)


def test_long_bytes_in_a_tag_are_not_copied_either() -> None:
    large, value, writer = bytes(SMALL_BYTES_MAX + 1), Writer(), Writer()
    value.raw(large, True)
    writer.tagged([(3, value)])
    assert large in writer.buffers()
    ((tag, found),) = Reader(memoryview(writer.joined())).tagged()
    assert (tag, found.raw(True), found.left) == (3, large, 0)


def test_tagged_fields_come_back_in_order() -> None:
    fields = [(0, Writer()), (5, Writer())]
    fields[1][1].uuid(UUID_1)
    found = reader(written(lambda w: w.tagged(fields)))
    tags = found.tagged()
    found.finish()
    assert [tag for tag, _ in tags] == [0, 5]
    assert tags[1][1].uuid() == UUID_1
    assert written(lambda w: w.tagged()) == b"\0"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x02\x01\x00\x01\x00", "tag 1 follows tag 1"),
        (b"\x02\x01\x00\x00\x00", "tag 0 follows tag 1"),
        (b"\x01\x00\x05abc", "5 bytes are said to follow where 3 are left"),
        (b"\xff\xff\xff\xff\x0f", "at least 4294967295 elements"),
    ],
)
def test_other_tags_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(MalformedFrameError, match=text):
        reader(data).tagged()


def test_a_text_that_we_could_not_write_is_not_read() -> None:
    """Goal: a name that is told back to who asked for it fits into every answer."""
    longest = written(lambda w: w.text("x" * TEXT_BYTES_MAX, True))
    assert len(reader(longest).text(True)) == TEXT_BYTES_MAX
    longer = written(lambda w: w.uvarint(TEXT_BYTES_MAX + 2)) + b"x" * (TEXT_BYTES_MAX + 1)
    with pytest.raises(MalformedFrameError, match="a text of 32768 bytes is longer than 32767"):
        reader(longer).text(True)


def test_elements_of_a_message_are_bounded_together() -> None:
    """Example: 22 million empty topics are in a request of 64 MiB; they would be gigabytes, and minutes of the loop."""
    half = written(lambda w: w.nullable_count(bytes(ELEMENTS_MAX // 2), True))
    found = reader(half, half, b"\x02", bytes(ELEMENTS_MAX))
    assert (found.count(True, 1), found.count(True, 1)) == (ELEMENTS_MAX // 2, ELEMENTS_MAX // 2)
    with pytest.raises(MalformedFrameError, match="fewer topics or partitions"):
        found.count(True, 1)


def test_tagged_fields_and_what_is_in_them_are_elements_too() -> None:
    with pytest.raises(MalformedFrameError, match="fewer topics or partitions"):
        reader(written(lambda w: w.uvarint(ELEMENTS_MAX + 1)), bytes(3 * ELEMENTS_MAX)).tagged()
    array = written(lambda w: w.nullable_count(bytes(ELEMENTS_MAX), True)) + bytes(ELEMENTS_MAX)
    field = b"\x01\x00" + written(lambda w: w.uvarint(len(array))) + array
    ((_, value),) = reader(field).tagged()
    with pytest.raises(MalformedFrameError, match="fewer topics or partitions"):
        value.count(True, 1)


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(MalformedFrameError, match="1 bytes are left over"):
        reader(b"a").finish()


@pytest.mark.parametrize(("byte", "present"), [(0xFF, False), (0x01, True)])
def test_a_struct_may_be_null(byte: int, present: bool) -> None:
    assert reader(bytes([byte])).is_present() is present
    assert written(lambda w: w.presence("x" if present else None)) == bytes([byte])


@pytest.mark.parametrize(("value", "plain", "tagged"), [(None, b"\xff", b"\0"), (object(), b"\1", b"\1")])
def test_a_struct_that_may_be_null_is_marked_in_two_ways(value: object, plain: bytes, tagged: bytes) -> None:
    """Goal: zero means null in a tagged field, and a struct everywhere else."""
    assert (written(lambda w: w.presence(value)), written(lambda w: w.presence_in_tag(value))) == (plain, tagged)
    assert reader(plain).is_present() == reader(tagged).is_present_in_tag() == (value is not None)
