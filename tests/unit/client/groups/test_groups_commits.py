"""Offsets on their way to the coordinator, and what counts as done with."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.client.backoff import Backoff
from replog.client.consumer.group_commits import GroupCommits
from replog.client.consumer.group_settings import GroupSettings
from replog.client.groups.commits import CommitBook, Finished, Offset, Progress
from replog.client.groups.reader_watch import ReaderWatch
from replog.client.types import TopicPartition
from replog.coordinator.offsets.requests import CommitOffsets, CommitOffsetsResponse, PartitionOutcome, TopicOutcome
from replog.errors import CommitStaleError, IllegalGenerationError, ReplogError
from replog.testing.virtual_loop import VirtualLoop

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
STALE = CommitStaleError("another member has it")


def refuse(_: TopicPartition) -> ReplogError:
    return STALE


def everything(_: TopicPartition) -> bool:
    return True


@pytest.fixture
def book() -> CommitBook:
    return CommitBook()


def test_what_comes_while_a_request_is_under_way_goes_out_together(book: CommitBook) -> None:
    first = book.want({A: Offset(1)})
    assert book.take(everything, refuse) == ({A: Offset(1)}, [])
    second, third = book.want({A: Offset(2), B: Offset(5)}), book.want({A: Offset(3, 1, "text")})
    assert book.take(everything, refuse) == ({}, [])
    assert book.answered({A: None}) == [Finished(first, None)]
    assert book.take(everything, refuse) == ({A: Offset(3, 1, "text"), B: Offset(5)}, [])
    assert sorted(book.answered({A: None, B: None})) == [Finished(second, None), Finished(third, None)]
    assert book.committed == {A: 3, B: 5}


def test_what_is_put_back_does_not_overtake_what_is_newer(book: CommitBook) -> None:
    first = book.want({A: Offset(1), B: Offset(1)})
    book.take(everything, refuse)
    second = book.want({A: Offset(2)})
    book.put_back()
    assert book.take(everything, refuse) == ({A: Offset(2), B: Offset(1)}, [])
    assert sorted(book.answered({A: None, B: None})) == [Finished(first, None), Finished(second, None)]


def test_what_is_another_members_is_not_sent(book: CommitBook) -> None:
    both, other = book.want({A: Offset(1), B: Offset(1)}), book.want({A: Offset(2)})
    assert book.take({B}.__contains__, refuse) == ({B: Offset(1)}, [Finished(other, STALE)])
    assert book.answered({B: None}) == [Finished(both, STALE)]
    assert book.committed == {B: 1}


def test_what_was_under_way_of_a_partition_that_has_gone_is_not_sent_when_it_is_back(book: CommitBook) -> None:
    """In the epoch of then it would be taken, and the group go back behind what others have committed meanwhile."""
    first, second = book.want({A: Offset(1)}), book.want({A: Offset(2), B: Offset(5)})
    book.take(everything, refuse)
    third = book.want({A: Offset(3)})
    assert sorted(book.forget(A, refuse)) == [Finished(first, STALE), Finished(third, STALE)]
    book.put_back()  # whether it was kept is not known
    assert book.take(everything, refuse) == ({B: Offset(5)}, [])
    assert book.answered({A: None, B: None}) == [Finished(second, STALE)]
    assert book.committed == {B: 5}
    assert book.latest(A) is None


class Outside:
    """A member that was put out while somebody reads."""

    member_id, epoch = "m", 0

    def __init__(self) -> None:
        self.held = {A: UUID(int=1)}

    def doubt(self) -> None:
        raise AssertionError("it knows")


def test_who_is_out_does_not_try_to_commit_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    loop = VirtualLoop(random.Random(1))

    async def read_on() -> None:
        coordinator: Any = None  # is not asked
        settings = GroupSettings("g", auto_commit_interval_ms=10)
        commits = GroupCommits(coordinator, settings, Outside(), lambda _: 7, lambda *_: 2, Backoff(random.Random(2)))
        commits.progress.begin(A, 0)
        commits.progress.hand_out(A, 6)
        commits.progress.ask()
        running = asyncio.create_task(commits.run())
        await asyncio.sleep(1)
        running.cancel()

    loop.run(read_on())
    assert not caplog.records


class Moved(Outside):
    """A member that is in another generation when its commit is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 3
        self.asked: list[int] = []

    async def call(self, request: CommitOffsets) -> CommitOffsetsResponse:
        self.asked.append(request.member_epoch)
        if len(self.asked) == 1:
            self.epoch = 4
            raise IllegalGenerationError("generation 3 is over")
        return CommitOffsetsResponse((TopicOutcome("t", UUID(int=1), (PartitionOutcome(0),)),))


def test_a_late_refusal_of_a_generation_does_not_fail_commits_of_the_next_one() -> None:
    async def main() -> None:
        member: Any = Moved()
        commits = GroupCommits(member, GroupSettings("g"), member, lambda _: 7, lambda *_: 2, Backoff(random.Random(2)))
        running = asyncio.create_task(commits.run())
        await commits.commit({A: Offset(7)})
        assert member.asked == [3, 4]
        running.cancel()

    VirtualLoop(random.Random(1)).run(main())


def test_an_error_is_of_its_partition(book: CommitBook) -> None:
    ticket = book.want({A: Offset(1), B: Offset(1)})
    book.take(everything, refuse)
    error = ReplogError("no")
    assert book.answered({A: error, B: None}) == [Finished(ticket, error)]
    assert book.committed == {B: 1}


def test_a_partition_that_the_answer_leaves_out_was_not_kept(book: CommitBook) -> None:
    book.want({A: Offset(1)})
    book.take(everything, refuse)
    ((_, error),) = book.answered({})
    assert error is not None
    assert book.committed == {}


def test_at_the_end_everything_fails(book: CommitBook) -> None:
    first = book.want({A: Offset(1)})
    book.take(everything, refuse)
    second = book.want({A: Offset(2), B: Offset(2)})
    assert sorted(number for number, _ in book.fail_all(refuse)) == [first, second]
    assert not book.has_waiting


WISHES = st.dictionaries(st.sampled_from([A, B]), st.integers(0, 9), min_size=1)
STEPS = st.lists(
    st.one_of(WISHES, st.sampled_from(["take", "take without B", "answer", "put back", "refuse A"])), max_size=40
)


@given(STEPS)
def test_every_commit_ends_once_and_the_last_wish_is_kept(steps: list[dict[TopicPartition, int] | str]) -> None:
    book = CommitBook()
    open_tickets: set[int] = set()
    under_way: dict[TopicPartition, Offset] = {}
    last: dict[TopicPartition, int] = {}
    finished: list[Finished] = []
    for step in steps:
        match step:
            case dict():
                last |= step
                open_tickets.add(book.want({each: Offset(offset) for each, offset in step.items()}))
            case "take" | "take without B":
                before = under_way
                ours = everything if step == "take" else {A}.__contains__
                under_way, ended = book.take(ours, refuse)
                finished += ended
                assert not (before and under_way)
                assert step == "take" or B not in under_way
                under_way = before or under_way
            case "answer" | "refuse A":
                error = STALE if step == "refuse A" else None
                finished += book.answered({each: error if each == A else None for each in under_way})
                under_way = {}
            case "put back":
                book.put_back()
                under_way = {}
    book.put_back()
    sent, ended = book.take(everything, refuse)
    assert all(last[each] == offset.offset for each, offset in sent.items())
    finished += ended + book.answered(dict.fromkeys(sent))
    numbers = [ticket for ticket, _ in finished]
    assert sorted(numbers) == sorted(open_tickets)


# ---- done with ------------------------------------------------------------------------------------------------------


@dataclass
class Reader:
    """Hands records out by one or several, and remembers which were asked past."""

    progress: Progress = field(default_factory=Progress)
    positions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    past: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])

    def begin(self, partition: TopicPartition, offset: int) -> None:
        self.progress.begin(partition, offset)
        self.positions[partition] = self.past[partition] = offset

    def read(self, counts: dict[TopicPartition, int]) -> None:
        self.progress.ask()
        self.past = dict(self.positions)
        for partition, count in counts.items():
            if partition in self.positions:
                self.progress.hand_out(partition, self.positions[partition])
                self.positions[partition] += count

    def done(self) -> dict[TopicPartition, int]:
        return self.progress.done(self.positions.__getitem__)


def test_a_record_is_done_with_when_the_next_one_is_asked_for() -> None:
    reader = Reader()
    reader.begin(A, 7)
    reader.read({A: 1})
    assert reader.done() == {}
    reader.read({A: 1})
    assert reader.done() == {A: 8}
    reader.read({})
    assert reader.done() == {A: 9}


def test_where_nobody_has_read_nothing_is_committed() -> None:
    reader = Reader()
    reader.begin(A, 0)
    reader.read({})
    reader.begin(A, 500)  # a seek
    reader.read({})
    assert reader.done() == {}


def test_what_the_application_has_committed_itself_is_not_taken_back() -> None:
    """The record in its hands is done with, it says: committing by itself what is below would undo that."""
    reader = Reader()
    reader.begin(A, 0)
    reader.read({A: 5})
    reader.read({A: 1})
    before = reader.progress.settle({A: 6, B: 1})
    assert (reader.done(), before) == ({}, {A: 0})
    reader.read({A: 1})
    assert reader.done() == {}
    reader.read({A: 1})
    assert reader.done() == {A: 7}
    reader.progress.settle({A: 9})
    reader.begin(A, 2)  # a seek
    reader.read({A: 1})
    reader.read({A: 1})
    assert reader.done() == {A: 3}


COUNTS = st.dictionaries(st.sampled_from([A, B]), st.integers(1, 4))
READS = st.lists(st.one_of(COUNTS, st.tuples(st.sampled_from([A, B]), st.integers(0, 50)), st.sampled_from([A, B])))


@given(READS)
def test_nothing_is_done_with_that_was_not_handed_out_and_asked_past(steps: list[object]) -> None:
    reader = Reader()
    for step in steps:
        match step:
            case dict():
                reader.read(step)
            case TopicPartition():
                reader.progress.end(step)
                reader.positions.pop(step, None)
                reader.past.pop(step, None)
            case (partition, offset):
                reader.begin(partition, offset)
        done = reader.done()
        assert done.keys() <= reader.positions.keys()
        assert all(offset == reader.past[each] for each, offset in done.items())


# ---- whether somebody reads -----------------------------------------------------------------------------------------


def test_who_waits_for_records_or_asks_for_them_is_not_late() -> None:
    watch = ReaderWatch(1_000)
    assert watch.late_ms(0) is None
    assert watch.late_ms(1_000) is None
    watch.count += 1
    assert watch.late_ms(1_001) is None
    assert watch.late_ms(2_002) == 1_001
    watch.is_waiting = True
    assert watch.late_ms(9_000) is None
    watch.is_waiting = False
    assert watch.late_ms(10_000) is None
    assert watch.late_ms(10_001) == 1_001
    assert ReaderWatch(4).look_ms == 1
