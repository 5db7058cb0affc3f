"""Members of KIP-848 on the way to their targets: nobody gets what another one has not given back."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from group_record_kit import unhurried
from hypothesis import given
from hypothesis import strategies as st

from replog.coordinator.assignors import (
    AssignedMember,
    Assignment,
    TopicPartition,
    assign_ranges,
    assign_uniformly,
    assignment_of,
    partitions_of,
)
from replog.coordinator.consumers.member import MemberAssignment, MemberState
from replog.coordinator.consumers.reconcile import reconcile
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from replog.errors import FencedMemberEpochError

T = UUID(int=1)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def parts(*partitions: int) -> Assignment:
    return assignment_of((T, each) for each in partitions)


def step(
    current: MemberAssignment, *target: int, epoch: int, owned: Assignment | None = None, taken: tuple[int, ...] = ()
) -> MemberAssignment:
    return reconcile(
        current, target=parts(*target), target_epoch=epoch, owned=owned, is_free=lambda each: each[1] not in taken
    )


def test_a_new_member_gets_at_once_what_nobody_has() -> None:
    assert step(MemberAssignment(), 0, 1, epoch=5) == MemberAssignment(5, 0, STABLE, parts(0, 1))


def test_a_new_member_gets_the_rest_when_others_have_given_it_back() -> None:
    first = step(MemberAssignment(), 0, 1, 2, epoch=5, taken=(1, 2))
    assert first == MemberAssignment(5, 0, UNRELEASED, parts(0))
    second = step(first, 0, 1, 2, epoch=5, taken=(2,))
    assert second == MemberAssignment(5, 0, UNRELEASED, parts(0, 1))
    assert step(second, 0, 1, 2, epoch=5, taken=(2,)) is second
    assert step(second, 0, 1, 2, epoch=5) == MemberAssignment(5, 0, STABLE, parts(0, 1, 2))


def test_a_member_gives_back_in_its_old_epoch_before_it_gets_anything() -> None:
    before = MemberAssignment(5, 4, STABLE, parts(0, 1))
    revoking = step(before, 1, 2, epoch=7, owned=parts(0, 1))
    assert revoking == MemberAssignment(5, 4, UNREVOKED, parts(1), parts(0))
    assert step(revoking, 1, 2, epoch=7) is revoking
    assert step(revoking, 1, 2, epoch=7, owned=parts(0, 1)) is revoking
    assert step(revoking, 1, 2, epoch=7, owned=parts(1)) == MemberAssignment(7, 5, STABLE, parts(1, 2))


def test_a_target_that_changes_meanwhile_counts_once_it_has_given_back() -> None:
    revoking = MemberAssignment(5, 4, UNREVOKED, parts(1), parts(0))
    again = step(revoking, 2, epoch=9, owned=parts(1))
    assert again == MemberAssignment(6, 5, UNREVOKED, parts(), parts(1))
    assert step(again, 2, epoch=9, owned={}) == MemberAssignment(9, 6, STABLE, parts(2))


def test_what_a_member_says_that_it_does_not_read_need_not_be_given_back() -> None:
    before = MemberAssignment(5, 4, STABLE, parts(0, 1))
    assert step(before, 1, epoch=6, owned=parts(1)) == MemberAssignment(6, 5, STABLE, parts(1))
    assert step(before, 1, epoch=6).state is UNREVOKED


def test_a_stable_member_stays_until_there_is_a_newer_target() -> None:
    before = MemberAssignment(5, 4, STABLE, parts(0))
    assert step(before, 0, 1, epoch=5) is before


def test_a_state_of_a_newer_release_is_left_by_giving_everything_back() -> None:
    unknown = MemberAssignment.from_value(ConsumerGroupCurrentMemberAssignmentValue(5, 4, 99))
    assert unknown.state is MemberState.UNKNOWN
    for owned in (None, parts(0)):
        with pytest.raises(FencedMemberEpochError, match="join the group anew"):
            step(unknown, 0, epoch=6, owned=owned)
    assert step(unknown, 0, epoch=6, owned={}) == MemberAssignment(6, 5, STABLE, parts(0))


def test_the_record_says_it_all() -> None:
    for state in (STABLE, UNREVOKED, UNRELEASED):
        member = MemberAssignment(7, 6, state, parts(3, 1), parts(2))
        record = GROUP_RECORDS.decode(*GROUP_RECORDS.encode(member.record("g", "m")))
        assert record is not None
        assert MemberAssignment.from_value(record.value) == member  # type: ignore[arg-type]


class Client:
    """A member as its own process sees it: it stops reading at once, and reads what it has been told to."""

    def __init__(self) -> None:
        self.epoch = 0
        self.reads: frozenset[TopicPartition] = frozenset()

    def hear(self, told: MemberAssignment) -> None:
        self.epoch = told.epoch
        self.reads = partitions_of(told.assigned)


class Group:
    """Members, their targets, and what each process really reads; answers may be lost."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.epoch = 0
        self.partitions = 6
        self.members: dict[str, MemberAssignment] = {}
        self.targets: dict[str, Assignment] = {}
        self.clients: dict[str, Client] = {}

    def rebalance(self) -> None:
        """Decides on new targets, as whoever joins, leaves, or adds partitions makes it do."""
        self.epoch += 1
        assign = self.rng.choice((assign_ranges, assign_uniformly))
        specs = {each: AssignedMember(frozenset({T}), None, self.targets.get(each, {})) for each in self.members}
        self.targets = assign(specs, {T: self.partitions})

    def is_free(self, partition: TopicPartition) -> bool:
        return all(partition not in self.held(each) for each in self.members)

    def held(self, member_id: str) -> frozenset[TopicPartition]:
        return partitions_of(self.members[member_id].assigned) | partitions_of(self.members[member_id].revoked)

    def heartbeat(self, member_id: str, *, is_lost: bool = False, is_short: bool = False) -> None:
        """A member tells what it reads, or nothing; the answer arrives, or not."""
        client = self.clients[member_id]
        self.members[member_id] = told = reconcile(
            self.members[member_id],
            target=self.targets[member_id],
            target_epoch=self.epoch,
            owned=None if is_short else assignment_of(client.reads),
            is_free=self.is_free,
        )
        if not is_lost:
            client.hear(told)
        self.check()

    def check(self) -> None:
        """Each partition has one holder, and one who reads it."""
        held = [each for member_id in self.members for each in self.held(member_id)]
        read = [each for client in self.clients.values() for each in client.reads]
        assert len(held) == len(set(held)), self.members
        assert len(read) == len(set(read)), self.members
        for member_id, client in self.clients.items():
            assert client.reads <= self.held(member_id)

    def join(self, member_id: str) -> None:
        self.members.setdefault(member_id, MemberAssignment())
        self.clients.setdefault(member_id, Client())
        self.rebalance()

    def leave(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            del self.clients[member_id]
            self.rebalance()


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["heartbeat", "lost", "short", "join", "leave", "grow"]), st.sampled_from("abcd")),
    max_size=60,
)


@unhurried
@given(st.integers(), ACTIONS)
def test_a_partition_has_one_owner_in_one_epoch_always(seed: int, actions: list[tuple[str, str]]) -> None:
    """Goal: whatever joins, leaves and gets lost, nobody reads what another one does, and in the end all have their targets."""
    group = Group(random.Random(seed))
    group.join("a")
    for action, member_id in actions:
        match action:
            case "join":
                group.join(member_id)
            case "leave":
                group.leave(member_id)
            case "grow":
                group.partitions += 1
                group.rebalance()
            case _ if member_id in group.members:
                group.heartbeat(member_id, is_lost=action == "lost", is_short=action == "short")
    for _ in range(2 * len(group.members) + 3):
        for member_id in group.members:
            group.heartbeat(member_id)
    for member_id, member in group.members.items():
        assert (member.state, member.epoch) == (STABLE, group.epoch)
        assert member.assigned == group.targets[member_id]
        assert group.clients[member_id].reads == partitions_of(group.targets[member_id])
