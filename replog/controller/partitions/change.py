"""How a partition changes: new ISR, ELR, replicas and leader, as one record (KIP-966; docs/KAFKA.md 4.10, 4.11).

Eligible leader replicas are always on.  A replica that leaves the ISR stays eligible (ELR) if its leaving takes the ISR below
the effective minimum, or if it stops in order and one active member alone would be left: so all brokers may be stopped one
after another, and nothing depends on one copy alone.  A leader commits nothing that a member of the ELR may lack (see
`replog.replication.leader`), so each of them has everything that is committed.  When records wait, it proposes an ISR, its
old one if need be; that empties the ELR where the ISR is large enough, and nothing else does: members leave one by one, when
they join the ISR, restart uncleanly, lose their disk or their place among the replicas, or all when an unclean election has
given up what they hold.

====================================  =========================================================================
ISR after the change                  who may lead
====================================  =========================================================================
has an active member                  the current leader if it is one, else the first replica that is one
empty, ELR has an active member       the first replica that is one, alone in the ISR (still a clean election); the others stay
                                      in the ELR
neither, unclean election allowed     the first active replica of any kind, alone in the ISR, state RECOVERING
neither                               nobody (-1)
====================================  =========================================================================

Where several may lead, those on brokers that are not being drained come first; `Election` says whether the current leader
may stay.  When ISR and ELR are both empty because everybody restarted uncleanly, `recovered_change` elects the longest log
once all of them have told their end.

A reassignment completes inside whatever change brings its last addition into the ISR: the replicas that were to go leave
replicas, ISR and ELR in the same record, and if one of them led, another leads.  An election from the ELR is such a change: where
who is elected is all that stays, nobody is waited for.  That is left to the leader's next proposal where the controller has not
heard yet that the elected can use its replica, and after an unclean election: the others may hold what is missing then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.metadata.records import NO_LEADER, ElectionType, LeaderRecoveryState, PartitionChangeRecord
from replog.metadata.registrations import PartitionRegistration


class Election(Enum):
    """What a change wants of the leader."""

    KEEP = auto()
    """Nothing as long as it may lead."""

    PREFERRED = auto()
    """The first of the replicas, if that may lead and is not being drained."""

    LEAVE_DRAINED = auto()
    """Somebody else, if its broker is being drained and another may lead."""


def nobody(_broker_id: int) -> bool:
    """Holds for no broker."""
    return False


def everybody(_broker_id: int) -> bool:
    """Holds for every broker."""
    return True


class ElectionRules(Struct, frozen=True):
    """What holds for one partition at the moment of a change.

    Attributes:
        is_acceptable: Whether a broker may lead, as it will be once the change has happened.
        min_isr: The topic's min.insync.replicas; never more of it counts than there are replicas.
        unclean_allowed: The topic's unclean.leader.election.enable.
        is_drained: Whether a broker is being drained.
        has_told: Whether a broker has told this controller which replicas it cannot use.
    """

    is_acceptable: Callable[[int], bool]
    min_isr: int
    unclean_allowed: bool = False
    is_drained: Callable[[int], bool] = nobody
    has_told: Callable[[int], bool] = everybody


class Placement(Struct, frozen=True):
    """Where a partition lives and where it moves: as in `PartitionRegistration`."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self.replicas

    def completed(self, isr: tuple[int, ...]) -> Placement:
        """Returns the placement once `isr` is in sync: without those that go, if all that stay are in it."""
        if not self.adding and not self.removing:
            return self
        staying = _without(self.replicas, self.removing)
        return Placement(staying) if staying and set(staying) <= set(isr) else self


class ReplicaReport(Struct, frozen=True):
    """How far the replica of one incarnation reaches: epoch of its last batch and its log end offset."""

    broker_epoch: int
    last_epoch: int
    log_end_offset: int


class _Outcome(Struct, frozen=True):
    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    election_type: ElectionType | None = None


def partition_change(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionRegistration,
    rules: ElectionRules,
    *,
    target_isr: tuple[int, ...] | None = None,
    placement: Placement | None = None,
    restarted_uncleanly: Collection[int] = (),
    lost_disks: Collection[int] = (),
    leaves_in_order: bool = False,
    isr_is_proven: bool = False,
    leader_recovery_state: LeaderRecoveryState | None = None,
    election: Election = Election.KEEP,
) -> PartitionChangeRecord | None:
    """Decides the record that takes `partition` to `target_isr` and `placement` under `rules`.

    Args:
        topic_id: The id of the partition's topic.
        partition_id: The number of the partition.
        partition: The state of the partition now.
        rules: The rules that hold after the change.
        target_isr: The ISR wanted; None keeps it.
        placement: The placement that is wanted; None keeps it, or completes what is under way.
        restarted_uncleanly: Brokers that cannot prove what they hold; they leave the ELR and go to `last_known_elr`.
        lost_disks: Those of them that have another disk, or a replica whose repair gave records up: they are not
            waited for.
        leaves_in_order: Whether those that leave the ISR have stopped, or stop, with all that they have acknowledged.
        isr_is_proven: Whether the leader itself proposed the ISR (AlterPartition).
        leader_recovery_state: The recovery state that the leader tells; None keeps it.
        election: What the change wants of the leader.

    Returns:
        The record, in which only the fields that change are set; None when nothing changes.
    """
    isr = partition.isr if target_isr is None else target_isr
    wanted = placement or Placement(partition.replicas, partition.adding_replicas, partition.removing_replicas)
    placed = wanted.completed(isr)
    if placed.replicas != partition.replicas:
        isr = tuple(member for member in isr if member in placed)
    min_isr = min(rules.min_isr, len(placed.replicas))
    may_commit = isr_is_proven and len(isr) >= min_isr  # from now on the leader does without all others
    leavers_stay = len(isr) < min_isr or (leaves_in_order and sum(map(rules.is_acceptable, isr)) == 1)
    candidates = (*partition.elr, *partition.isr) if leavers_stay else partition.elr
    gone = {*isr, *restarted_uncleanly}
    elr = () if may_commit else tuple(member for member in candidates if member in placed and member not in gone)
    outcome = _elect(partition.leader, placed.replicas, isr, elr, rules, election)
    if outcome.election_type is ElectionType.UNCLEAN:
        leader_recovery_state = LeaderRecoveryState.RECOVERING
    elif outcome.election_type is not None and rules.has_told(outcome.leader):
        placed, outcome = _completed_by(outcome, placed)
        min_isr = min(rules.min_isr, len(placed.replicas))
    last_known_elr = _last_known(partition, placed, outcome, min_isr, restarted_uncleanly, lost_disks)
    if may_commit:
        last_known_elr = ()
    return _difference(topic_id, partition_id, partition, placed, outcome, last_known_elr, leader_recovery_state)


def recovered_change(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionRegistration,
    reports: Mapping[int, ReplicaReport],
) -> PartitionChangeRecord:
    """Elects the replica with the highest (last epoch, log end offset); ties go by replica order.

    Args:
        topic_id: The id of the partition's topic.
        partition_id: The number of the partition.
        partition: The state of the partition now; ISR and ELR are empty.
        reports: The reports, one of every member of `last_known_elr`.
    """
    members = [replica for replica in partition.replicas if replica in partition.last_known_elr]
    leader = max(members, key=lambda replica: (reports[replica].last_epoch, reports[replica].log_end_offset))
    return PartitionChangeRecord(
        partition_id,
        topic_id,
        leader=leader,
        isr=(leader,),
        last_known_elr=_without(partition.last_known_elr, (leader,)),
        election_type=ElectionType.RECOVERED,
    )


def last_known_change(
    topic_id: UUID, partition_id: int, partition: PartitionRegistration, min_isr_before: int, min_isr: int
) -> PartitionChangeRecord | None:
    """Keeps of `last_known_elr` who has what was committed by a minimum that ends: those who left last.

    They are as many as made that minimum together with the ISR and the ELR.  The others may lack what was committed without
    them, and by a higher minimum nobody could tell.

    Args:
        topic_id: The id of the partition's topic.
        partition_id: The number of the partition.
        partition: The state of the partition now.
        min_isr_before: The value of min.insync.replicas that ends.
        min_isr: The value that begins.

    Returns:
        The record; None where the minimum does not rise, or everybody stays.
    """
    replicas_count = len(partition.replicas)
    before = min(min_isr_before, replicas_count)
    if before >= min(min_isr, replicas_count):
        return None
    needed = max(0, before - len(partition.isr) - len(partition.elr))
    known = partition.last_known_elr[-needed:] if needed else ()
    if known == partition.last_known_elr:
        return None
    return PartitionChangeRecord(partition_id, topic_id, last_known_elr=known)


def _elect(
    leader: int,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    rules: ElectionRules,
    election: Election,
) -> _Outcome:
    active = [replica for replica in replicas if rules.is_acceptable(replica)]
    in_sync = [replica for replica in active if replica in isr]
    if in_sync:
        elected = _choose(leader, replicas[0], in_sync, rules, election)
        if elected == leader:
            return _Outcome(leader, isr, elr)
        is_preferred = election is Election.PREFERRED and leader in in_sync
        return _Outcome(elected, isr, elr, ElectionType.PREFERRED if is_preferred else ElectionType.CLEAN)
    if not isr and (eligible := [replica for replica in active if replica in elr]):
        elected = _choose(leader, replicas[0], eligible, rules, election)
        return _Outcome(elected, (elected,), _without(elr, (elected,)), ElectionType.CLEAN)
    if rules.unclean_allowed and active:
        return _Outcome(active[0], (active[0],), (), ElectionType.UNCLEAN)
    return _Outcome(NO_LEADER, isr, elr)


def _completed_by(outcome: _Outcome, placed: Placement) -> tuple[Placement, _Outcome]:
    """Judges the placement by the ISR of an election from the ELR, and takes those that go then out of the outcome."""
    completed = placed.completed(outcome.isr)
    gone = set(placed.replicas) - set(completed.replicas)
    return completed, replace(outcome, elr=_without(outcome.elr, gone)) if gone else outcome


def _choose(leader: int, preferred: int, may_lead: list[int], rules: ElectionRules, election: Election) -> int:
    """Chooses the leader from `may_lead`, which is in the order of the replicas."""
    if election is Election.PREFERRED and preferred in may_lead and not rules.is_drained(preferred):
        return preferred
    if leader in may_lead and not (election is Election.LEAVE_DRAINED and rules.is_drained(leader)):
        return leader
    for replica in may_lead:
        if not rules.is_drained(replica):
            return replica
    return leader if leader in may_lead else may_lead[0]


def _last_known(
    partition: PartitionRegistration,
    placed: Placement,
    outcome: _Outcome,
    min_isr: int,
    restarted_uncleanly: Collection[int],
    lost_disks: Collection[int],
) -> tuple[int, ...]:
    """Returns who together hold everything committed, once they have told how far they reach; who left first is first.

    Where one replica alone could commit and the disk of the last one that could is gone, nobody is known to: the others may
    have fallen behind before, an election would give records up, and that is an operator's decision.
    """
    if outcome.election_type is ElectionType.UNCLEAN:
        return ()  # what the others held has been given up
    lost = [replica for replica in (*partition.isr, *partition.elr) if replica in restarted_uncleanly]
    candidates = tuple(dict.fromkeys((*partition.last_known_elr, *lost)))
    if not candidates or (min_isr == 1 and candidates[-1] in lost_disks):
        return ()
    known = tuple(replica for replica in candidates if replica in placed and replica not in lost_disks)
    return _without(known, (*outcome.isr, *outcome.elr))


def _difference(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionRegistration,
    placed: Placement,
    outcome: _Outcome,
    last_known_elr: tuple[int, ...],
    leader_recovery_state: LeaderRecoveryState | None,
) -> PartitionChangeRecord | None:
    # a replica that is gone must not follow, nor its fetches count, in the epoch in which it did
    loses_replicas = placed.replicas != partition.replicas and not set(partition.replicas) <= set(placed.replicas)
    leads_anew = loses_replicas or outcome.election_type is not None or outcome.leader != partition.leader
    if leader_recovery_state == partition.leader_recovery_state:
        leader_recovery_state = None
    values = (
        outcome.leader if leads_anew else None,
        None if outcome.isr == partition.isr else outcome.isr,
        None if outcome.elr == partition.elr else outcome.elr,
        None if last_known_elr == partition.last_known_elr else last_known_elr,
        None if placed.replicas == partition.replicas else placed.replicas,
        leader_recovery_state,
        outcome.election_type,
        None if placed.adding == partition.adding_replicas else placed.adding,
        None if placed.removing == partition.removing_replicas else placed.removing,
    )
    return None if values == _NO_CHANGE else PartitionChangeRecord(partition_id, topic_id, *values)


_NO_CHANGE = (None,) * 9


def _without(members: tuple[int, ...], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(member for member in members if member not in gone)
