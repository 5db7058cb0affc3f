"""The fast ways to read and write offsets say what the generated classes say, or nothing."""

from __future__ import annotations

import pytest
from group_record_kit import TYPES, golden_records, records, unhurried
from hypothesis import given
from hypothesis import strategies as st

from replog.coordinator.messages.offset_commit import OffsetCommitKey, OffsetCommitValue
from replog.coordinator.offset_commit_codec import read_offset_commit, write_offset_commit
from replog.coordinator.records import EncodedRecord, Record, RecordCodec
from replog.errors import ReplogError

SLOW = RecordCodec(TYPES)


@pytest.mark.parametrize(
    ("name", "is_read"), [("offset", True), ("offset-without-id", True), ("offset-with-expiry", False)]
)
def test_what_kafka_writes_now_is_read(name: str, is_read: bool) -> None:
    key, value = dict(golden_records())[name]
    assert value is not None
    found = read_offset_commit(key, value)
    assert (found is not None) is is_read
    assert found is None or found == SLOW.decode(key, value)


def encoded(record: Record) -> EncodedRecord:
    return SLOW.encode(record)


@unhurried
@given(st.sampled_from(OffsetCommitValue.VERSIONS).flatmap(lambda n: records(OffsetCommitKey, OffsetCommitValue, n)))
def test_every_record_is_read_and_written_alike_or_left_to_the_classes(record: Record) -> None:
    key, value = encoded(record)
    if value is not None and record.value is not None:
        found = read_offset_commit(key, value)
        assert found == (SLOW.decode(key, value) if record.version == 4 else None)
        assert write_offset_commit(record.key, record.value, record.version) in ((key, value), None)


@pytest.mark.parametrize("length", [125, 126, 127, 128, 129, 4096])
def test_texts_of_every_length(length: int) -> None:
    record = Record(OffsetCommitKey("g" * length, "t", -1), OffsetCommitValue(1, metadata="x" * length), 4)
    key, value = encoded(record)
    assert value is not None
    assert record.value is not None
    assert read_offset_commit(key, value) == (record if length < 127 else None)
    assert write_offset_commit(record.key, record.value, 4) == ((key, value) if length < 127 else None)


@pytest.mark.parametrize(
    "record",
    [
        Record(OffsetCommitKey("g", "\ud800"), OffsetCommitValue(1), 4),
        Record(OffsetCommitKey("g" * 0x8000, "t"), OffsetCommitValue(1), 4),
        Record(OffsetCommitKey("g", "t"), OffsetCommitValue(1, metadata="\ud800"), 4),
        Record(OffsetCommitKey("g", "t"), OffsetCommitValue(1 << 63), 4),
        Record(OffsetCommitKey("g", "t"), OffsetCommitValue(1, expire_timestamp=5), 1),
    ],
)
def test_what_cannot_be_written_is_left_to_the_classes(record: Record) -> None:
    assert record.value is not None
    assert write_offset_commit(record.key, record.value, record.version) is None


@unhurried
@given(st.data())
def test_broken_bytes_are_an_error_of_the_classes(data: st.DataObject) -> None:
    """Goal: no bytes that are malformed become an offset, and nothing but the usual error is raised."""
    key, value = encoded(
        data.draw(records(OffsetCommitKey, OffsetCommitValue, 4).filter(lambda each: each.value is not None))
    )
    parts = [bytearray(key), bytearray(value or b"")]
    for part in parts:
        if data.draw(st.booleans()):
            part[data.draw(st.integers(2, len(part) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            del part[data.draw(st.integers(2, len(part))) :]
    broken_key, broken_value = map(bytes, parts)
    found = read_offset_commit(broken_key, broken_value)
    try:
        expected = SLOW.decode(broken_key, broken_value)
    except ReplogError:
        assert found is None
    else:
        assert found in (expected, None)
