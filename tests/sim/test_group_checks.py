"""What the checks of groups say of offsets that go back."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from replog.coordinator.consumers.member import LEAVING_STATIC_EPOCH
from replog.testing.virtual_loop import VirtualLoop
from tests.sim.event_log import EventLog
from tests.sim.group_checks import GroupChecks
from tests.sim.group_log import Author, Kept, LoggedGroup, Place

GENERATION = 3


class Watched:
    """Checks of one group, whose members have partition 0, and what they report.

    Attributes:
        found: the rules that were broken, in order.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.found: list[str] = []
        self.seen: Counter[str] = Counter()
        self.checks = GroupChecks(
            lambda text: self.found.append(text.split()[0]), lambda: 0.0, 0.0, EventLog(loop), self.seen
        )
        self.group: LoggedGroup = self.checks.log.group("g")
        self.group.generation = GENERATION
        for each in ("m", "other"):
            self.group.members[each] = Place(GENERATION, frozenset({0}))
        seat = self.checks.new_seat("m", "g")
        for offset in range(10):
            seat.reads[0] = offset
            self.checks.handled(seat, 0, offset)

    def commit(self, offset: int, author: Author) -> None:
        kept = Kept(offset, author)
        self.checks.before_offset("g", self.group, 0, kept)
        self.group.offsets[0] = kept


@pytest.fixture
def it() -> Iterator[Watched]:
    with contextlib.closing(VirtualLoop(random.Random(0))) as loop:
        yield Watched(loop)


def test_a_commit_that_comes_late_over_a_connection_that_was_given_up_is_counted(it: Watched) -> None:
    it.commit(7, Author("m", GENERATION, connection=2))
    it.commit(5, Author("m", GENERATION, connection=1))
    assert it.found == []
    assert it.seen["offset goes back, by a commit that came late"] == 1


@pytest.mark.parametrize(
    "later",
    [
        Author("m", GENERATION, connection=2),
        Author("m", GENERATION, connection=3),
        Author("m", GENERATION - 1, connection=1),
        Author("other", GENERATION, connection=1),
    ],
)
def test_other_offsets_do_not_go_back(it: Watched, later: Author) -> None:
    it.commit(7, Author("m", GENERATION, connection=2))
    it.commit(5, later)
    assert it.found[0] == "G5"


def test_whoever_begins_where_a_late_commit_left_off_begins_in_the_right_place(it: Watched) -> None:
    seat = it.checks.new_seat("other", "g")
    seat.member_id = "m"
    it.group.by_author[0, "m"] = 7
    it.commit(7, Author("m", GENERATION, connection=2))
    it.checks.kept(seat, {0: 7})
    it.commit(5, Author("m", GENERATION, connection=1))
    it.checks.begins(seat, 0, 5)
    assert it.found == []


def test_an_author_is_read_as_it_was_written() -> None:
    for each in (Author("m n", -1), Author("", 4, 7)):
        assert Author.of(str(each)) == each


def test_a_static_member_of_the_classic_protocol_that_has_not_joined_in_time_counts_as_put_out(it: Watched) -> None:
    seat = it.checks.seats[0]
    seat.member_id, seat.rebalance_s = "m", 0.0
    it.group.said["m"] = {(GENERATION, frozenset({0}))}
    it.checks.told(seat, GENERATION, frozenset({0}), sent_at=0.0)
    members = {"m": Place(GENERATION + 1, frozenset()), "other": Place(GENERATION + 1, frozenset({0}))}
    for is_static, rebalance_s, found in ((False, 0.0, ["G7"]), (True, 0.0, []), (True, 1.0, ["G7"])):
        seat.is_static, seat.rebalance_s = is_static, rebalance_s
        it.checks._session_s = 1.0
        it.checks.before_generation("g", it.group, GENERATION + 1, members)
        assert it.found == found
        it.found.clear()
    it.checks.before_generation("g", it.group, GENERATION, members)  # it is told of this one
    assert it.found == ["G7"]


def test_a_static_member_of_kip_848_that_has_said_that_it_is_away_counts_as_put_out(it: Watched) -> None:
    seat = it.checks.seats[0]
    seat.member_id = "m"
    for epoch, found in ((GENERATION, ["G7"]), (LEAVING_STATIC_EPOCH, [])):
        it.group.members = {"m": Place(epoch, frozenset())}
        it.checks.before_place("g", it.group, "other", Place(GENERATION, frozenset({0})))
        assert it.found == found
        it.found.clear()
    it.commit(9, Author("m", GENERATION))
    assert it.found == ["G2"]  # what it goes on with it cannot commit


def test_whoever_leaves_in_order_has_let_go_of_everything(it: Watched) -> None:
    seat = it.checks.seats[0]
    it.checks.begins_to_leave(seat)
    assert it.found == ["G7"]
    it.checks.ends(seat, [0], "was asked to give back")
    it.checks.begins_to_leave(seat)
    assert it.found == ["G7"]


def test_who_has_heard_that_it_has_to_give_up_what_it_reads_gets_no_more_and_joins_without(it: Watched) -> None:
    seat = it.checks.seats[0]
    it.checks.handed_out(seat, {0})
    seat.has_heard = True
    it.checks.handed_out(seat, ())
    assert it.found == []
    it.checks.handed_out(seat, {0})
    it.checks.joins(seat)
    assert it.found == ["G7", "G7"]
    it.checks.ends(seat, [0], "was put out")
    it.checks.joins(seat)
    it.checks.handed_out(seat, {0})
    assert it.found == ["G7", "G7"]
