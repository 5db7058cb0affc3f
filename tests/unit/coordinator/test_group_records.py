"""Records of `__consumer_offsets`: the bytes that Kafka 4.1.1's coordinator writes, every version there and back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from group_record_kit import CASES, GOLDEN, TYPES, golden_records, records, unhurried
from hypothesis import given
from hypothesis import strategies as st

from replog.coordinator.group_records import (
    GROUP_METADATA_VERSION,
    GROUP_RECORDS,
    OFFSET_COMMIT_VERSION,
    OFFSET_COMMIT_WITH_EXPIRY_VERSION,
)
from replog.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentKey as CurrentKey,
)
from replog.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentValue as CurrentValue,
)
from replog.coordinator.messages import ConsumerGroupMemberMetadataKey as MemberKey
from replog.coordinator.messages import ConsumerGroupMemberMetadataValue as MemberValue
from replog.coordinator.messages import ConsumerGroupMetadataKey as EpochKey
from replog.coordinator.messages import ConsumerGroupMetadataValue as EpochValue
from replog.coordinator.messages import (
    ConsumerGroupPartitionMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from replog.coordinator.messages import (
    ConsumerGroupRegularExpressionKey as RegexKey,
)
from replog.coordinator.messages import (
    ConsumerGroupRegularExpressionValue as RegexValue,
)
from replog.coordinator.messages import (
    ConsumerGroupTargetAssignmentMemberKey as TargetKey,
)
from replog.coordinator.messages import (
    ConsumerGroupTargetAssignmentMemberValue as TargetValue,
)
from replog.coordinator.messages import (
    ConsumerGroupTargetAssignmentMetadataKey as TargetEpochKey,
)
from replog.coordinator.messages import (
    ConsumerGroupTargetAssignmentMetadataValue as TargetEpochValue,
)
from replog.coordinator.records import CoordinatorRecord
from replog.errors import InvariantViolationError, MalformedFrameError, UnsupportedVersionError

TOPIC_ID = UUID("01020304-0506-0708-1112-131415161718")
T0 = 1_700_000_000_000
COMMIT = OffsetCommitKey("g", "flights", 7)
OWNED = [CurrentValue.TopicPartitions(TOPIC_ID, [0, 7])]
CLASSIC_MEMBER = GroupMetadataValue.MemberMetadata("m1", "i1", "c1", "/127.0.0.1", 60_000, 45_000, b"\0\1\2", b"\5\6")
EXPECTED = {
    "offset": CoordinatorRecord(COMMIT, OffsetCommitValue(42, 3, "note", T0, -1, TOPIC_ID), OFFSET_COMMIT_VERSION),
    "offset-without-id": CoordinatorRecord(COMMIT, OffsetCommitValue(42, -1, "", T0), OFFSET_COMMIT_VERSION),
    "offset-with-expiry": CoordinatorRecord(
        COMMIT, OffsetCommitValue(42, -1, "note", T0, T0 + 9_999), OFFSET_COMMIT_WITH_EXPIRY_VERSION
    ),
    "offset-gone": CoordinatorRecord(COMMIT, None),
    "classic": CoordinatorRecord(
        GroupMetadataKey("g"),
        GroupMetadataValue("consumer", 3, "range", "m1", T0, [CLASSIC_MEMBER]),
        GROUP_METADATA_VERSION,
    ),
    "classic-gone": CoordinatorRecord(GroupMetadataKey("g"), None),
    "epoch": CoordinatorRecord(EpochKey("g"), EpochValue(9, -7_123_456_789)),
    "epoch-without-hash": CoordinatorRecord(EpochKey("g"), EpochValue(9)),
    "epoch-gone": CoordinatorRecord(EpochKey("g"), None),
    "metadata-gone": CoordinatorRecord(ConsumerGroupPartitionMetadataKey("g"), None),
    "member": CoordinatorRecord(
        MemberKey("g", "m1"),
        MemberValue("i1", "r1", "c1", "/127.0.0.1", ["flights", "planes"], "fl.*", 45_000, "uniform", None),
    ),
    "classic-member": CoordinatorRecord(
        MemberKey("g", "m2"),
        MemberValue(
            None,
            None,
            "c2",
            "/::1",
            ["flights"],
            "",
            -1,
            None,
            MemberValue.ClassicMemberMetadata(10_000, [MemberValue.ClassicProtocol("range", b"\0\1\2")]),
        ),
    ),
    "member-gone": CoordinatorRecord(MemberKey("g", "m1"), None),
    "target-epoch": CoordinatorRecord(TargetEpochKey("g"), TargetEpochValue(9)),
    "target": CoordinatorRecord(TargetKey("g", "m1"), TargetValue([TargetValue.TopicPartition(TOPIC_ID, [0, 7])])),
    "current": CoordinatorRecord(CurrentKey("g", "m1"), CurrentValue(5, 4, 1, OWNED, OWNED)),
    "regex": CoordinatorRecord(RegexKey("g", "fl.*"), RegexValue(["flights"], 17, T0)),
    "regex-gone": CoordinatorRecord(RegexKey("g", "fl.*"), None),
}


def test_what_kafka_writes_is_read_and_written_byte_for_byte() -> None:
    golden = dict(golden_records())
    assert golden.keys() == EXPECTED.keys(), GOLDEN
    for name, encoded in golden.items():
        assert GROUP_RECORDS.decode(*encoded) == EXPECTED[name], name
        assert GROUP_RECORDS.encode(EXPECTED[name]) == encoded, name


@pytest.mark.parametrize(("key", "value", "version"), CASES, ids=[f"{key.__name__}-{n}" for key, _, n in CASES])  # type: ignore[attr-defined]
@unhurried
@given(data=st.data())
def test_there_and_back(key: Any, value: Any, version: int, data: st.DataObject) -> None:
    """Goal: what is read is what was written, but for fields that the version lacks; reading changes nothing."""
    record = data.draw(records(key, value, version))
    encoded = GROUP_RECORDS.encode(record)
    found = GROUP_RECORDS.decode(*encoded)
    assert found is not None
    assert found.key == record.key
    if version == value.VERSIONS[-1] and value is not OffsetCommitValue:
        assert found == record
    assert GROUP_RECORDS.encode(found) == encoded


def test_all_types_of_consumer_groups_are_there() -> None:
    assert [(key.RECORD_TYPE, len(value.VERSIONS)) for key, value in TYPES] == [
        *((0, 1), (1, 5), (2, 5)),
        *((number, 1) for number in (3, 4, 5, 6, 7, 8, 16)),
    ]


def test_a_type_that_is_not_known_is_left_out() -> None:
    assert GROUP_RECORDS.decode(b"\0\x0e\0\1g", b"whatever") is None


def test_a_version_that_is_not_known_is_an_error() -> None:
    key, value = dict(golden_records())["offset"]
    with pytest.raises(UnsupportedVersionError, match="type 1 has version 5, and this release reads 0 to 4"):
        GROUP_RECORDS.decode(key, b"\0\5" + (value or b"")[2:])


@pytest.mark.parametrize(("name", "encoded"), list(golden_records()), ids=[name for name, _ in golden_records()])
def test_bytes_that_are_cut_off_or_left_over_are_malformed(name: str, encoded: tuple[bytes, bytes | None]) -> None:
    key, value = encoded
    for cut in (None, b"", key[:-1], key + b"\0"):
        with pytest.raises(MalformedFrameError):
            GROUP_RECORDS.decode(cut, value)
    for wrong in () if value is None else (b"", value[:-1], value + b"\0"):
        with pytest.raises(MalformedFrameError):
            GROUP_RECORDS.decode(key, wrong)


def test_a_value_of_another_type_is_a_bug() -> None:
    with pytest.raises(InvariantViolationError, match="no record of this topic"):
        GROUP_RECORDS.encode(CoordinatorRecord(COMMIT, EpochValue(9)))
