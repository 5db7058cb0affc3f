"""When a replica counts as caught up (docs/KAFKA.md 4.2)."""

from __future__ import annotations

from replog.replication.remote_replicas import ReplicaState


def fetch(replica: ReplicaState, offset: int, *, leader_end: int, now_ms: int) -> None:
    replica.record_fetch(
        fetch_offset=offset,
        flushed_offset=offset,
        log_start_offset=0,
        broker_epoch=102,
        leader_end_offset=leader_end,
        now_ms=now_ms,
    )


def test_never_fetched_is_not_caught_up_even_when_the_clock_is_young() -> None:
    assert not ReplicaState(2).is_caught_up(5, now_ms=3, lag_time_max_ms=10_000)


def test_reaching_the_leaders_end_is_caught_up_now() -> None:
    replica = ReplicaState(2)
    fetch(replica, 5, leader_end=5, now_ms=1_000)
    assert replica.last_caught_up_time_ms == 1_000


def test_reaching_the_end_of_the_previous_fetch_is_caught_up_then() -> None:
    replica = ReplicaState(2)
    fetch(replica, 3, leader_end=5, now_ms=1_000)
    assert replica.last_caught_up_time_ms is None
    fetch(replica, 5, leader_end=9, now_ms=2_000)
    assert replica.last_caught_up_time_ms == 1_000
    fetch(replica, 8, leader_end=12, now_ms=3_000)
    assert replica.last_caught_up_time_ms == 1_000


def test_lag_time_is_inclusive_and_an_equal_end_needs_no_time() -> None:
    replica = ReplicaState(2)
    fetch(replica, 5, leader_end=5, now_ms=1_000)
    assert replica.is_caught_up(6, now_ms=11_000, lag_time_max_ms=10_000)
    assert not replica.is_caught_up(6, now_ms=11_001, lag_time_max_ms=10_000)
    assert replica.is_caught_up(5, now_ms=99_999, lag_time_max_ms=10_000)


def test_a_new_epoch_of_the_same_leader_keeps_ends_and_restarts_times() -> None:
    member, outsider = ReplicaState(2), ReplicaState(3)
    for replica in (member, outsider):
        fetch(replica, 4, leader_end=4, now_ms=1_000)
        replica.start_over(in_isr=replica is member, leader_end_offset=9, now_ms=5_000)
    assert (member.log_end_offset, outsider.log_end_offset) == (4, 4)
    assert (member.last_caught_up_time_ms, outsider.last_caught_up_time_ms) == (5_000, None)
    fetch(outsider, 9, leader_end=12, now_ms=6_000)
    assert outsider.last_caught_up_time_ms is None
