"""Groups as an operator is told of them."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from replog.client import MemberDescription, OffsetAndTimestamp, PartitionLag, TopicPartition
from replog.client.admin.group_descriptions import (
    classic_group,
    consumer_group,
    owners_of,
    partition_lags,
    uncommitted,
    with_ages,
)
from replog.coordinator.describing.requests import (
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
)
from replog.coordinator.offsets.requests import CommittedOffset

T, U = TopicPartition("t", 0), TopicPartition("u", 1)
KNOWN, GONE = UUID(int=1), UUID(int=2)


def assignment(*topics: tuple[str, tuple[int, ...]], more: bytes = b"") -> bytes:
    """What a consumer of the classic protocol has got, as members tell one another."""
    body = struct.pack(">hi", 1, len(topics))
    for name, partitions in topics:
        body += struct.pack(
            f">h{len(name)}si{len(partitions)}i", len(name), name.encode(), len(partitions), *partitions
        )
    return body + more


def classic(data: bytes, protocol_type: str = "consumer") -> tuple[TopicPartition, ...]:
    member = DescribedMember("m", "i", "app", "10.0.0.1", b"", data)
    found = classic_group(DescribedGroup("g", "Stable", protocol_type, "range", (member,)), 3)
    assert (found.coordinator_id, found.assignor, found.epoch) == (3, "range", None)
    (described,) = found.members
    return described.assignment


def test_what_members_of_the_classic_protocol_have_got() -> None:
    assert classic(assignment(("u", (1,)), ("t", (2, 0)), more=b"\0\0\0\0")) == (("t", 0), ("t", 2), ("u", 1))
    assert classic(assignment(("t", (0,))), "connect") == ()


@pytest.mark.parametrize(
    "data", [b"", b"\0", assignment(("t", (1, 2)))[:-1], b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\1\xff\0\0\0\0"]
)
def test_what_cannot_be_understood_is_nothing(data: bytes) -> None:
    assert classic(data) == ()


def test_members_of_kip_848_and_a_topic_that_has_gone() -> None:
    reads = {KNOWN: frozenset({1, 0}), GONE: frozenset({4})}
    members = [
        DescribedConsumer(name, None, None, 3, "app", "h", ("t",), "", reads if name == "a" else {}) for name in "ba"
    ]
    found = consumer_group(DescribedConsumerGroup("g", "Reconciling", 4, 3, "uniform", tuple(members)), 1, {KNOWN: "t"})
    assert [(each.member_id, each.assignment, each.epoch) for each in found.members] == [
        ("a", (("t", 0), ("t", 1)), 3),
        ("b", (), 3),
    ]
    assert (found.epoch, found.target_epoch) == (4, 3)


def test_lags_of_what_is_committed_or_read() -> None:
    member = MemberDescription("m", None, "app", "h", 1, (U,))
    assert partition_lags({T: CommittedOffset(0, 7, commit_timestamp=5)}, {T: 9, U: 5}, owners_of([member])) == (
        PartitionLag("t", 0, 7, 9, 2, None, committed_ms=5),
        PartitionLag("u", 1, None, 5, None, member),
    )


def test_a_lag_is_never_negative_and_not_guessed() -> None:
    """A log end is older than a commit where records came in between; a partition without a leader has none."""
    ahead, leaderless = partition_lags({T: CommittedOffset(0, 7), U: CommittedOffset(1, 3)}, {T: 6}, {})
    assert (ahead.lag, ahead.log_end) == (0, 6)
    assert (leaderless.lag, leaderless.log_end) == (None, None)


def test_a_lag_is_as_old_as_the_record_that_it_begins_with() -> None:
    committed = {TopicPartition("t", number): CommittedOffset(number, 5) for number in range(7)}
    ends = {each: 5 if each.partition == 0 else 9 for each in committed if each.partition != 6}
    lags = partition_lags(committed, ends, {})
    assert sorted(uncommitted(lags)) == [("t", number) for number in range(1, 6)]
    firsts = {
        TopicPartition("t", 1): OffsetAndTimestamp(5, 700),
        TopicPartition("t", 2): OffsetAndTimestamp(7, 1_200),  # of a clock that is ahead
        TopicPartition("t", 3): OffsetAndTimestamp(-1, -1),  # only gaps
        TopicPartition("t", 4): OffsetAndTimestamp(5, -1),  # a record without a time
    }  # 5: its leader did not tell; 6: it has none
    assert [each.lag_ms for each in with_ages(lags, firsts, 1_000)] == [0, 300, 0, 0, None, None, None]
