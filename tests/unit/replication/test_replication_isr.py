"""One ISR change at a time, and what each answer of the controller does (docs/KAFKA.md 4.4)."""

from __future__ import annotations

import itertools

import pytest

from replog.errors import ErrorCode, InvariantViolationError
from replog.replication.isr import (
    Committed,
    InSyncReplicas,
    PendingExpand,
    PendingIsr,
    PendingRecovery,
    PendingRelease,
    PendingShrink,
)
from replog.replication.messages import AlterPartitionAnswered, IsrChanged, PartitionState, ProposeIsr


def state(isr: tuple[int, ...] = (1, 2), leader_epoch: int = 5, partition_epoch: int = 7) -> PartitionState:
    return PartitionState(1, leader_epoch, partition_epoch, (1, 2, 3), isr, (), 1, {})


def expanding() -> tuple[InSyncReplicas, ProposeIsr]:
    isr = InSyncReplicas(state(), itertools.count(1))
    return isr, isr.propose(PendingExpand((1, 2), 3), (-1, 102, 103), "caught up")


def answer(proposal: ProposeIsr, error: ErrorCode, isr: tuple[int, ...] = ()) -> AlterPartitionAnswered:
    return AlterPartitionAnswered(proposal.proposal_id, error, 5, 8, isr)


def test_a_proposal_names_epochs_and_members_with_their_broker_epochs() -> None:
    isr, proposal = expanding()
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 7)
    assert proposal.isr == ((1, -1), (2, 102), (3, 103))
    assert isr.committed_isr == (1, 2)
    assert isr.maximal_isr == (1, 2, 3)


def test_a_shrink_keeps_the_maximal_isr() -> None:
    isr = InSyncReplicas(state(), itertools.count(1))
    assert isr.propose(PendingShrink((1, 2), (2,)), (-1,), "late").isr == ((1, -1),)
    assert isr.maximal_isr == (1, 2)


def test_a_second_proposal_is_our_bug() -> None:
    isr, _ = expanding()
    with pytest.raises(InvariantViolationError):
        isr.propose(PendingShrink((1, 2), (2,)), (-1,), "late")


def test_success_commits_what_the_controller_says() -> None:
    isr, proposal = expanding()
    assert isr.handle_answer(answer(proposal, ErrorCode.NONE, (1, 2, 3)), 0)
    assert isr.state == Committed((1, 2, 3))
    assert isr.partition_epoch == 8


@pytest.mark.parametrize("epochs", [(4, 8), (6, 8), (5, 6)])
def test_success_with_other_epochs_waits_for_metadata(epochs: tuple[int, int]) -> None:
    isr, proposal = expanding()
    assert not isr.handle_answer(AlterPartitionAnswered(proposal.proposal_id, ErrorCode.NONE, *epochs, (1, 2, 3)), 0)
    assert isr.change_pending
    assert (isr.committed_isr, isr.maximal_isr, isr.partition_epoch) == ((1, 2), (1, 2, 3), 7)


def test_a_smaller_isr_is_taken_from_the_metadata_alone() -> None:
    isr, proposal = expanding()
    assert not isr.handle_answer(answer(proposal, ErrorCode.NONE, (1, 3)), 0)
    assert isr.maximal_isr == (1, 2, 3)
    isr.handle_metadata(state(isr=(1, 3), partition_epoch=8))
    assert isr.state == Committed((1, 3))


@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_refusal_returns_to_the_committed_isr(error: ErrorCode) -> None:
    isr, proposal = expanding()
    isr.handle_answer(answer(proposal, error), 0)
    assert isr.state == Committed((1, 2))


CHANGES = (
    PendingExpand((1, 2), 3),
    PendingShrink((1, 2), (2,)),
    PendingRecovery((1, 2)),
    PendingRelease((1, 2)),
)


@pytest.mark.parametrize("pending", CHANGES)
@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NONE])
def test_an_answer_that_changes_nothing_is_followed_by_a_pause(pending: PendingIsr, error: ErrorCode) -> None:
    """The same facts would make the same proposal, and the two sides would go on as fast as they can."""
    isr = InSyncReplicas(state(), itertools.count(1))
    proposal = isr.propose(pending, (-1,) * len(pending.proposed_isr), "")
    isr.handle_answer(AlterPartitionAnswered(proposal.proposal_id, error, 5, 7, (1, 2)), 1_000)
    assert isr.state == Committed((1, 2))
    assert isr.retry_if_due(1_049) is None
    assert not isr.may_propose
    with pytest.raises(InvariantViolationError):
        isr.propose(pending, (-1,) * len(pending.proposed_isr), "")
    assert isr.next_deadline_ms() == 1_050
    assert isr.retry_if_due(1_050) is None
    assert isr.may_propose
    assert isr.next_deadline_ms() is None


def test_newer_metadata_ends_the_pause() -> None:
    isr, proposal = expanding()
    isr.handle_answer(answer(proposal, ErrorCode.INELIGIBLE_REPLICA), 1_000)
    isr.handle_metadata(state())
    assert not isr.may_propose
    isr.handle_metadata(state(partition_epoch=8))
    assert isr.may_propose


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_outdated_proposals_stay_pending_until_metadata(error: ErrorCode) -> None:
    isr, proposal = expanding()
    isr.handle_answer(answer(proposal, error), 0)
    assert isr.change_pending
    assert isr.next_deadline_ms() is None
    isr.handle_metadata(state(isr=(1,), partition_epoch=8))
    assert isr.state == Committed((1,))


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.REQUEST_TIMED_OUT])
def test_other_errors_repeat_the_proposal_after_50_ms(error: ErrorCode) -> None:
    isr, proposal = expanding()
    isr.handle_answer(answer(proposal, error), 1_000)
    assert isr.retry_if_due(1_049) is None
    assert isr.next_deadline_ms() == 1_050
    again = isr.retry_if_due(1_050)
    assert again is not None
    assert (again.isr, again.partition_epoch) == (proposal.isr, proposal.partition_epoch)
    assert isr.next_deadline_ms() is None


def test_an_answer_to_an_earlier_attempt_is_dropped() -> None:
    """Else a late refusal of the first attempt would hide that the second is being committed."""
    isr, first = expanding()
    isr.handle_answer(answer(first, ErrorCode.REQUEST_TIMED_OUT), 0)
    isr.handle_answer(answer(first, ErrorCode.INELIGIBLE_REPLICA), 10)
    second = isr.retry_if_due(50)
    assert second is not None
    isr.handle_answer(answer(first, ErrorCode.INELIGIBLE_REPLICA), 60)
    assert isr.maximal_isr == (1, 2, 3)


def test_metadata_of_the_same_partition_epoch_does_not_end_a_change() -> None:
    isr, _ = expanding()
    isr.handle_metadata(state())
    assert isr.change_pending


def test_a_new_leader_epoch_ends_a_change() -> None:
    isr, proposal = expanding()
    isr.handle_metadata(state(leader_epoch=6, partition_epoch=8))
    assert isr.state == Committed((1, 2))
    isr.handle_answer(answer(proposal, ErrorCode.NONE, (1, 2, 3)), 0)
    assert isr.state == Committed((1, 2))


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.REQUEST_TIMED_OUT])
def test_an_answer_that_a_new_leader_epoch_and_a_new_isr_have_overtaken_is_dropped(error: ErrorCode) -> None:
    """The leader is elected again, without 2, and has asked for 2 by the time that the answer about 3 arrives."""
    isr, about_3 = expanding()
    isr.handle_metadata(state(isr=(1,), leader_epoch=6, partition_epoch=9))
    assert isr.state == Committed((1,))
    isr.handle_answer(answer(about_3, error, (1, 2, 3)), 0)
    assert (isr.state, isr.partition_epoch, isr.may_propose) == (Committed((1,)), 9, True)
    about_2 = isr.propose(PendingExpand((1,), 2), (-1, 102), "caught up")
    isr.handle_answer(answer(about_3, error, (1, 2, 3)), 0)
    assert (isr.state, isr.partition_epoch) == (PendingExpand((1,), 2), 9)
    assert (about_2.leader_epoch, about_2.partition_epoch, isr.next_deadline_ms()) == (6, 9, None)
    assert isr.handle_answer(AlterPartitionAnswered(about_2.proposal_id, ErrorCode.NONE, 6, 10, (1, 2)), 0)
    assert isr.state == Committed((1, 2))


# ---- what people are told ----------------------------------------------------------------------------------------------


def test_a_committed_change_is_told_once_with_the_reason_it_was_proposed_for() -> None:
    isr, proposal = expanding()
    assert isr.take_change() == (), "nothing is committed yet"
    isr.handle_answer(answer(proposal, ErrorCode.NONE, (1, 2, 3)), 0)
    assert isr.take_change() == (IsrChanged((1, 2), (1, 2, 3), "caught up"),)
    assert isr.take_change() == ()


def test_a_change_that_came_by_the_metadata_first_has_the_same_reason() -> None:
    isr, _ = expanding()
    isr.handle_metadata(state(isr=(1, 2, 3), partition_epoch=8))
    assert isr.take_change() == (IsrChanged((1, 2), (1, 2, 3), "caught up"),)


def test_a_change_that_nobody_here_proposed_is_the_controllers() -> None:
    isr, _ = expanding()
    isr.handle_metadata(state(isr=(1,), partition_epoch=8))
    assert isr.take_change() == (IsrChanged((1, 2), (1,), "decided by the controller"),)


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.REQUEST_TIMED_OUT])
def test_what_is_refused_or_lost_changes_nothing(error: ErrorCode) -> None:
    isr, proposal = expanding()
    isr.handle_answer(answer(proposal, error), 0)
    isr.handle_metadata(state(isr=(2, 1), partition_epoch=9))
    assert isr.take_change() == (), "the same members in another order are the same"
