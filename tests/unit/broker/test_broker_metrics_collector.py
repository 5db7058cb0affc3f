"""What a scrape reads, and what it is called."""

from __future__ import annotations

import math
from pathlib import Path

from broker_kit import KEY, registered, rig, topic
from metrics_kit import samples
from prometheus_client import CollectorRegistry

import replog
from replog.broker.metrics.collector import NodeCollector
from replog.broker.metrics.paths import Instruments
from replog.broker.metrics.readings import (
    AccessReading,
    CoordinatorReading,
    FollowerReading,
    LeaderReading,
    QuorumReading,
    Readings,
    read_leaders,
)
from replog.broker.replicas.open_transactions import LATE_BEYOND_MS, OpenTransactions
from replog.coordinator.describing.requests import GroupOffset
from replog.coordinator.rebalance_reasons import RebalanceReason
from replog.coordinator.runtime.shard import ShardState
from replog.metadata.records import ElectionType, PartitionChangeRecord
from replog.records import encode_batch

OPERATIONS = Path(replog.__file__).parents[1] / "docs" / "OPERATIONS.md"
BROKERS = (registered(1), registered(2), registered(3))
READINGS = Readings(
    is_running=True, partitions_count=5, offline_partitions_count=1, offline_replicas_count=2,
    leaders=(
        LeaderReading("t", 0, is_under_replicated=True, is_under_min_isr=True, high_watermark=31,
                      followers=(FollowerReading(2, 7, 1_500), FollowerReading(3, 9, None))),
        LeaderReading("t", 1, is_under_replicated=False, is_under_min_isr=False, high_watermark=0,
                      followers=(FollowerReading(2, 0, 0),),
                      transactions=OpenTransactions(2, 7, 5, 1_500, is_late=True)),
    ),
    isr_shrinks=3, isr_expands=4, waiting_produces=5, waiting_fetches=6, waiting_incremental_fetches=7,
    waiting_deletions=9, incremental_fetches=8, unread_bytes=11, loop_lag_ms=12,
    quorum=QuorumReading(
        epoch=9, leader_id=1, is_leader=True, high_watermark=70, log_end_offset=71, elections=2, election_ms=250,
        commit_ms=((0.5, 4), (0.99, None)), voter_lags=((1, 0), (2, 3)),
    ),
    coordinators=CoordinatorReading(
        shards={ShardState.ACTIVE: 3, ShardState.LOADING: 1}, open_requests=2, committed_offsets=13,
        groups={"Stable": 4, "Empty": 1}, load_ms=40, rebalances={RebalanceReason.SILENT: 6},
        offsets=[GroupOffset('a "b"', "t", 0, 29)], left_out_count=7,
    ),
    elections={ElectionType.CLEAN: 3, ElectionType.UNCLEAN: 1}, access=AccessReading(21, 22),
 refused_nodes=23,
)  # fmt: skip


def collected(readings: Readings = READINGS) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(NodeCollector(lambda: readings))
    return samples(registry)


def test_names_and_units() -> None:
    assert collected() == {
        "replog_broker_running": 1,
        "replog_partitions": 5,
        "replog_leaders": 2,
        "replog_under_replicated_partitions": 1,
        "replog_under_min_isr_partitions": 1,
        "replog_open_transactions": 2,
        "replog_late_transactions": 1,
        'replog_open_transaction_seconds{partition="1",topic="t"}': 1.5,
        'replog_open_transaction_first_offset{partition="1",topic="t"}': 5,
        "replog_offline_partitions": 1,
        "replog_offline_replicas": 2,
        "replog_isr_shrinks_total": 3,
        "replog_isr_expands_total": 4,
        'replog_replica_lag_records{partition="0",replica="2",topic="t"}': 7,
        'replog_replica_lag_records{partition="0",replica="3",topic="t"}': 9,
        'replog_replica_lag_records{partition="1",replica="2",topic="t"}': 0,
        'replog_replica_lag_seconds{partition="0",replica="2",topic="t"}': 1.5,
        'replog_replica_lag_seconds{partition="0",replica="3",topic="t"}': math.inf,
        'replog_replica_lag_seconds{partition="1",replica="2",topic="t"}': 0,
        'replog_purgatory_size{operation="produce"}': 5,
        'replog_purgatory_size{operation="fetch"}': 6,
        'replog_purgatory_size{operation="incremental_fetch"}': 7,
        'replog_purgatory_size{operation="delete_records"}': 9,
        "replog_incremental_fetches": 8,
        "replog_unread_answers_bytes": 11,
        "replog_event_loop_lag_seconds": 0.012,
        "replog_quorum_epoch": 9,
        "replog_quorum_leader_id": 1,
        "replog_quorum_is_leader": 1,
        "replog_quorum_high_watermark": 70,
        "replog_quorum_log_end_offset": 71,
        "replog_quorum_elections_total": 2,
        "replog_quorum_election_seconds": 0.25,
        'replog_quorum_commit_seconds{quantile="0.5"}': 0.004,
        'replog_quorum_voter_lag_records{voter="1"}': 0,
        'replog_quorum_voter_lag_records{voter="2"}': 3,
        'replog_group_coordinators{state="loading"}': 1,
        'replog_group_coordinators{state="active"}': 3,
        'replog_group_coordinators{state="failed"}': 0,
        'replog_groups{state="stable"}': 4,
        'replog_groups{state="empty"}': 1,
        "replog_group_open_requests": 2,
        "replog_group_committed_offsets_total": 13,
        "replog_group_load_seconds": 0.04,
        'replog_partition_high_watermark{partition="0",topic="t"}': 31,
        'replog_partition_high_watermark{partition="1",topic="t"}': 0,
        'replog_group_rebalances_total{reason="joined"}': 0,
        'replog_group_rebalances_total{reason="left"}': 0,
        'replog_group_rebalances_total{reason="silent"}': 6,
        'replog_group_rebalances_total{reason="slow"}': 0,
        'replog_group_rebalances_total{reason="changed"}': 0,
        'replog_group_committed_offset{group="a "b"",partition="0",topic="t"}': 29,
        "replog_group_offsets_left_out": 7,
        'replog_elections_total{type="clean"}': 3,
        'replog_elections_total{type="unclean"}': 1,
        "replog_acl_entries": 21,
        "replog_acl_denials_total": 22,
        "replog_node_authentications_failed_total": 23,
    }


def test_every_metric_is_documented() -> None:
    registry = Instruments().registry
    registry.register(NodeCollector(lambda: READINGS))
    text = OPERATIONS.read_text(encoding="utf-8")
    ours = {family.name for family in registry.collect() if family.name.startswith("replog_")}
    assert len(ours) > 25
    assert not [name for name in ours if f"`{name}" not in text]


async def test_a_transaction_that_nobody_ends_is_late() -> None:
    async with rig(transaction_max_timeout_ms=1_000) as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(1)
        data = encode_batch(
            [(1, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
        )

        async def read() -> OpenTransactions | None:
            (reading,) = await it.stepper.driver.call(lambda: read_leaders(it.stepper, [KEY]))
            return reading.transactions

        assert await read() is None
        now_ms = it.clock.wall_ms()
        await it.stepper.driver.call(lambda: it.replica.log.append_as_leader(data, leader_epoch=0, now_ms=now_ms))
        await it.committed(1)
        assert await read() == OpenTransactions(1, 7, 1, 0, is_late=False)
        it.clock.wall_clock_ms += 1_000 + LATE_BEYOND_MS
        assert await read() == OpenTransactions(1, 7, 1, 301_000, is_late=False)
        it.clock.wall_clock_ms += 1
        assert await read() == OpenTransactions(1, 7, 1, 301_001, is_late=True)


async def test_leaders_are_read_and_followers_are_not() -> None:
    async with rig(min_insync_replicas=2) as it:
        await it.apply(*BROKERS, *topic((1, 2, 3), isr=(1,)))
        it.produce(acks=1)
        it.fetch(0, replica_id=2)
        await it.advance(300)
        (reading,) = read_leaders(it.stepper, [KEY])
        assert (reading.topic, reading.is_under_replicated, reading.is_under_min_isr) == ("flights", True, True)
        assert reading.followers == (FollowerReading(2, 1, None), FollowerReading(3, 1, None))
        await it.apply(PartitionChangeRecord(0, it.replica.topic_id, isr=(1, 2), adding_replicas=(3,)))
        (reading,) = read_leaders(it.stepper, [KEY])
        assert (reading.is_under_replicated, reading.is_under_min_isr) == (False, False), "3 is only being added"
        await it.apply(PartitionChangeRecord(0, it.replica.topic_id, leader=2))
        assert read_leaders(it.stepper, [KEY]) == []
        it.stepper.replicas.pop(KEY)
        assert read_leaders(it.stepper, [KEY]) == [], "deleted since the keys were listed"
