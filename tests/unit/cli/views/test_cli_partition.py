"""`replog partition describe`: what it says of a partition."""

from __future__ import annotations

from uuid import UUID

import pytest
from cli_kit import Replog
from msgspec.structs import replace

from replog.cli.commands.partition import _row, caught_up, partition_name, summary
from replog.cli.errors import UsageError
from replog.client import PartitionDescription, ReplicaDescription

REPLICA = ReplicaDescription(
    broker_id=1, state="leader", reason="", is_in_isr=True, log_start_offset=0, log_end_offset=1_024,
    flushed_offset=1_024, high_watermark=1_000, lag_records=0, lag_ms=0, broker_epoch=31,
)  # fmt: skip
FOUND = PartitionDescription(
    topic="flights", topic_id=UUID(int=1), partition_id=3, leader=1, leader_epoch=5, partition_epoch=8,
    log_start_offset=0, log_end_offset=1_024, high_watermark=1_000, isr=(1, 2), maximal_isr=(1, 2), elr=(),
    adding_replicas=(), removing_replicas=(), min_insync_replicas=2, waiting_produces=0, is_recovering=False,
    replicas=(REPLICA,),
)  # fmt: skip


def test_a_name_ends_with_the_number() -> None:
    assert partition_name("flights-0") == ("flights", 0)
    assert partition_name("a-b-12") == ("a-b", 12)
    for text in ("flights", "flights-", "-3", "flights-x", "flights-²", ""):
        with pytest.raises(UsageError, match="is not TOPIC-P"):
            partition_name(text)


def test_a_wrong_name_needs_no_cluster(replog: Replog) -> None:
    done = replog("partition", "describe", "flights")
    assert (done.status, done.out, done.err) == (2, "", 'error: "flights" is not TOPIC-P, such as flights-0\n')


def test_the_summary_of_a_partition() -> None:
    assert summary(FOUND) == [
        "flights-3: leader 1, leader epoch 5, partition epoch 8",
        "log 0 to 1,024, high watermark 1,000",
        "isr 1,2; 2 needed for acks=all; eligible leaders outside the isr: none",
    ]


def test_the_summary_says_what_is_under_way() -> None:
    lines = summary(
        replace(FOUND, waiting_produces=2, maximal_isr=(1, 2, 3), elr=(4,), adding_replicas=(3,), is_recovering=True)
    )
    assert lines[1].endswith("high watermark 1,000, 2 appends not acknowledged yet")
    assert lines[2] == (
        "isr 1,2 (being changed: up to 1,2,3 count); 2 needed for acks=all; eligible leaders outside the isr: 4"
    )
    assert lines[3:] == ["moving: adding 3, removing none", "recovering: its leader was elected uncleanly"]


def test_the_summary_without_a_leader_and_without_its_answer() -> None:
    silent = replace(FOUND, log_end_offset=-1, min_insync_replicas=-1)
    assert summary(silent)[1] == "broker 1 does not answer as the leader: offsets and lags are not known"
    nobody = summary(replace(silent, leader=-1))
    assert nobody[0].startswith("flights-3: no leader")
    assert len(nobody) == 2


def test_since_when_a_replica_is_behind() -> None:
    assert caught_up(REPLICA) == "now"
    assert caught_up(replace(REPLICA, lag_records=5, lag_ms=12_500)) == "12,500 ms ago"
    assert caught_up(replace(REPLICA, lag_records=5, lag_ms=-1)) == "not yet"
    assert caught_up(replace(REPLICA, lag_records=-1, lag_ms=-1)) == "-"


def test_a_replica_that_does_not_run_is_not_caught_up_now() -> None:
    """All that is known of it: it is in the ELR, and where it ended when the leader heard it last."""
    down = ReplicaDescription(
        broker_id=2, state="down", reason="", is_in_isr=False, log_start_offset=-1, log_end_offset=1_024,
        flushed_offset=-1, high_watermark=-1, lag_records=0, lag_ms=-1, broker_epoch=31, is_in_elr=True,
    )  # fmt: skip
    assert _row(down) == ["2", "-", "1,024", "-", "-", "0", "-", "31", "out, in the elr", "down"]
    assert _row(replace(down, is_in_elr=False))[-2:] == ["out", "down"]
