"""How a partition changes when its ISR does: new ISR, ELR, leader, as one record (KIP-966; kafka-reference 4.10).

Eligible leader replicas are always on: a replica that leaves the ISR while that is below the effective minimum stays
eligible, because nothing has been committed without it since.

====================================  =========================================================================
ISR after the change                  who may lead
====================================  =========================================================================
has an active member                  the current leader if it is one, else the first replica that is one
empty, ELR has an active member       the first replica that is one, alone in the ISR (still a clean election)
neither, unclean election allowed     the first active replica of any kind, alone in the ISR, state RECOVERING
neither                               nobody (-1)
====================================  =========================================================================

When ISR and ELR are both empty because everybody restarted uncleanly, `recovered_change` elects the longest log once
all of them have told their end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from replog.metadata.records import NO_LEADER, ElectionType, LeaderRecoveryState, PartitionChangeRecord
from replog.metadata.registrations import PartitionRegistration


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """What holds for one partition at the moment of a change.

    Attributes:
        is_acceptable: whether a broker may lead, as it will be once the change has happened.
        min_isr: effective min.insync.replicas: never above the number of replicas.
        unclean_allowed: unclean.leader.election.enable of the topic.
    """

    is_acceptable: Callable[[int], bool]
    min_isr: int
    unclean_allowed: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """How far the replica of one incarnation reaches: epoch of its last batch and its log end offset."""

    broker_epoch: int
    last_epoch: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class _Outcome:
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
    restarted_uncleanly: Collection[int] = (),
    isr_is_proven: bool = False,
    leader_recovery_state: LeaderRecoveryState | None = None,
) -> PartitionChangeRecord | None:
    """The record that takes `partition` to `target_isr` under `rules`.

    Args:
        topic_id: of the partition.
        partition_id: of the partition.
        partition: its state now.
        rules: what holds after the change.
        target_isr: the ISR wanted; None keeps it.
        restarted_uncleanly: brokers that cannot prove what they hold; they leave the ELR and go to `last_known_elr`.
        isr_is_proven: the leader itself proposed the ISR (AlterPartition).
        leader_recovery_state: what the leader says about it; None keeps it.

    Returns:
        Only the fields that change are set; None when nothing changes.
    """
    isr = partition.isr if target_isr is None else target_isr
    outcome = _elect(partition, isr, _eligible(partition, isr, rules.min_isr, restarted_uncleanly), rules)
    if len(outcome.isr) >= rules.min_isr:
        outcome = _Outcome(outcome.leader, outcome.isr, (), outcome.election_type)
    if outcome.election_type is ElectionType.UNCLEAN:
        leader_recovery_state = LeaderRecoveryState.RECOVERING
    last_known_elr = _last_known(partition, outcome, restarted_uncleanly)
    if isr_is_proven and len(outcome.isr) >= rules.min_isr:
        last_known_elr = ()
    return _difference(topic_id, partition_id, partition, outcome, last_known_elr, leader_recovery_state)


def recovered_change(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionRegistration,
    reports: Mapping[int, ReplicaReport],
) -> PartitionChangeRecord:
    """Elect the replica with the highest (last epoch, log end offset); ties go by replica order.

    Args:
        topic_id: of the partition.
        partition_id: of the partition.
        partition: its state; ISR and ELR are empty.
        reports: one of every member of `last_known_elr`.
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


def _eligible(
    partition: PartitionRegistration, isr: tuple[int, ...], min_isr: int, restarted_uncleanly: Collection[int]
) -> tuple[int, ...]:
    if len(isr) >= min_isr:
        return ()
    candidates = dict.fromkeys((*partition.elr, *partition.isr))
    return tuple(replica for replica in candidates if replica not in isr and replica not in restarted_uncleanly)


def _elect(
    partition: PartitionRegistration, isr: tuple[int, ...], elr: tuple[int, ...], rules: ElectionRules
) -> _Outcome:
    active = [replica for replica in partition.replicas if rules.is_acceptable(replica)]
    if partition.leader in isr and partition.leader in active:
        return _Outcome(partition.leader, isr, elr)
    if in_sync := [replica for replica in active if replica in isr]:
        return _Outcome(in_sync[0], isr, elr, ElectionType.CLEAN)
    if not isr and (eligible := [replica for replica in active if replica in elr]):
        leader = eligible[0]
        return _Outcome(leader, (leader,), _without(elr, (leader,)), ElectionType.CLEAN)
    if rules.unclean_allowed and active:
        return _Outcome(active[0], (active[0],), (), ElectionType.UNCLEAN)
    return _Outcome(NO_LEADER, isr, elr)


def _last_known(
    partition: PartitionRegistration, outcome: _Outcome, restarted_uncleanly: Collection[int]
) -> tuple[int, ...]:
    if outcome.election_type is ElectionType.UNCLEAN:
        return ()  # what the others held has been given up
    lost = [replica for replica in (*partition.isr, *partition.elr) if replica in restarted_uncleanly]
    return _without(tuple(dict.fromkeys((*partition.last_known_elr, *lost))), (*outcome.isr, *outcome.elr))


def _difference(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionRegistration,
    outcome: _Outcome,
    last_known_elr: tuple[int, ...],
    leader_recovery_state: LeaderRecoveryState | None,
) -> PartitionChangeRecord | None:
    unchanged = PartitionChangeRecord(partition_id, topic_id)
    record = PartitionChangeRecord(
        partition_id,
        topic_id,
        leader=None if outcome.leader == partition.leader and outcome.election_type is None else outcome.leader,
        isr=None if outcome.isr == partition.isr else outcome.isr,
        elr=None if outcome.elr == partition.elr else outcome.elr,
        last_known_elr=None if last_known_elr == partition.last_known_elr else last_known_elr,
        leader_recovery_state=None
        if leader_recovery_state == partition.leader_recovery_state
        else leader_recovery_state,
        election_type=outcome.election_type,
    )
    return None if record == unchanged else record


def _without(members: tuple[int, ...], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(member for member in members if member not in gone)
