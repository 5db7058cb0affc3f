"""What the next batch of a stream is, and what a batch reads."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replog.client.types import TopicPartition
from replog.errors import ConfigError, InconsistentClusterIdError, OffsetOutOfRangeError
from replog.spark.options import Limits
from replog.spark.stream import planner
from replog.spark.stream.admission import UNKNOWN_OFFSET_BYTES
from replog.spark.stream.changes import Known, LogBounds
from replog.spark.stream.offset import Place, Places
from replog.spark.stream.planner import BatchPlanner

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=1), UUID(int=2)


class FakeSource:
    """Bounds that a test sets."""

    def __init__(self, **ends: int) -> None:
        self.cluster_id = "c"
        self.bounds: dict[TopicPartition, LogBounds] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.epochs_asked: list[Mapping[TopicPartition, int]] = []
        self.starts: dict[TopicPartition, int] | None = None
        self.untold: frozenset[TopicPartition] = frozenset()
        self.watched: dict[TopicPartition, LogBounds] | None = None
        self.metadata_offset = 7
        self.stale: Known | None = None
        self.version = 0
        for name, end in ends.items():
            self.set(TopicPartition("t", int(name[1:])), end)

    def set(
        self,
        partition: TopicPartition,
        end: int,
        *,
        start: int = 0,
        epoch: int = 0,
        topic_id: UUID = OLD,
        size: float = 0,
    ) -> None:
        self.bounds[partition] = LogBounds(topic_id, start, end, epoch, size)
        self.untold -= {partition}
        self.version += 1

    def remove(self, partition: TopicPartition, *, is_untold: bool = False) -> None:
        del self.bounds[partition]
        self.untold |= {partition} if is_untold else set()
        self.version += 1

    def stop_watches(self) -> None:
        """From now on leaders must be asked."""
        self.watched = dict(self.bounds)

    def known(self, metadata_offset: int = -1) -> Known:
        """What is known; metadata of the past until newer ones are asked for."""
        if self.stale is not None and metadata_offset <= self.stale.metadata_offset:
            return self.stale
        self.stale = None
        bounds = self.bounds if self.watched is None else self.watched
        return Known(self.cluster_id, dict(bounds), self.untold, self.version, self.metadata_offset)

    def known_afresh(self, partitions: Collection[TopicPartition] | None = None) -> Known:
        if self.watched is not None:
            asked = self.bounds if partitions is None else partitions
            self.watched |= {each: self.bounds[each] for each in asked}
            self.untold -= frozenset(asked)
            self.version += 1
        return self.known()

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self.epochs_asked.append(epochs)
        return {partition: self.ends[partition] for partition in epochs if partition in self.ends}

    def first_places(self) -> Places:
        starts = {each: b.log_start_offset for each, b in self.bounds.items()} if self.starts is None else self.starts
        return {
            each: Place(self.bounds[each].topic_id, start, self.bounds[each].leader_epoch)
            for each, start in starts.items()
        }


class Run:
    """A query over a fake source, as Spark drives it; `now_ms` is its clock."""

    def __init__(self, source: FakeSource, limits: Limits | None = None, *, fail: bool = True) -> None:
        self.source = source
        self.now_ms = 0.0
        self.planner = BatchPlanner(source, limits or Limits(), fail_on_data_loss=fail, clock_ms=lambda: self.now_ms)

    def again(self, *, fail: bool = True) -> Run:
        """After a crash of the driver."""
        return Run(self.source, fail=fail)

    def latest(self, start: Any, *, ignore_limits: bool = False) -> Any:
        return stored(self.planner.latest(start, ignore_limits=ignore_limits))

    def initial(self) -> Any:
        return stored(self.planner.initial())

    def ranges(self, start: Any, end: Any) -> list[tuple[int, int, int]]:
        found = [part.range for part in self.planner.ranges(start, end)]
        return [(each.partition, each.start_offset, each.end_offset) for each in found]


def stored(offset: Mapping[str, Any]) -> Any:
    """The offset as it comes back from a checkpoint."""
    return json.loads(json.dumps(offset))


def test_batches_follow_one_another() -> None:
    source = FakeSource(p0=10, p1=0)
    run = Run(source)
    start = run.initial()
    first = run.latest(start)
    assert run.ranges(start, first) == [(0, 0, 10)]
    assert run.latest(first) == first
    source.set(T1, 5)
    second = run.latest(first)
    assert run.ranges(first, second) == [(1, 0, 5)]
    assert run.ranges(start, first) == [(0, 0, 10)], "a batch that is planned again reads what it read the first time"
    assert run.ranges(first, first) == [], "no batch: this one was read"


def test_an_uncommitted_first_batch_reads_the_same_after_a_crash() -> None:
    """Goal: "latest" is another offset by then, and the checkpoint has only the end of batch 0."""
    source = FakeSource(p0=100)
    source.starts = {T0: 100}
    run = Run(source)
    start = run.initial()
    source.set(T0, 120)
    end = run.latest(start)
    assert run.ranges(start, end) == [(0, 100, 120)]
    source.starts = {T0: 500}
    source.set(T0, 500)
    again = run.again()
    assert again.ranges(again.initial(), end) == [(0, 100, 120)]
    assert again.ranges(end, again.latest(end)) == [(0, 120, 500)]


@pytest.mark.parametrize(
    "error", [ConfigError("startingTimestamp", "-10m", "no record"), OffsetOutOfRangeError("no record")]
)
def test_an_uncommitted_first_batch_needs_no_start_of_its_own(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: Spark asks where the query starts, though the log has it: that start may be gone, or have no record any more."""
    source = FakeSource(p0=10)
    end = committed(source)

    def gone() -> Places:
        raise error

    monkeypatch.setattr(source, "first_places", gone)
    again = Run(source)
    assert again.ranges(again.initial(), end) == [(0, 0, 10)]
    assert again.latest(end) == end
    for _ in range(2):
        with pytest.raises(type(error), match="no record"):
            again.latest(again.initial())


def test_the_first_batch_may_be_empty() -> None:
    """Goal: Spark plans batch 0 of an idle topic with the initial offset as its end."""
    run = Run(FakeSource(p0=100))
    run.source.starts = {T0: 100}
    start = run.initial()
    assert run.latest(start) == start
    assert run.ranges(start, start) == []


def test_spark_asks_twice_where_a_query_starts() -> None:
    source = FakeSource(p0=100)
    run = Run(source)
    first = run.initial()
    source.set(T0, 200, start=150)
    assert run.initial() == first


def test_limits_hold_unless_spark_ignores_them() -> None:
    run = Run(FakeSource(p0=90, p1=10), Limits(max_offsets=10))
    start = run.initial()
    assert run.ranges(start, run.latest(start)) == [(0, 0, 9), (1, 0, 1)]
    assert run.ranges(start, run.latest(start, ignore_limits=True)) != []
    every = Run(run.source, Limits(max_offsets=10, max_bytes=1))
    assert every.ranges(start, every.latest(start, ignore_limits=True)) == [(0, 0, 90), (1, 0, 10)]


def test_a_batch_waits_for_enough() -> None:
    source = FakeSource(p0=1)
    run = Run(source, Limits(min_offsets=10, max_delay_ms=1_000))
    start = run.initial()
    first = run.latest(start)
    assert run.ranges(start, first) == [(0, 0, 1)], "the first of a run does not wait"
    source.set(T0, 5)
    assert run.latest(first) == first
    run.now_ms = 1_000
    second = run.latest(first)
    assert run.ranges(first, second) == [(0, 1, 5)]
    source.set(T0, 15)
    assert run.ranges(second, run.latest(second)) == [(0, 5, 15)]


def test_what_is_put_off_is_not_planned_again_before_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: Spark asks some eighty times a second, and each time all partitions would be gone through."""
    run = Run(FakeSource(p0=1), Limits(min_offsets=10, max_delay_ms=1_000))
    first = run.latest(run.initial())
    planned: list[float] = []
    plan = planner.resume
    monkeypatch.setattr(planner, "resume", lambda *args: planned.append(run.now_ms) or plan(*args))
    for run.now_ms in range(100):
        assert run.latest(first) == first, "nothing is there"
    run.source.set(T0, 5)
    for run.now_ms in range(100, 1_000):
        assert run.latest(first) == first, "too little is there"
    assert planned == [0, 100]
    run.now_ms = 1_000
    assert run.ranges(first, run.latest(first)) == [(0, 1, 5)]


def test_a_run_with_a_target_ends_there() -> None:
    source = FakeSource(p0=30)
    run = Run(source, Limits(max_offsets=20, min_offsets=15, max_delay_ms=10**9))
    run.planner.set_target()
    start = run.initial()
    source.set(T0, 100)
    source.set(T1, 50)
    first = run.latest(start)
    assert run.ranges(start, first) == [(0, 0, 20)]
    second = run.latest(first)
    assert run.ranges(first, second) == [(0, 20, 30)]
    assert run.latest(second) == second


def test_a_target_below_where_the_query_stands_is_reached_already() -> None:
    source = FakeSource(p0=30)
    run = Run(source)
    run.planner.set_target()
    source.starts = {T0: 40}
    source.set(T0, 40)
    start = run.initial()
    assert run.latest(start) == start


def test_a_start_that_was_told_later_than_the_bounds_is_no_loss() -> None:
    """Goal: the leader of a topic that is being written is asked for its end, and the watch has told an earlier one."""
    source = FakeSource(p0=100, p1=100)
    source.stop_watches()
    for partition in (T0, T1):
        source.set(partition, 120)
    source.starts = {T0: 120, T1: 120}
    run = Run(source)
    start = run.initial()
    assert run.latest(start) == start
    source.set(T0, 130)
    source.known_afresh()
    assert run.ranges(start, run.latest(start)) == [(0, 120, 130)]


def test_a_batch_that_was_told_later_than_the_bounds_is_no_loss() -> None:
    source = FakeSource(p0=100)
    before = committed(source)
    source.set(T0, 120)
    end = Run(source).latest(before)
    source.set(T0, 90)
    source.stop_watches()
    source.set(T0, 120)
    assert Run(source).ranges(before, end) == [(0, 100, 120)]


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("past", [{}, {T0: LogBounds(NEW, 0, 3, 0)}])
def test_metadata_of_the_past_tell_of_no_deleted_topic(fail: bool, past: dict[TopicPartition, LogBounds]) -> None:
    """Goal: a broker that was just started has read its metadata up to where the topic was not there yet, or an earlier one."""
    source = FakeSource(p0=10)
    before = committed(source)
    source.set(T0, 20)
    end = Run(source).latest(before)
    source.set(T0, 30)
    source.metadata_offset = 9
    source.stale = Known("c", past, metadata_offset=6)
    run = Run(source, fail=fail)
    assert run.ranges(before, end) == [(0, 10, 20)]
    source.stale = Known("c", past, metadata_offset=6)
    after = Run(source, fail=fail).latest(end)
    assert run.ranges(end, after) == [(0, 20, 30)]
    assert after["metadata"] == 9
    assert [part.range.metadata_offset for part in run.planner.ranges(end, after)] == [9]


def test_a_target_of_metadata_of_the_past_is_fixed_again() -> None:
    """Goal: a run to what is there now does not end, beside a broker that was just started, with nothing."""
    source = FakeSource(p0=10)
    end = committed(source)
    source.set(T0, 20)
    source.stale = Known("c", {}, metadata_offset=6)
    run = Run(source, Limits(max_offsets=5))
    run.planner.set_target()
    source.metadata_offset = 8
    first = run.latest(end)
    source.set(T0, 30)
    source.metadata_offset = 9
    second = run.latest(first)
    assert (run.ranges(end, first), run.ranges(first, second)) == ([(0, 10, 15)], [(0, 15, 20)])
    assert run.latest(second) == second, "the target stays, though newer metadata have planned the last batch"


@pytest.mark.parametrize("are_there_in_time", [False, True])
def test_a_target_has_what_comes_to_be_known_while_it_is_fixed(
    are_there_in_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: beside a broker that was just started a run does not end without a partition that newer metadata have shown."""
    source = FakeSource(p0=10)
    end = committed(source)
    source.set(T0, 20)
    source.stale = Known("c", {}, metadata_offset=6)
    run = Run(source)
    if not are_there_in_time:
        run.planner.set_target()
    source.metadata_offset, source.watched, source.untold = 8, {}, frozenset({T0})
    if are_there_in_time:  # behind the question, so that T0 is none of those whose leaders were asked
        source.stale, ask = None, source.known_afresh
        monkeypatch.setattr(source, "known_afresh", lambda partitions=(): ask(partitions))
        run.planner.set_target()
    assert run.ranges(end, run.latest(end)) == [(0, 10, 20)]


# ---- losses ----------------------------------------------------------------------------------------------------------


def committed(source: FakeSource) -> Any:
    """The end of a first batch of everything."""
    run = Run(source)
    return run.latest(run.initial())


def test_a_new_partition_is_read_from_its_first_record() -> None:
    source = FakeSource(p0=10)
    end = committed(source)
    source.set(T1, 7)
    assert Run(source).ranges(end, Run(source).latest(end)) == [(1, 0, 7)]


LOSSES = {
    "retention": (lambda s: s.set(T0, 50, start=20), "offsets [10, 20) were deleted", [(0, 20, 50)]),
    "deleted": (lambda s: (s.remove(T0), s.set(T1, 3)), "was deleted, or is not subscribed", [(1, 0, 3)]),
    "created anew": (lambda s: s.set(T0, 4, topic_id=NEW), "another one of its name", [(0, 0, 4)]),
    "unclean": (
        lambda s: (s.set(T0, 30, epoch=2), s.ends.update({T0: 6})),
        "offsets [6, 10) were read and are not in the log any more",
        [(0, 6, 30)],
    ),
    "high watermark below": (lambda s: s.set(T0, 8, epoch=2), "offsets [8, 10)", []),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_lost_fails_the_query_or_is_passed_over(name: str, caplog: pytest.LogCaptureFixture) -> None:
    happens, text, left = LOSSES[name]
    source = FakeSource(p0=10)
    end = committed(source)
    happens(source)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        Run(source).latest(end)
    assert text in str(caught.value)
    lenient = Run(source, fail=False)
    after = lenient.latest(end)
    assert lenient.ranges(end, after) == left
    assert caplog.text.count(text) == 1
    assert (after == end) == (not left), "nothing to read: the offset stays, and no batch is made"
    assert lenient.latest(after) == after


def test_a_loss_is_told_once_however_long_its_batch_is_put_off(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: bounds that move meanwhile make no other loss of it, neither a warning nor a question for the leader."""
    source = FakeSource(p0=50)
    run = Run(source, Limits(min_offsets=1_000, max_delay_ms=1_000), fail=False)
    first = run.latest(run.initial())
    source.stop_watches()
    asked_count = 0
    for end in range(100, 110):
        source.set(T0, end, start=60)
        source.watched = {T0: source.bounds[T0]}
        before = source.version
        assert run.latest(first) == first
        asked_count += source.version - before
    assert caplog.text.count("offsets [50, 60) were deleted before they were read") == asked_count == 1


@pytest.mark.parametrize(
    ("happens", "text", "left"),
    [
        (lambda s: s.set(T0, 50, start=20), "offsets [10, 20) were deleted", [(0, 20, 40)]),
        (lambda s: s.set(T0, 90, start=80), "offsets [10, 80) were deleted", []),
        (lambda s: s.remove(T0), "was deleted", []),
        (lambda s: s.set(T0, 60, topic_id=NEW), "another one of its name", []),
        (lambda s: (s.set(T0, 60, epoch=2), s.ends.update({T0: 30})), "offsets [30, 40) were read", [(0, 10, 30)]),
    ],
)
def test_what_is_lost_of_a_batch_that_is_planned_again(happens: Any, text: str, left: list[Any]) -> None:
    """Goal: between two runs a log may lose what the checkpoint has planned."""
    source = FakeSource(p0=10)
    before = committed(source)
    source.set(T0, 40)
    end = Run(source).latest(before)
    happens(source)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        Run(source).ranges(before, end)
    assert text in str(caught.value)
    assert Run(source, fail=False).ranges(before, end) == left


@pytest.mark.parametrize(("first", "last"), [(T0, T1), (T1, T0)])
def test_a_topic_created_anew_is_taken_over_when_all_of_it_is_told(first: TopicPartition, last: TopicPartition) -> None:
    """Goal: the checkpoint has one id for all partitions of a topic; with that of another one, offsets of the old topic would
    be taken for those of the new one, or the new one be read twice."""
    source = FakeSource(p0=10, p1=10)
    other, late = TopicPartition("u", 0), TopicPartition("t", 2)
    source.set(other, 1, topic_id=UUID(int=3))
    end = committed(source)
    run = Run(source, fail=False)
    source.remove(last, is_untold=True)
    for partition in (first, late):
        source.set(partition, 4, topic_id=NEW)
    source.set(other, 2, topic_id=UUID(int=3))
    between = run.latest(end)
    assert [part.range.topic for part in run.planner.ranges(end, between)] == ["u"]
    assert between["to"]["t"] == end["to"]["t"]
    source.set(last, 6, topic_id=NEW)
    after = run.latest(between)
    assert sorted(run.ranges(between, after)) == sorted([(first.partition, 0, 4), (last.partition, 0, 6), (2, 0, 4)])
    for partition in (first, last):
        source.set(partition, 8, topic_id=NEW)
    assert sorted(run.ranges(after, run.latest(after))) == sorted([(first.partition, 4, 8), (last.partition, 6, 8)])


def test_a_leader_of_the_past_tells_nothing_to_read() -> None:
    """Goal: an offset that it tells is not kept under the epoch of the leader after it."""
    source = FakeSource()
    source.set(T0, 10, epoch=5)
    end = committed(source)
    source.set(T0, 20, epoch=4)
    assert Run(source).latest(end) == end


def test_a_gap_that_was_accepted_once_is_not_hidden_later() -> None:
    """Goal: a batch planned with failOnDataLoss=false, and planned again without it, tells what it leaves out."""
    source = FakeSource(p0=10)
    before = committed(source)
    source.set(T0, 50, start=20)
    end = Run(source, fail=False).latest(before)
    told = r"planned, with failOnDataLoss false, over what is lost: t-0: offsets \[10, 20\) were deleted"
    with pytest.raises(OffsetOutOfRangeError, match=told):
        Run(source).ranges(before, end)
    assert Run(source, fail=False).ranges(before, end) == [(0, 20, 50)]


def test_a_batch_before_that_was_not_logged_is_no_loss() -> None:
    """Goal: with asyncProgressTrackingEnabled Spark logs some batches, and after a crash plans the last of them behind another one
    than the one it followed."""
    source = FakeSource(p0=10)
    logged = committed(source)
    source.set(T0, 20)
    not_logged = Run(source).latest(logged)
    source.set(T0, 30)
    end = Run(source).latest(not_logged)
    assert Run(source).ranges(logged, end) == [(0, 20, 30)]


def test_leaders_are_asked_once_about_an_epoch_that_ended() -> None:
    """Goal: an idle query looks 80 times a second."""
    source = FakeSource(p0=10)
    end = committed(source)
    run = Run(source)
    source.ends[T0] = 10
    source.set(T0, 10, epoch=3)
    for _ in range(5):
        assert run.latest(end) == end
        source.version += 1
    assert source.epochs_asked == [{T0: 0}]
    source.set(T0, 10, epoch=4)
    run.latest(end)
    assert len(source.epochs_asked) == 2
    source.set(T0, 12, epoch=4)
    later = run.latest(end)
    assert later["to"]["t"]["epochs"] == {"0": 4}


def test_sizes_are_reckoned_by_the_average_of_each_log() -> None:
    source = FakeSource(p0=10)
    source.set(T1, 5, size=200.5)
    run = Run(source)
    start = run.initial()
    sizes = [part.size_bytes for part in run.planner.ranges(start, run.latest(start))]
    assert sizes == [10 * UNKNOWN_OFFSET_BYTES, 1002]


def test_another_cluster_and_another_version_are_refused() -> None:
    source = FakeSource(p0=10)
    end = committed(source)
    source.cluster_id = "d"
    for ask in (lambda: Run(source).latest(end), lambda: Run(source).ranges(Run(source).initial(), end)):
        with pytest.raises(InconsistentClusterIdError, match="the checkpoint is of cluster c"):
            ask()
    with pytest.raises(ConfigError, match="version 2"):
        Run(source).latest({**end, "v": 2})


def test_the_report_has_the_high_watermarks() -> None:
    source = FakeSource(p0=10, p1=20)
    run = Run(source)
    first = run.planner.report()
    assert first is not None
    assert first["to"]["t"]["offsets"] == {"0": 10, "1": 20}
    assert run.planner.report() is first


class Query(RuleBasedStateMachine):
    """Any order of appends, new partitions, retention, batches and crashes: each record once, in order."""

    @initialize(max_offsets=st.none() | st.integers(1, 20), max_bytes=st.none() | st.integers(1, 2_000))
    def begin(self, max_offsets: int | None, max_bytes: int | None) -> None:
        self.limits = Limits(max_offsets=max_offsets, max_bytes=max_bytes)
        self.source = FakeSource(p0=3)
        self.read = {T0: 0}
        self.committed: Any = None
        self.planned: Any = None
        self._restart()

    def _restart(self) -> None:
        self.run = Run(self.source, self.limits)
        self.start = self.committed or self.run.initial()

    @rule(partition=st.integers(0, 3), count=st.integers(0, 30), size=st.floats(0, 500))
    def append(self, partition: int, count: int, size: float) -> None:
        key = TopicPartition("t", partition)
        bounds = self.source.bounds.get(key)
        self.read.setdefault(key, 0)
        now = bounds or LogBounds(OLD, 0, 0, 0)
        self.source.set(key, now.high_watermark + count, start=now.log_start_offset, epoch=now.leader_epoch, size=size)

    @rule(partition=st.integers(0, 3))
    def elect(self, partition: int) -> None:
        key = TopicPartition("t", partition)
        if (bounds := self.source.bounds.get(key)) is not None:
            self.source.ends[key] = bounds.high_watermark
            self.source.set(key, bounds.high_watermark, start=bounds.log_start_offset, epoch=bounds.leader_epoch + 1)

    @rule(partition=st.integers(0, 3))
    def delete_what_was_read(self, partition: int) -> None:
        key = TopicPartition("t", partition)
        if self.planned is None and key in self.source.bounds:
            now = self.source.bounds[key]
            self.source.set(key, now.high_watermark, start=self.read[key], epoch=now.leader_epoch)

    @precondition(lambda self: self.planned is None)
    @rule()
    def plan(self) -> None:
        end = self.run.latest(self.start)
        if end != self.start or self.committed is None:
            self.planned = end

    @precondition(lambda self: self.planned is not None)
    @rule(is_crash=st.booleans())
    def process(self, is_crash: bool) -> None:
        ranges = self.run.ranges(self.start, self.planned)
        if is_crash:
            self._restart()
            assert self.run.ranges(self.start, self.planned) == ranges
        for partition, start, end in ranges:
            key = TopicPartition("t", partition)
            assert start == self.read[key]
            assert end > start
            self.read[key] = end
        self.start = self.committed = self.planned
        self.planned = None

    @rule()
    def crash(self) -> None:
        self._restart()

    @invariant()
    def stands_where_it_has_read(self) -> None:
        if self.committed is None:
            return
        for key, read in self.read.items():
            stands = self.committed["to"].get("t", {}).get("offsets", {}).get(str(key.partition))
            assert stands is None or self.planned is not None or stands == read


TestQuery = Query.TestCase
TestQuery.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
