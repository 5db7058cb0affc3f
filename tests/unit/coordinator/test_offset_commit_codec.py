"""The fast ways to read, keep and write offsets say what the generated classes say, or nothing."""

from __future__ import annotations

import gc
from uuid import UUID

import pytest
from group_record_kit import TYPES, golden_records, parts, records, unhurried
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from replog.coordinator.messages import OffsetCommitKey, OffsetCommitValue
from replog.coordinator.offset_commit_codec import (
    OffsetTimes,
    may_be_kept,
    pack,
    read_key,
    unpack,
    unpack_times,
    write_offset_commit,
)
from replog.coordinator.records import CoordinatorRecord, EncodedRecord, RecordCodec
from replog.errors import ReplogError

SLOW = RecordCodec(TYPES)


def read(key: bytes, value: bytes) -> CoordinatorRecord | None:
    """What is kept of a record as it stands in the log, and read from that; None where it has to be decoded."""
    place = read_key(key)
    if place is None or not may_be_kept(value):
        return None
    return CoordinatorRecord(OffsetCommitKey(place[0], *place[1]), unpack(value), 4)


def encoded(record: CoordinatorRecord) -> EncodedRecord:
    return SLOW.encode(record)


@pytest.mark.parametrize(
    ("name", "is_read"), [("offset", True), ("offset-without-id", True), ("offset-with-expiry", False)]
)
def test_what_kafka_writes_now_is_kept_as_it_is(name: str, is_read: bool) -> None:
    key, value = dict(golden_records())[name]
    assert value is not None
    found = read(key, value)
    assert (found is not None) is is_read
    assert found is None or found == SLOW.decode(key, value)


@unhurried
@given(st.sampled_from(OffsetCommitValue.VERSIONS).flatmap(lambda n: records(OffsetCommitKey, OffsetCommitValue, n)))
def test_every_record_is_read_and_written_alike_or_left_to_the_classes(record: CoordinatorRecord) -> None:
    key, value = encoded(record)
    if value is not None and record.value is not None:
        assert read(key, value) == (SLOW.decode(key, value) if record.version == 4 else None)
        assert write_offset_commit(record.key, record.value, record.version) in ((key, value), None)


@unhurried
@given(st.sampled_from(TYPES).flatmap(lambda each: records(*each, each[1].VERSIONS[-1])))
def test_no_key_of_another_type_is_that_of_an_offset(record: CoordinatorRecord) -> None:
    assert (read_key(encoded(record)[0]) is not None) is isinstance(record.key, OffsetCommitKey)


@pytest.mark.parametrize("is_topic", [False, True])
def test_a_text_of_negative_length_is_left_to_the_classes(is_topic: bool) -> None:
    """Kafka's lengths are signed: what is read as 40,000 here would be an error there."""
    long, short = b"x" * 40_000, b"y"
    texts = (short, long) if is_topic else (long, short)
    parts = [len(each).to_bytes(2, "big") + each for each in texts]
    assert read_key(b"\0\1" + b"".join(parts) + bytes(4)) is None


@pytest.mark.parametrize("length", [125, 126, 127, 128, 129, 4096])
def test_texts_of_every_length(length: int) -> None:
    value = OffsetCommitValue(1, metadata="x" * length)
    record = CoordinatorRecord(OffsetCommitKey("g" * length, "t", -1), value, 4)
    key, body = encoded(record)
    assert body is not None
    assert read(key, body) == (record if length < 127 else None)
    assert write_offset_commit(record.key, value, 4) == ((key, body) if length < 127 else None)
    assert unpack(pack(value)) == value
    assert pack(value) == body


@unhurried
@given(parts(OffsetCommitValue))
def test_whatever_is_packed_comes_back(value: OffsetCommitValue) -> None:
    """Goal: no field is lost, also where no version of the record has all of them."""
    packed = pack(value)
    expected = replace(value, expire_timestamp=max(value.expire_timestamp, -1))
    assert unpack(packed) == expected
    assert unpack_times(packed) == OffsetTimes(expected.commit_timestamp, expected.expire_timestamp)
    assert not gc.is_tracked(packed)


def test_the_names_of_partitions_are_shared_by_groups() -> None:
    keys = [encoded(CoordinatorRecord(OffsetCommitKey(group, "shared", 7), None))[0] for group in "gh"]
    (_, one), (_, other) = [read_key(each) or ("", ("", 0)) for each in keys]
    assert one == ("shared", 7)
    assert one is other


@pytest.mark.parametrize(
    "record",
    [
        CoordinatorRecord(OffsetCommitKey("g", "\ud800"), OffsetCommitValue(1), 4),
        CoordinatorRecord(OffsetCommitKey("g" * 0x8000, "t"), OffsetCommitValue(1), 4),
        CoordinatorRecord(OffsetCommitKey("g", "t"), OffsetCommitValue(1, metadata="\ud800"), 4),
        CoordinatorRecord(OffsetCommitKey("g", "t"), OffsetCommitValue(1 << 63), 4),
        CoordinatorRecord(OffsetCommitKey("g", "t"), OffsetCommitValue(1, expire_timestamp=5), 1),
    ],
)
def test_what_cannot_be_written_is_left_to_the_classes(record: CoordinatorRecord) -> None:
    assert record.value is not None
    assert write_offset_commit(record.key, record.value, record.version) is None


@unhurried
@given(st.data())
def test_broken_bytes_are_an_error_of_the_classes(data: st.DataObject) -> None:
    """Goal: no bytes that are malformed are kept as an offset, and nothing but the usual error is raised."""
    key, value = encoded(
        data.draw(records(OffsetCommitKey, OffsetCommitValue, 4).filter(lambda each: each.value is not None))
    )
    broken = [bytearray(key), bytearray(value or b"")]
    for part in broken:
        if data.draw(st.booleans()):
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            del part[data.draw(st.integers(0, len(part))) :]
    broken_key, broken_value = map(bytes, broken)
    found = read(broken_key, broken_value)
    try:
        expected = SLOW.decode(broken_key, broken_value)
    except ReplogError:
        assert found is None
    else:
        assert found in (expected, None)


@pytest.mark.parametrize("topic_id", [UUID(int=0), UUID(int=5)])
@pytest.mark.parametrize("metadata", ["", "note"])
def test_a_value_that_is_cut_or_has_a_byte_more_is_not_kept(topic_id: UUID, metadata: str) -> None:
    value = pack(OffsetCommitValue(1, 2, metadata, 3, topic_id=topic_id))
    assert may_be_kept(value)
    assert not any(may_be_kept(value[:end]) for end in range(len(value)))
    assert not may_be_kept(value + b"\0")
