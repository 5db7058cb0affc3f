"""How far reassignments are, from what leaders and brokers say: bytes, rates, time left, and what is in the way."""

from __future__ import annotations

from uuid import UUID

import pytest
from fake_cluster import FakeCluster
from msgspec.structs import replace

from replog.client import Admin
from replog.client.admin.reassignments import (
    SILENT,
    BrokerSays,
    CopyProgress,
    Reassignments,
    compared,
    looked_at,
    total_of,
)
from replog.client.types import TopicPartition
from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
from replog.rpc.node_messages import LeaderView, ReplicaProgress, ReplicaStatus

NAME = TopicPartition("flights", 0)
PARTITION = PartitionInfo(0, 1, 5, 7, (1, 2, 3), (1, 2), adding_replicas=(3,), removing_replicas=(2,))
GIVEN, TAKEN = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
UNLIMITED = 2**63 - 1


def metadata(partition: PartitionInfo = PARTITION, *, fenced: tuple[int, ...] = ()) -> ClusterMetadata:
    brokers = tuple(BrokerInfo(one, "127.0.0.1", 9_000 + one, None, fenced=one in fenced) for one in (1, 2, 3))
    return ClusterMetadata("c", 1, 1, 1, brokers, (TopicInfo("flights", UUID(int=9), (partition,)),))


def status(view: LeaderView | None = None, *, size: int | None = None, reason: str = "") -> ReplicaStatus:
    return ReplicaStatus("flights", 0, view is not None, 5, 0, 0, 0, 0, (), "", reason, leader=view, size_bytes=size)


def leader(lag: int | None, *, size: int = 1_000, log_end_offset: int = 40, rate: int = UNLIMITED) -> BrokerSays:
    progress = ReplicaProgress(3, log_end_offset, 0, 0, 0, 0, lag_bytes=lag)
    view = LeaderView(7, 0, (1, 2), (), 1, recovering=False, waiting_produces=0, replicas=(progress,))
    return BrokerSays({NAME: status(view, size=size)}, {GIVEN: rate, TAKEN: 7})


def taker(*, size: int | None = 0, reason: str = "", rate: int = UNLIMITED) -> BrokerSays:
    return BrokerSays({NAME: status(size=size, reason=reason)}, {GIVEN: 7, TAKEN: rate})


def copy_of(found: Reassignments) -> CopyProgress:
    (copy,) = found.copies
    return copy


def seen(of_leader: BrokerSays, of_taker: BrokerSays = SILENT, **changed: object) -> CopyProgress:
    return copy_of(looked_at(metadata(replace(PARTITION, **changed)), {1: of_leader, 3: of_taker}, 0))


# ---- one look ----------------------------------------------------------------------------------------------------------


def test_the_leader_says_what_is_missing() -> None:
    (partition,) = looked_at(metadata(), {1: leader(600), 3: taker(size=77)}, 0).partitions
    assert (partition.topic, partition.replicas, partition.removing_replicas) == ("flights", (1, 3), (2,))
    (copy,) = partition.copies
    assert (copy.broker_id, copy.needed_bytes, copy.copied_bytes, copy.missing_bytes) == (3, 1_000, 400, 600)
    assert (copy.bytes_per_s, copy.eta_s, copy.is_stalled, copy.trouble) == (None, None, False, "")


@pytest.mark.parametrize(
    ("of_leader", "of_taker", "sizes"),
    [
        (leader(1_000, log_end_offset=-1), taker(size=300), (1_000, 300)),
        (leader(1_000, log_end_offset=-1), taker(size=3_000), (1_000, 1_000)),
        (leader(1_000, log_end_offset=-1), BrokerSays({}, {}), (1_000, 0)),
        (leader(None), taker(size=None), (1_000, None)),
        (leader(1_500), taker(), (1_000, 0)),
        (BrokerSays({NAME: status()}, {}), taker(), (None, None)),
        (SILENT, taker(size=3), (None, None)),
    ],
    ids=["new leader", "longer than its leader", "none yet", "older brokers", "start moved", "no leader", "silent"],
)
def test_sizes_where_the_leader_does_not_say_all(
    of_leader: BrokerSays, of_taker: BrokerSays, sizes: tuple[int | None, int | None]
) -> None:
    copy = seen(of_leader, of_taker)
    assert (copy.needed_bytes, copy.copied_bytes) == sizes


@pytest.mark.parametrize(("given", "taken", "rate"), [
    (UNLIMITED, UNLIMITED, None), (500, UNLIMITED, 500), (UNLIMITED, 400, 400), (500, 400, 400), (300, 400, 300),
])  # fmt: skip
def test_the_lower_of_both_throttles_counts(given: int, taken: int, rate: int | None) -> None:
    assert seen(leader(1, rate=given), taker(rate=taken)).throttle_bytes_per_s == rate


@pytest.mark.parametrize(
    ("copy", "trouble"),
    [
        (seen(leader(1), taker()), ""),
        (seen(leader(1), taker(reason="the disk is full")), "the disk is full"),
        (seen(leader(1), SILENT), "its broker does not answer"),
        (seen(SILENT, taker()), "broker 1 does not answer as the leader"),
        (seen(taker(), taker()), "broker 1 does not answer as the leader"),
        (seen(leader(1), taker(), leader=-1), "nobody leads the partition"),
        (copy_of(looked_at(metadata(fenced=(3,)), {1: leader(1), 3: taker()}, 0)), "its broker is down"),
        (copy_of(looked_at(metadata(replace(PARTITION, adding_replicas=(4,))), {}, 0)), "its broker is down"),
    ],
)
def test_what_is_in_the_way(copy: CopyProgress, trouble: str) -> None:
    assert copy.trouble == trouble


def test_what_does_not_move_is_not_named() -> None:
    assert looked_at(metadata(replace(PARTITION, adding_replicas=(), removing_replicas=())), {}, 0).partitions == ()
    (only_removing,) = looked_at(metadata(replace(PARTITION, adding_replicas=())), {}, 0).partitions
    assert only_removing.copies == ()


# ---- two looks ---------------------------------------------------------------------------------------------------------


def look(at_s: float, needed: int, copied: int, **more: object) -> Reassignments:
    found = looked_at(metadata(), {1: leader(needed - copied, size=needed), 3: taker()}, at_s)
    (partition,) = found.partitions
    return replace(found, partitions=(replace(partition, copies=(replace(partition.copies[0], **more),)),))


@pytest.mark.parametrize(
    ("before", "after", "rate", "eta_s", "stalled"),
    [
        (look(10, 1_000, 400), look(12, 1_000, 600), 100, 4, False),
        (look(10, 1_000, 400), look(12, 1_100, 700), 150, 4, False),
        (look(10, 1_000, 400), look(12, 1_300, 700), 150, None, False),
        (look(10, 1_000, 400), look(12, 1_500, 700), 150, None, False),
        (look(10, 1_000, 400), look(12, 1_000, 400), 0, None, True),
        (look(10, 1_000, 400), look(12, 1_200, 400), 0, None, True),
        (look(10, 1_000, 400), look(12, 1_000, 1_000), 300, 0, False),
        (look(10, 1_000, 1_000), look(12, 1_000, 1_000), 0, 0, False),
        (look(10, 1_000, 400), look(12, 700, 300), 0, 4, False),
        (look(10, 1_000, 400), look(10, 1_000, 600), None, None, False),
        (look(10, 1_000, 400), look(12, 1_000, 1_000, is_in_sync=True), None, 0, False),
        (look(10, 1_000, 400, copied_bytes=None), look(12, 1_000, 400), None, None, False),
        (Reassignments(10, ()), look(12, 1_000, 400), None, None, False),
    ],
    ids=[
        "steady", "producers write", "as fast as it is filled", "faster", "stalled", "stalled under load", "complete",
        "complete and idle", "old segments go", "no time between", "in sync", "was not known", "is new",
    ],
)  # fmt: skip
def test_rates_and_times_left(
    before: Reassignments, after: Reassignments, rate: float | None, eta_s: float | None, *, stalled: bool
) -> None:
    copy = copy_of(compared(before, after))
    assert (copy.bytes_per_s, copy.eta_s, copy.is_stalled) == (rate, eta_s, stalled)


def test_a_total_is_as_slow_as_the_slowest_and_leaves_out_what_nobody_could_tell() -> None:
    one = CopyProgress(3, is_in_sync=False, needed_bytes=1_000, copied_bytes=400, bytes_per_s=100, eta_s=6)
    stalled = CopyProgress(4, is_in_sync=False, needed_bytes=500, copied_bytes=0, bytes_per_s=0, is_stalled=True)
    unknown = CopyProgress(5, is_in_sync=False, needed_bytes=9_000)
    done = CopyProgress(6, is_in_sync=True, needed_bytes=10, copied_bytes=10, eta_s=0)
    total = total_of([one, done])
    assert (total.needed_bytes, total.copied_bytes, total.bytes_per_s, total.eta_s) == (1_010, 410, 100, 6)
    total = total_of([one, stalled, unknown])
    assert (total.needed_bytes, total.copied_bytes, total.bytes_per_s, total.eta_s) == (1_500, 400, 100, None)
    assert total.stalled_count == 1
    assert total_of([]).eta_s is None


async def test_nothing_is_asked_where_nothing_moves() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("flights")
    async with Admin(cluster.bootstrap, transport=cluster.transport()) as admin:
        found = await admin.describe_reassignments()
        assert found.partitions == ()
        assert (await admin.describe_reassignments(found)).total.stalled_count == 0
