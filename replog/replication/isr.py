"""The in-sync replicas of one partition as its leader sees them: committed, or one change under way.

The controller owns the ISR; a leader proposes changes (AlterPartition) and learns the outcome from the answer or from
the metadata log, whichever comes first.  Until it knows, it must be careful in both directions: the high watermark
waits for the *maximal* ISR, which contains a member being added (the controller may have committed it, so it may be
elected) and a member being removed (the controller may refuse).

::

    Committed --propose--> PendingExpand | PendingShrink | PendingRecovery | PendingRelease
        ^                        |
        |  success, refused,     |  other errors: the same proposal again after 50 ms
        +--or newer metadata ----+  out-of-date errors: wait for the metadata that explains them

After a refusal, or a success that changed nothing, there is no other proposal for 50 ms, unless newer metadata comes before:
the same facts would lead to the same proposal, and to the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from replog.errors import ErrorCode, InvariantViolationError
from replog.replication.messages import AlterPartitionAnswered, IsrChanged, PartitionState, ProposeIsr

ALTER_PARTITION_RETRY_MS: Final = 50

# The controller looked at the proposal and said no: the committed ISR stands (docs/KAFKA.md 4.4).
_REFUSED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})

# The proposal rests on old facts: stay careful until the metadata log brings the new ones.
_OUT_OF_DATE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class Committed(Struct, frozen=True):
    """No change under way."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr


class PendingExpand(Struct, frozen=True):
    """`added` caught up and is being added to the committed `isr`."""

    isr: tuple[int, ...]
    added: int

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return (*self.isr, self.added)

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return self.maximal_isr


class PendingShrink(Struct, frozen=True):
    """`removed` fell behind and are being taken out of the committed `isr`; until then they count."""

    isr: tuple[int, ...]
    removed: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return tuple(replica_id for replica_id in self.isr if replica_id not in self.removed)


class _Unchanged(Struct, frozen=True):
    """The ISR stays as it is; the proposal is about something else."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return self.isr


class PendingRecovery(_Unchanged, frozen=True):
    """An uncleanly elected leader reports that its recovery is done (docs/KAFKA.md 4.10)."""


class PendingRelease(_Unchanged, frozen=True):
    """The leader asks the controller to empty the ELR, so that it can commit without its members.

    Only the metadata says that the ELR is empty.  The controller may know of a higher min.insync.replicas, for which the ISR is
    too small; then the ELR stays, and the controller's answer does not say so.
    """


PendingIsr: TypeAlias = PendingExpand | PendingShrink | PendingRecovery | PendingRelease
IsrState: TypeAlias = Committed | PendingIsr


class InSyncReplicas:
    """The ISR of one partition under one leader, and its one proposal in flight.

    Invariants:
        - at most one proposal waits for an answer, and answers to others are dropped;
        - without newer metadata, proposals follow an answer that changed nothing only after a pause;
        - the partition epoch never falls within one leader epoch.
    """

    def __init__(self, state: PartitionState, proposal_ids: Iterator[int]) -> None:
        self._state: IsrState = Committed(state.isr)
        self._leader_epoch = state.leader_epoch
        self._partition_epoch = state.partition_epoch
        self._proposal_ids = proposal_ids
        self._proposal: ProposeIsr | None = None
        self._wait_until_ms: int | None = None  # with the same proposal; without one, with any
        self._change: IsrChanged | None = None

    @property
    def state(self) -> IsrState:
        return self._state

    @property
    def committed_isr(self) -> tuple[int, ...]:
        return self._state.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self._state.maximal_isr

    @property
    def least_size(self) -> int:
        """The smallest size that the ISR may have by now: the controller may have committed the proposed removal."""
        if isinstance(self._state, Committed):
            return len(self._state.isr)
        return min(len(self._state.isr), len(self._state.proposed_isr))

    @property
    def partition_epoch(self) -> int:
        return self._partition_epoch

    @property
    def change_pending(self) -> bool:
        """Whether a proposal is in flight, waits for its retry, or waits for metadata."""
        return not isinstance(self._state, Committed)

    @property
    def may_propose(self) -> bool:
        """Whether a change may be proposed now: none is pending, and the last one was not refused a moment ago."""
        return not self.change_pending and self._wait_until_ms is None

    def next_deadline_ms(self) -> int | None:
        """Returns when the proposal is due again, or another may follow a refused one; None when nothing waits."""
        return self._wait_until_ms

    def propose(self, pending: PendingIsr, broker_epochs: tuple[int, ...], reason: str) -> ProposeIsr:
        """Starts a change.

        Args:
            pending: The change to propose; its `isr` is the committed one.
            broker_epochs: The broker epoch of each member of `pending.proposed_isr`, in its order.
            reason: The reason in one line for people.

        Raises:
            InvariantViolationError: `may_propose` does not hold.
        """
        if not self.may_propose:
            raise InvariantViolationError(f"proposed {pending} while {self._state} is pending, or just refused")
        self._state = pending
        return self._send(
            ProposeIsr(
                proposal_id=0,
                leader_epoch=self._leader_epoch,
                partition_epoch=self._partition_epoch,
                isr=tuple(zip(pending.proposed_isr, broker_epochs, strict=True)),
                reason=reason,
            )
        )

    def retry_if_due(self, now_ms: int) -> ProposeIsr | None:
        """Returns the pending proposal again, when its retry time has come; ends the pause after a refused one."""
        if self._wait_until_ms is None or now_ms < self._wait_until_ms:
            return None
        self._wait_until_ms = None
        return None if self._proposal is None else self._send(self._proposal)

    def handle_answer(self, answer: AlterPartitionAnswered, now_ms: int) -> bool:
        """Takes in the controller's answer; drops it unless it answers the proposal in flight.

        Returns:
            Whether the change was committed.
        """
        if (
            self._proposal is None
            or self._wait_until_ms is not None
            or answer.proposal_id != self._proposal.proposal_id
        ):
            return False
        if answer.error is ErrorCode.NONE:
            return self._accept(answer, now_ms)
        if answer.error in _REFUSED:
            self._commit(self._state.isr, self._partition_epoch)
        if answer.error not in _OUT_OF_DATE:
            self._wait_until_ms = now_ms + ALTER_PARTITION_RETRY_MS
        return False

    def handle_metadata(self, state: PartitionState) -> None:
        """Takes in committed metadata that is not older than what is known.

        With the same leader and partition epoch the ISR cannot have changed: a pending change stays pending.
        """
        if (state.leader_epoch, state.partition_epoch) == (self._leader_epoch, self._partition_epoch):
            return
        self._leader_epoch = state.leader_epoch
        self._commit(state.isr, state.partition_epoch)

    def take_change(self) -> tuple[IsrChanged, ...]:
        """Takes how the committed ISR has changed since this was asked last; empty: its members are the same."""
        change, self._change = self._change, None
        return () if change is None or set(change.before) == set(change.isr) else (change,)

    def _accept(self, answer: AlterPartitionAnswered, now_ms: int) -> bool:
        """Adopts the controller's answer.  One of another leader epoch, or with older facts, is left to the metadata.

        So is an ISR that lacks a former member.  The controller may hold that member for eligible to lead, by a
        min.insync.replicas that this broker has not heard of, and the high watermark must not move by the old minimum.
        The metadata brings both in their order.  (Kafka takes a smaller ISR from the answer.)
        """
        if answer.leader_epoch != self._leader_epoch or answer.partition_epoch < self._partition_epoch:
            return False
        if not set(self._state.isr) <= set(answer.isr):
            return False
        has_changed = answer.partition_epoch > self._partition_epoch
        self._commit(answer.isr, answer.partition_epoch)
        if not has_changed:
            self._wait_until_ms = now_ms + ALTER_PARTITION_RETRY_MS
        return True

    def _commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        before = self._state.isr if self._change is None else self._change.before
        self._change = IsrChanged(before, isr, self._reason_of(isr))
        self._state = Committed(isr)
        self._partition_epoch = partition_epoch
        self._proposal = None
        self._wait_until_ms = None

    def _reason_of(self, isr: tuple[int, ...]) -> str:
        proposal = self._proposal
        if proposal is not None and {replica_id for replica_id, _ in proposal.isr} == set(isr):
            return proposal.reason
        return "decided by the controller"

    def _send(self, proposal: ProposeIsr) -> ProposeIsr:
        """Gives an attempt an id of its own: a late answer to an earlier attempt says nothing about this one."""
        self._proposal = replace(proposal, proposal_id=next(self._proposal_ids))
        self._wait_until_ms = None
        return self._proposal
