"""What a leader tells of the others: how far behind they are, and since when."""

from __future__ import annotations

from replog.metadata.config_keys import FlushPolicy
from replog.replication.leader import Leader
from replog.replication.leader_status import ReplicaStanding
from replog.replication.messages import Appended, FollowerFetched, PartitionState


def leading(**values: object) -> Leader:
    state = PartitionState(
        leader=1, leader_epoch=4, partition_epoch=9, replicas=(1, 2, 3), isr=(1, 2), elr=(3,), min_insync_replicas=2,
        eligible={1: 101, 2: 102, 3: 103},
    )  # fmt: skip
    return Leader(
        topic_partition="flights-0", broker_id=1, state=state, log_end_offset=10, flushed_offset=10, high_watermark=10,
        flush_policy=FlushPolicy.AUTO, now_ms=1_000,
    )  # fmt: skip


def replica(lag: int, caught_up_ms: int | None) -> ReplicaStanding:
    return ReplicaStanding(2, 5, 5, lag, 102, caught_up_ms)


def test_a_replica_with_everything_has_no_lag_however_long_it_waits_for_news() -> None:
    assert replica(0, 1_000).lag_ms(9_000) == 0
    assert replica(0, None).lag_ms(9_000) == 0


def test_a_lag_counts_from_the_last_time_with_everything() -> None:
    assert replica(3, 1_000).lag_ms(9_000) == 8_000
    assert replica(3, 9_001).lag_ms(9_000) == 0, "never negative"
    assert replica(3, None).lag_ms(9_000) is None, "it never had everything under this leader"


def test_the_leader_knows_ends_epochs_and_times_of_its_followers() -> None:
    leader = leading()
    leader.step(FollowerFetched(2, 102, 10, 8, 0, 10), 2_000)
    leader.step(Appended(12), 3_000)
    status = leader.status()
    assert (status.elr, status.min_insync_replicas, status.partition_epoch) == ((3,), 2, 9)
    own, second, third = status.replicas
    assert (own.lag, own.lag_ms(5_000)) == (0, 0)
    assert (second.log_end_offset, second.flushed_offset, second.lag, second.broker_epoch) == (10, 8, 2, 102)
    assert second.lag_ms(5_000) == 2_000, "it had everything until the append at 3,000"
    assert (third.log_end_offset, third.lag, third.broker_epoch, third.lag_ms(5_000)) == (-1, 12, None, None)
