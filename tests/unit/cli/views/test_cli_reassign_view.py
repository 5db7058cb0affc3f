"""What `topics reassign --verify` says of partitions that move."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from replog.cli.views.reassignments import (
    as_json,
    copy_words,
    lines,
    share_words,
    size_text,
    time_text,
    total_words,
    verified,
)
from replog.client import CopyProgress, PartitionReassignment, Reassignments
from replog.client.admin.reassignments import CopyTotal
from replog.rpc.metadata_messages import ClusterMetadata, PartitionInfo, TopicInfo

MOVING = PartitionInfo(0, 1, 0, 0, (1, 2, 3), (1, 2), adding_replicas=(3,), removing_replicas=(2,))
ENDING = PartitionInfo(1, 1, 0, 0, (1, 2), (1, 2), removing_replicas=(2,))
DONE = PartitionInfo(2, 1, 0, 0, (1, 3), (1, 3))
METADATA = ClusterMetadata("c", 1, 1, 1, (), (TopicInfo("flights", UUID(int=1), (MOVING, ENDING, DONE)),))
WANTED = {("flights", number): (1, 3) for number in range(3)} | {("flights", 9): (1, 3)}
COPY = CopyProgress(
    3, is_in_sync=False, needed_bytes=40_000_000, copied_bytes=12_300_000, bytes_per_s=2_100_000, eta_s=13.2
)
MOVES = Reassignments(0, (PartitionReassignment("flights", 0, (1, 3), (2,), (COPY,)),))


def copied(**changes: object) -> str:
    values = {"needed_bytes": 1_000, "copied_bytes": 250, "is_in_sync": False} | changes
    return copy_words(CopyProgress(3, **values))  # type: ignore[arg-type]


def test_a_plan_is_told_partition_by_partition_with_a_sum() -> None:
    found = verified(METADATA, MOVES, WANTED)
    assert lines(found, MOVES) == [
        "flights-0: under way; not in sync yet: 3; broker 3 has 12.3 MB of 40.0 MB (30 %), 2.1 MB/s, 14 s left",
        "flights-1: under way; not in sync yet: nobody, about to end",
        "flights-2: done",
        "flights-9: there is no such partition",
        "in all 12.3 MB of 40.0 MB (30 %), 2.1 MB/s, 14 s left",
    ]
    assert [(one.is_done, one.is_under_way) for one in found] == [
        (False, True),
        (False, True),
        (True, False),
        (False, False),
    ]
    elsewhere = verified(METADATA, Reassignments(0, ()), {("flights", 2): (2, 3)})
    assert lines(elsewhere, Reassignments(0, ())) == ["flights-2: not under way; its replicas are 1, 3"]


def test_json_has_the_numbers() -> None:
    look = json.loads(as_json(verified(METADATA, MOVES, WANTED), MOVES))
    assert look["is_done"] is False
    assert look["partitions"][0]["copies"][0]["copied_bytes"] == 12_300_000
    assert look["total"] == {
        "needed_bytes": 40_000_000, "copied_bytes": 12_300_000, "bytes_per_s": 2_100_000, "eta_s": 13.2,
        "stalled_count": 0,
    }  # fmt: skip
    done = json.loads(as_json(verified(METADATA, MOVES, {("flights", 2): (1, 3)}), MOVES))
    assert done["is_done"] is True


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (copied(), "broker 3 has 250 B of 1.0 kB (25 %)"),
        (copied(is_in_sync=True), "broker 3 is in sync"),
        (copied(bytes_per_s=9, eta_s=None), "broker 3 has 250 B of 1.0 kB (25 %), 9 B/s, no end in sight at this rate"),
        (copied(bytes_per_s=9, eta_s=2, throttle_bytes_per_s=10),
         "broker 3 has 250 B of 1.0 kB (25 %), 9 B/s, 2 s left, throttled to 10 B/s"),
        (copied(is_stalled=True, bytes_per_s=0, trouble="its broker is down", throttle_bytes_per_s=10),
         "broker 3 has 250 B of 1.0 kB (25 %), stalls: its broker is down"),
        (copied(is_stalled=True, bytes_per_s=0, throttle_bytes_per_s=10),
         "broker 3 has 250 B of 1.0 kB (25 %), stalls: throttled to 10 B/s, shared by all that moves"),
        (copied(is_stalled=True, bytes_per_s=0),
         "broker 3 has 250 B of 1.0 kB (25 %), stalls: nobody says why; see the log of broker 3"),
        (copied(needed_bytes=None, trouble="broker 1 does not answer as the leader"),
         "broker 3: how much it has is not known (broker 1 does not answer as the leader)"),
    ],
)  # fmt: skip
def test_a_new_replica(words: str, expected: str) -> None:
    assert words == expected


def test_a_total_names_how_many_stand_still() -> None:
    assert total_words(CopyTotal(100, 50, None, None, 0)) == "in all 50 B of 100 B (50 %)"
    total = total_words(CopyTotal(100, 50, 0, None, 2))
    assert total == "in all 50 B of 100 B (50 %), 0 B/s, no end in sight at this rate, 2 replicas stalled"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (99_900, "99.9 kB"), (99_960, "100 kB"), (999_600, "1.0 MB"),
     (5_300_000_000, "5.3 GB"), (2**63, "9,223.4 PB")],
)  # fmt: skip
def test_sizes(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.2, "1 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7_500, "2 h 5 min"),
        (3_601, "1 h"),
        (273_600, "3 d 4 h"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_something_missing_is_never_100_percent() -> None:
    assert share_words(999_999_999, 1_000_000_000).endswith("(99 %)")
    assert share_words(0, 0).endswith("(100 %)")
