"""Offsets that are committed with a transaction: KIP-98, KIP-447, and what Kafka's coordinator of groups makes of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from classic_kit import CONFIG as CLASSIC
from classic_kit import pass_time, stable
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_kit import MARKER, Host, Table, Topics, group_host, topic_id

from replog.coordinator.config import OffsetsConfig
from replog.coordinator.consumers.requests import DeleteGroup
from replog.coordinator.describing.requests import ListGroups
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.offsets.requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    ForgetTopics,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
    TopicToForget,
)
from replog.coordinator.offsets.state import GroupPartitions
from replog.coordinator.offsets.transactional import PERMITS_MAX, Permits
from replog.coordinator.offsets.transactions import (
    CommitPermit,
    CommitTransactionalOffsets,
    CompleteTransaction,
    GetCommitPermit,
)
from replog.coordinator.runtime.messages import AppendMarker, AppendRecords
from replog.coordinator.runtime.shard import ShardState
from replog.coordinator.runtime.transactions import TransactionWriter
from replog.errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    RecordTooLargeError,
    ReplogError,
    UnknownMemberIdError,
)
from tests.work_counts import instructions_of

NO_ID = UUID(int=0)
CONFIG = OffsetsConfig(retention_ms=1_000, check_interval_ms=100, pending_per_producer=4)
A, B = TransactionWriter(7, 0), TransactionWriter(8, 0)


@pytest.fixture
def host() -> Host:
    return fresh()


def fresh() -> Host:
    found = group_host(Topics(), GroupsConfig(CONFIG, classic=CLASSIC.classic))
    found.lead()
    return found


def topics(*offsets: tuple[int, int], topic_id: UUID = NO_ID) -> tuple[TopicToCommit, ...]:
    return (TopicToCommit("t", topic_id, tuple(OffsetToCommit(*each) for each in offsets)),)


def commit(host: Host, writer: TransactionWriter, *offsets: tuple[int, int], **fields: Any) -> None:
    """Commits offsets, by partition, in a transaction."""
    fields = {"group_id": "g", "topics": topics(*offsets)} | fields
    permit = host.ask(GetCommitPermit(fields["group_id"], writer)).number
    host.ask(CommitTransactionalOffsets(writer=writer, permit=permit, **fields))


def commit_plainly(host: Host, *offsets: tuple[int, int], group: str = "g") -> None:
    host.ask(CommitOffsets(group, topics(*offsets)))


def end(host: Host, writer: TransactionWriter, *, is_commit: bool, coordinator_epoch: int = 1) -> None:
    host.ask(CompleteTransaction(writer.producer_id, writer.producer_epoch, coordinator_epoch, is_commit))


def told(host: Host, *partitions: int, wants_stable: bool = False, group: str = "g") -> list[int | str]:
    """The offsets that a group has in partitions."""
    fetch = FetchOffsets(group, (TopicToFetch("t", NO_ID, partitions),), wants_stable=wants_stable)
    return ["unstable" if each.is_unstable else each.offset for each in host.ask(fetch).topics[0].partitions]


def listed(host: Host) -> list[str]:
    return [each.group_id for each in host.ask(ListGroups()).groups]


# ---- markers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_commit", "left"), [(True, 10), (False, 5)])
def test_an_offset_of_a_transaction_counts_from_its_end(host: Host, is_commit: bool, left: int) -> None:
    commit_plainly(host, (0, 5), (1, 6))
    commit(host, A, (0, 10))
    assert (told(host, 0, 1), told(host, 0, 1, wants_stable=True)) == ([5, 6], ["unstable", 6])
    end(host, A, is_commit=is_commit)
    assert told(host, 0, 1, wants_stable=True) == [left, 6]


def test_what_is_asked_for_without_naming_it_is_unstable_where_it_was_committed_before(host: Host) -> None:
    commit_plainly(host, (0, 5))
    commit(host, A, (0, 10), (1, 11))
    (found,) = host.ask(FetchOffsets("g", wants_stable=True)).topics
    assert [(each.partition, each.offset, each.is_unstable) for each in found.partitions] == [(0, -1, True)]


def test_a_later_plain_commit_counts_in_place_of_the_transaction(host: Host) -> None:
    commit(host, A, (0, 10), (1, 11))
    commit_plainly(host, (0, 3))
    assert told(host, 0, wants_stable=True) == ["unstable"]
    end(host, A, is_commit=True)
    assert told(host, 0, 1, wants_stable=True) == [3, 11]


def test_of_two_transactions_the_offset_that_was_written_later_counts(host: Host) -> None:
    commit(host, A, (0, 10))
    commit(host, B, (0, 20))
    end(host, B, is_commit=True)
    assert (told(host, 0), told(host, 0, wants_stable=True)) == ([20], ["unstable"])
    end(host, A, is_commit=True)
    assert told(host, 0, wants_stable=True) == [20]


def test_an_offset_that_is_written_again_in_its_transaction_is_not_overtaken_any_more(host: Host) -> None:
    commit(host, A, (0, 10))
    commit_plainly(host, (0, 3))
    commit(host, A, (0, 12))
    end(host, A, is_commit=True)
    assert told(host, 0) == [12]


def test_a_marker_of_whoever_has_nothing_here_is_written_all_the_same(host: Host) -> None:
    end(host, A, is_commit=True)
    end(host, A, is_commit=True)
    assert (host.log, len(host.appended)) == ([MARKER, MARKER], 2)


def test_records_of_a_transaction_are_those_of_one_change_with_its_producer(host: Host) -> None:
    commit(host, A, (0, 10), (1, 11))
    end(host, A, is_commit=True)
    records, marker = host.appended
    assert isinstance(records, AppendRecords)
    assert (records.writer, len(records.records)) == (A, 2)
    assert isinstance(marker, AppendMarker)
    assert (marker.base_offset, marker.marker.is_commit, marker.marker.coordinator_epoch) == (2, True, 1)


# ---- other leaders ----------------------------------------------------------------------------------------------------


def test_a_new_leader_knows_what_is_pending_and_what_its_end_made_of_it(host: Host) -> None:
    commit(host, A, (0, 10))
    commit(host, B, (0, 20), (1, 21))
    commit_plainly(host, (1, 3))
    host.lead()
    assert told(host, 0, 1, 2, wants_stable=True) == ["unstable", "unstable", -1]
    end(host, B, is_commit=True)
    host.lead()
    assert (told(host, 0, 1), told(host, 0, 1, wants_stable=True)) == ([20, 3], ["unstable", 3])
    end(host, A, is_commit=True)
    host.lead()
    assert told(host, 0, 1, wants_stable=True) == [20, 3]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_that_the_log_refuses_leaves_the_transaction_open(host: Host, is_commit: bool) -> None:
    commit(host, A, (0, 10))
    host.refuses = CoordinatorLoadInProgressError("the log is full")
    with pytest.raises(ReplogError):
        end(host, A, is_commit=is_commit)
    host.refuses = None
    assert told(host, 0, wants_stable=True) == ["unstable"]
    end(host, A, is_commit=is_commit)
    assert told(host, 0, wants_stable=True) == [10 if is_commit else -1]


def test_a_commit_that_the_log_refuses_leaves_nothing_pending(host: Host) -> None:
    host.refuses = CoordinatorLoadInProgressError("the log is full")
    with pytest.raises(ReplogError):
        commit(host, A, (0, 10))
    host.refuses = None
    assert (told(host, 0, wants_stable=True), listed(host)) == ([-1], [])


def test_a_topic_without_transactions_fails_to_load_where_there_is_one() -> None:
    host = Host(Table)
    host.log, host.of_transactions = [MARKER], {0: A}
    host.lead()
    assert host.shard.status().state is ShardState.FAILED
    assert "never part of one" in host.shard.status().failure


# ---- permits ----------------------------------------------------------------------------------------------------------


def test_a_permit_says_whether_the_transaction_is_known_to_be_open(host: Host) -> None:
    permit = host.ask(GetCommitPermit("g", A))
    assert not permit.is_open
    commit(host, A, (0, 10))
    assert host.ask(GetCommitPermit("g", A)) == CommitPermit(permit.number, is_open=True)
    assert not host.ask(GetCommitPermit("g", TransactionWriter(7, 1))).is_open


def test_a_marker_takes_the_permit_back_with_which_its_transaction_would_be_opened_again(host: Host) -> None:
    permit = host.ask(GetCommitPermit("g", A))
    end(host, A, is_commit=False)
    with pytest.raises(CoordinatorLoadInProgressError, match="has ended meanwhile"):
        host.ask(CommitTransactionalOffsets("g", topics((0, 10)), A, permit.number))
    assert told(host, 0, wants_stable=True) == [-1]


def test_permits_are_others_under_another_leader(host: Host) -> None:
    permit = host.ask(GetCommitPermit("g", A))
    host.now_ms += 1
    host.lead()
    assert host.ask(GetCommitPermit("g", A)).number != permit.number


def test_the_oldest_permit_goes_where_there_are_too_many() -> None:
    permits = Permits()
    first, second = permits.give(0, 5), permits.give(1, 5)
    for producer_id in range(2, PERMITS_MAX + 1):
        permits.give(producer_id, 5)
    assert not permits.is_valid(0, first)
    assert permits.is_valid(1, second)


# ---- who may commit ---------------------------------------------------------------------------------------------------


def test_an_older_incarnation_neither_commits_nor_ends_what_a_newer_one_has_open(host: Host) -> None:
    newer = TransactionWriter(7, 1)
    commit(host, newer, (0, 10))
    for request in (
        GetCommitPermit("g", A),
        CommitTransactionalOffsets("g", topics((0, 9)), A, 1),
        CompleteTransaction(7, 0, 1, is_commit=False),
    ):
        with pytest.raises(InvalidProducerEpochError):
            host.ask(request)
    end(host, newer, is_commit=True)
    assert told(host, 0) == [10]


def test_the_end_of_the_transaction_before_comes_too_late_for_the_one_that_is_open(host: Host) -> None:
    """With bumped epochs both have the same epoch, and only the open one's own end has a higher one."""
    host.ask(CompleteTransaction(7, 1, 1, is_commit=True, bumps_epochs=True))
    commit(host, TransactionWriter(7, 1), (0, 10))
    with pytest.raises(InvalidProducerEpochError, match="of the one before"):
        host.ask(CompleteTransaction(7, 1, 1, is_commit=True, bumps_epochs=True))
    assert told(host, 0, wants_stable=True) == ["unstable"]
    host.ask(CompleteTransaction(7, 2, 1, is_commit=True, bumps_epochs=True))
    assert told(host, 0, wants_stable=True) == [10]


def test_a_transaction_keeps_no_more_offsets_than_one_step_can_end(host: Host) -> None:
    commit(host, A, (0, 1), (1, 1), (2, 1))
    with pytest.raises(RecordTooLargeError, match="has kept 3 offsets, 2 more are sent, and may have 4"):
        commit(host, A, (3, 1), (4, 1))
    commit(host, A, (3, 1))


def test_a_group_without_a_name_is_refused(host: Host) -> None:
    with pytest.raises(InvalidGroupIdError):
        commit(host, A, (0, 1), group_id="")


def test_a_generation_of_a_group_that_there_is_not_is_an_illegal_one(host: Host) -> None:
    with pytest.raises(IllegalGenerationError):
        commit(host, A, (0, 1), member_id="m", generation=3)
    commit(host, A, (0, 1))
    with pytest.raises(UnknownMemberIdError):  # it exists now
        commit(host, A, (0, 1), member_id="m", generation=3)


def test_who_names_no_member_commits_beside_members_and_who_names_one_is_it(host: Host) -> None:
    (member_id,) = stable(host, "m")
    commit(host, A, (0, 1))
    commit(host, A, (0, 2), member_id=member_id, generation=1)
    with pytest.raises(IllegalGenerationError):
        commit(host, A, (0, 3), member_id=member_id, generation=2)
    with pytest.raises(UnknownMemberIdError):
        commit(host, A, (0, 3), member_id="another", generation=1)
    with pytest.raises(UnknownMemberIdError):
        commit(host, A, (0, 3), instance_id="another")
    end(host, A, is_commit=True)
    assert told(host, 0) == [2]


# ---- what is forgotten ------------------------------------------------------------------------------------------------


def test_a_group_is_there_with_its_first_pending_offset_and_gone_with_its_last(host: Host) -> None:
    commit(host, A, (0, 10))
    assert listed(host) == ["g"]
    end(host, A, is_commit=False)
    assert listed(host) == []


def test_a_group_that_is_deleted_takes_its_pending_offsets_with_it(host: Host) -> None:
    commit_plainly(host, (0, 5))
    commit(host, A, (0, 10), (1, 11))
    host.ask(DeleteGroup("g"))
    end(host, A, is_commit=True)
    assert (told(host, 0, 1, wants_stable=True), listed(host)) == ([-1, -1], [])
    with pytest.raises(GroupIdNotFoundError):
        host.ask(DeleteGroup("g"))


def test_a_group_that_is_only_pending_can_be_deleted(host: Host) -> None:
    commit(host, A, (0, 10))
    host.ask(DeleteGroup("g"))
    assert listed(host) == []


def test_an_offset_that_is_deleted_is_not_brought_back_by_its_transaction(host: Host) -> None:
    commit(host, A, (0, 10), (1, 11))
    host.ask(DeleteOffsets("g", (TopicToForget("t", (0, 5)),)))
    assert told(host, 0, 1, wants_stable=True) == [-1, "unstable"]
    end(host, A, is_commit=True)
    assert told(host, 0, 1) == [-1, 11]


def test_nothing_is_old_while_a_transaction_has_an_offset_of_its_partition(host: Host) -> None:
    commit_plainly(host, (0, 5), (1, 6))
    commit(host, A, (0, 10))
    pass_time(host, 2_000)
    assert told(host, 0, 1) == [5, -1]
    end(host, A, is_commit=False)
    pass_time(host, 200)
    assert (told(host, 0, 1), listed(host)) == ([-1, -1], [])


def test_a_group_with_members_gone_stays_while_it_has_pending_offsets(host: Host) -> None:
    (member_id,) = stable(host, "m")
    commit(host, A, (0, 10), member_id=member_id, generation=1)
    pass_time(host, 5_000)
    assert listed(host) == ["g"]
    end(host, A, is_commit=True)
    assert told(host, 0) == [10]


@pytest.mark.parametrize(("of_topic", "left"), [("t", 10), ("u", -1)])
def test_pending_offsets_of_a_deleted_topic_are_forgotten(of_topic: str, left: int) -> None:
    host = group_host(Topics(t=2), GroupsConfig(CONFIG))
    host.lead()
    commit(host, A, topics=topics((0, 10), topic_id=topic_id(of_topic)))
    host.ask(ForgetTopics(frozenset({"t"})))
    pass_time(host, 10)
    end(host, A, is_commit=True)
    assert told(host, 0) == [left]


# ---- any order --------------------------------------------------------------------------------------------------------

_WHO = st.sampled_from((A, B))
_NUMBERS = st.integers(0, 1)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pending"), _WHO, _NUMBERS),
            st.tuples(st.just("plain"), _WHO, _NUMBERS),
            st.tuples(st.just("delete"), _WHO, _NUMBERS),
            st.tuples(st.just("end"), _WHO, st.booleans()),
            st.tuples(st.just("lead"), _WHO, _NUMBERS),
            st.tuples(st.just("lose"), _WHO, _NUMBERS),
        ),
        max_size=30,
    )
)
def test_offsets_are_those_that_kafkas_comparison_of_places_in_the_log_gives(steps: list[tuple[Any, ...]]) -> None:
    """The model keeps the offset in the log of each commit, and compares these when a marker comes, as Kafka does."""
    host = fresh()
    committed: dict[int, tuple[int, int]] = {}  # partition -> place, offset
    pending: dict[int, dict[int, tuple[int, int]]] = {7: {}, 8: {}}
    for value, (what, who, each) in enumerate(steps):
        place, of_producer = len(host.log), pending[who.producer_id]
        match what:
            case "pending":
                commit(host, who, (each, value))
                of_producer[each] = (place, value)
            case "plain":
                commit_plainly(host, (each, value))
                committed[each] = (place, value)
            case "delete":
                if committed or any(pending.values()):
                    host.ask(DeleteOffsets("g", (TopicToForget("t", (each,)),)))
                for one in (committed, *pending.values()):
                    one.pop(each, None)
            case "end":
                end(host, who, is_commit=each)
                ended, pending[who.producer_id] = of_producer, {}
                later = {n: one for n, one in ended.items() if one > committed.get(n, (-1, 0))}
                committed |= later if each else {}
            case "lead":
                host.lead()
            case "lose":
                host.submit(CompleteTransaction(who.producer_id, who.producer_epoch, 1, is_commit=True))
                host.lose(place)
        is_unstable = [any(number in one for one in pending.values()) for number in (0, 1)]
        found = [committed.get(number, (0, -1))[1] for number in (0, 1)]
        assert told(host, 0, 1) == found
        stable = ["unstable" if one else offset for one, offset in zip(is_unstable, found, strict=True)]
        assert told(host, 0, 1, wants_stable=True) == stable


def test_the_partitions_of_a_group_are_never_copied() -> None:
    """Trap: each step of the deletion of a group with 100,000 offsets made a list of all of them."""
    committed = {("t", number): b"" for number in range(3)}
    found = GroupPartitions(committed, {("t", 1): (), ("u", 0): ()})
    assert (list(found), len(found)) == ([("t", 0), ("t", 1), ("t", 2), ("u", 0)], 4)
    assert ("u", 0) in found
    assert ("u", 1) not in found
    del committed["t", 0], committed["t", 1]
    assert (list(found), len(found)) == ([("t", 2), ("t", 1), ("u", 0)], 3)


def test_the_end_of_a_transaction_goes_through_its_own_offsets_alone() -> None:
    """Trap: where 500 others had the same 2,000 partitions pending, one end held the broker for 800 ms."""

    def cost(others: int) -> int:
        host = fresh()
        for number in range(others):
            commit(host, TransactionWriter(100 + number, 0), (0, 1), (1, 1), (2, 1))
        commit(host, A, (0, 10), (1, 10), (2, 10))
        return instructions_of(lambda: end(host, A, is_commit=True))

    assert cost(60) < cost(2) * 1.2


def test_a_pending_offset_behind_one_that_is_committed_counts_and_one_before_it_does_not(host: Host) -> None:
    commit(host, A, (0, 10))
    commit_plainly(host, (0, 5))
    commit(host, B, (0, 20))
    end(host, A, is_commit=True)
    assert (told(host, 0), told(host, 0, wants_stable=True)) == ([5], ["unstable"])
    end(host, B, is_commit=True)
    assert told(host, 0, wants_stable=True) == [20]
