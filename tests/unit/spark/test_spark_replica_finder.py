"""Who is asked where records stand in files, and for how long not again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from replog.client import ClusterView
from replog.client.ranges import direct_reads
from replog.client.ranges.direct_reads import ReplicaFinder
from replog.client.ranges.offset_range import OffsetRange
from replog.errors import NotLeaderOrFollowerError, ReplogError, RequestTimedOutError
from replog.rpc.node_messages import LocateSegmentsRequest, LocateSegmentsResponse, SegmentSpan
from replog.rpc.transport import ConnectionLostError
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.spark.spark_fakes import open_view

SPAN = SegmentSpan("/log/0.log", 0, 100, 0, 10, 1, 2, -1)
FOUND = LocateSegmentsResponse((SPAN,), 0, "")
BEHIND = LocateSegmentsResponse((), 0, "")
ELSEWHERE = LocateSegmentsResponse((), -1, "the caller is on another machine")

Said = LocateSegmentsResponse | ReplogError


class Brokers:
    """A view of the cluster whose brokers say what a test wants; the last word again and again.

    Attributes:
        asked: (address, partition) of each question.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.says: dict[str, list[Said]] = {}
        self.asked: list[tuple[str, int]] = []

    @property
    def image(self) -> Any:
        return self._view.image

    async def read(self, address: str, request: LocateSegmentsRequest, *, timeout_ms: int) -> LocateSegmentsResponse:
        self.asked.append((address, request.partition_id))
        words = self.says[address]
        said = words.pop(0) if len(words) > 1 else words[0]
        if isinstance(said, ReplogError):
            raise said
        return said


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(direct_reads, "time", clock)
    monkeypatch.setattr(direct_reads, "asyncio", clock)
    monkeypatch.setattr(direct_reads, "boot_id", lambda: "this machine")
    return clock


@pytest.fixture
async def brokers(clock: Clock) -> AsyncIterator[Brokers]:
    cluster = FakeCluster(3)
    cluster.create_topic("t", 2)
    for partition in (0, 1):
        cluster.move_leader("t", partition, 1)
    async with open_view(cluster) as view:
        yield Brokers(view)


def wanted(brokers: Brokers, partition: int = 0) -> OffsetRange:
    return OffsetRange("t", brokers.image.topics["t"].topic_id, partition, 0, 10)


def addresses(brokers: Brokers) -> tuple[str, ...]:
    """Of the replicas in sync, the leader first."""
    isr = brokers.image.partition("t", 0).isr
    assert (isr[0], len(isr)) == (1, 3)
    return tuple(f"{each.host}:{each.port}" for each in map(brokers.image.brokers.get, isr))


async def test_one_partition_in_trouble_silences_no_broker(brokers: Brokers, clock: Clock) -> None:
    """Goal: the other partitions of a broker are read from files while one of them has just moved away."""
    finder: Any = ReplicaFinder(brokers)  # type: ignore[arg-type]  # as far as it is used
    leader, second, third = addresses(brokers)
    brokers.says = {leader: [NotLeaderOrFollowerError("moved"), FOUND], second: [ELSEWHERE], third: [ELSEWHERE]}
    assert await finder.locate(wanted(brokers), 0) is None
    assert await finder.locate(wanted(brokers), 0) is None, "not asked again at once"
    assert await finder.locate(wanted(brokers, 1), 0) == FOUND
    assert brokers.asked == [(leader, 0), (second, 0), (third, 0), (leader, 1)]
    clock.now_s += direct_reads.TROUBLE_S
    assert await finder.locate(wanted(brokers), 0) == FOUND


@pytest.mark.parametrize(
    ("said", "pause_s"),
    [
        (ELSEWHERE, direct_reads.ELSEWHERE_S),
        (RequestTimedOutError("no answer"), direct_reads.UNREACHED_S),
        (ConnectionLostError("gone"), direct_reads.UNREACHED_S),
    ],
)
async def test_a_broker_that_is_elsewhere_or_gone_is_left_alone(
    brokers: Brokers, clock: Clock, said: Said, pause_s: float
) -> None:
    finder: Any = ReplicaFinder(brokers)  # type: ignore[arg-type]  # as far as it is used
    leader, second, _ = addresses(brokers)
    brokers.says = {leader: [said, FOUND], second: [FOUND]}
    for partition in (0, 1):
        assert await finder.locate(wanted(brokers, partition), 0) == FOUND
    assert brokers.asked == [(leader, 0), (second, 0), (second, 1)]
    clock.now_s += pause_s
    await finder.locate(wanted(brokers), 0)
    assert brokers.asked[3:] == [(leader, 0)]
    assert len(finder._silent_until_s) <= 1


async def test_a_follower_on_this_machine_is_waited_for_as_long_as_its_high_watermark_may_take(
    brokers: Brokers, clock: Clock
) -> None:
    finder: Any = ReplicaFinder(brokers)  # type: ignore[arg-type]  # as far as it is used
    leader, second, third = addresses(brokers)
    brokers.says = {leader: [ELSEWHERE], second: [BEHIND, BEHIND, FOUND], third: [ELSEWHERE]}
    assert await finder.locate(wanted(brokers), 0) == FOUND
    assert clock.now_s == pytest.approx(1_000 + 2 * direct_reads.LAG_LOOK_S)
    brokers.says[second] = [BEHIND]
    assert await finder.locate(wanted(brokers), 5) is None, "the leader serves it"
    assert clock.now_s < 1_001


async def test_a_leader_without_batches_is_believed_at_once(brokers: Brokers, clock: Clock) -> None:
    """Goal: where compaction has left nothing nobody waits."""
    finder: Any = ReplicaFinder(brokers)  # type: ignore[arg-type]  # as far as it is used
    leader, *_ = addresses(brokers)
    brokers.says = {leader: [BEHIND]}
    assert await finder.locate(wanted(brokers), 0) is None
    assert clock.now_s == 1_000
    assert brokers.asked == [(leader, 0)]
