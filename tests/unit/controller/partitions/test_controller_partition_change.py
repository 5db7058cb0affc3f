"""ISR, ELR and leader of one partition, rule by rule (KIP-966; docs/KAFKA.md 4.10)."""

from __future__ import annotations

from uuid import UUID

from replog.controller.partitions.change import ElectionRules, ReplicaReport, partition_change, recovered_change
from replog.metadata import PartitionRegistration
from replog.metadata.records import ElectionType, LeaderRecoveryState, PartitionChangeRecord

TOPIC = UUID(int=1)


def partition(isr: tuple[int, ...], leader: int, **fields: object) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3), isr, leader, 4, 9, **fields)  # type: ignore[arg-type]


def rules(*active: int, min_isr: int = 2, unclean: bool = False) -> ElectionRules:
    return ElectionRules(lambda broker_id: broker_id in active, min_isr, unclean)


def change(before: PartitionRegistration, under: ElectionRules, **wanted: object) -> PartitionChangeRecord | None:
    return partition_change(TOPIC, 0, before, under, **wanted)  # type: ignore[arg-type]


def after(before: PartitionRegistration, under: ElectionRules, **wanted: object) -> PartitionRegistration:
    record = change(before, under, **wanted)
    assert record is not None
    return before.merge(record)


def test_nothing_to_change_is_no_record() -> None:
    assert change(partition((1, 2, 3), 1), rules(1, 2, 3)) is None
    assert change(partition((), -1, elr=(1,)), rules(2, 3)) is None


def test_a_shrink_above_the_minimum_makes_nobody_eligible() -> None:
    record = change(partition((1, 2, 3), 1), rules(1, 2, 3), target_isr=(1, 2))
    assert record == PartitionChangeRecord(0, TOPIC, isr=(1, 2))


def test_a_shrink_below_the_minimum_keeps_who_left_eligible() -> None:
    state = after(partition((1, 2), 1), rules(1, 2, 3), target_isr=(1,))
    assert (state.isr, state.elr, state.leader, state.leader_epoch) == ((1,), (2,), 1, 4)


def test_back_at_the_minimum_nobody_is_eligible_besides() -> None:
    state = after(partition((1,), 1, elr=(2,)), rules(1, 2, 3), target_isr=(1, 3), isr_is_proven=True)
    assert (state.isr, state.elr) == ((1, 3), ())


def test_the_elr_is_emptied_by_the_leader_alone() -> None:
    """It may not have heard of anything else, nor may its predecessors."""
    before = partition((1,), 1, elr=(2,))
    assert change(before, rules(1, 2, 3, min_isr=1)) is None
    assert change(before, rules(1, 2, 3, min_isr=2), target_isr=(1,), isr_is_proven=True) is None
    assert after(before, rules(1, 2, 3, min_isr=1), target_isr=(1,), isr_is_proven=True).elr == ()


def test_who_leaves_in_order_stays_eligible_beside_the_last() -> None:
    under = rules(1, 2, 3, min_isr=1)
    assert after(partition((1, 2), 1), under, target_isr=(1,), leaves_in_order=True).elr == (2,)
    assert after(partition((1, 2), 1), under, target_isr=(1,)).elr == ()
    assert after(partition((1, 2, 3), 1), under, target_isr=(1, 2), leaves_in_order=True).elr == ()


def test_who_leaves_the_replicas_in_the_same_change_is_not_eligible() -> None:
    moving = partition((1, 2), 1, removing_replicas=(2, 3))
    state = after(moving, rules(1, 2, 3, min_isr=1), target_isr=(1,), leaves_in_order=True)
    assert (state.replicas, state.isr, state.elr) == ((1,), (1,), ())


def test_the_next_leader_is_the_first_replica_in_the_isr() -> None:
    state = after(partition((3, 2, 1), 1), rules(2, 3), target_isr=(3, 2))
    assert (state.leader, state.leader_epoch) == (2, 5)


def test_the_isr_may_become_empty_and_the_last_member_stays_eligible() -> None:
    state = after(partition((1,), 1, elr=(2,)), rules(), target_isr=())
    assert (state.leader, state.isr, state.elr, state.leader_epoch) == (-1, (), (2, 1), 5)


def test_an_eligible_replica_is_elected_cleanly_and_alone() -> None:
    record = change(partition((), -1, elr=(2, 1)), rules(1, 2))
    assert record == PartitionChangeRecord(0, TOPIC, leader=1, isr=(1,), elr=(2,), election_type=ElectionType.CLEAN)


def test_the_others_stay_eligible_beside_a_leader_that_may_commit_alone() -> None:
    state = after(partition((), -1, elr=(2, 1)), rules(1, 2, min_isr=1))
    assert (state.leader, state.isr, state.elr) == (1, (1,), (2,))


def test_an_election_from_the_elr_completes_a_move_to_who_is_elected() -> None:
    """Who goes may be dead for good, and where nothing is written the new leader proposes nothing."""
    moving = partition((), -1, elr=(2, 1), last_known_elr=(3,), removing_replicas=(1, 3))
    record = change(moving, rules(2))
    assert record == PartitionChangeRecord(
        0, TOPIC, leader=2, isr=(2,), elr=(), last_known_elr=(), replicas=(2,), removing_replicas=(),
        election_type=ElectionType.CLEAN,
    )  # fmt: skip


def test_an_election_in_the_change_that_empties_the_isr_completes_a_move_too() -> None:
    moving = partition((1,), 1, elr=(2,), removing_replicas=(1, 3))
    state = after(moving, rules(2), target_isr=(), leaves_in_order=True)
    assert (state.replicas, state.leader, state.isr, state.elr) == ((2,), 2, (2,), ())
    assert not state.is_reassigning


def test_an_election_from_the_elr_completes_no_move_that_waits_for_another() -> None:
    two_stay = partition((), -1, elr=(2, 1), adding_replicas=(3,), removing_replicas=(1,))
    elected = after(two_stay, rules(2))
    assert (elected.leader, elected.replicas, elected.elr) == (2, (1, 2, 3), (1,))
    goes = after(partition((), -1, elr=(2, 1), removing_replicas=(1, 3)), rules(1))
    assert (goes.leader, goes.replicas, goes.elr) == (1, (1, 2, 3), (2,))


def test_an_unclean_election_completes_no_move() -> None:
    moving = partition((), -1, elr=(1,), removing_replicas=(1, 3))
    state = after(moving, rules(2, unclean=True))
    assert (state.leader, state.replicas, state.removing_replicas) == (2, (1, 2, 3), (1, 3))


def test_who_restarted_uncleanly_is_remembered_not_eligible() -> None:
    state = after(partition((1, 2), 1, elr=(3,)), rules(2, 3, min_isr=3), target_isr=(2,), restarted_uncleanly=(1,))
    assert (state.isr, state.elr, state.last_known_elr, state.leader) == ((2,), (3,), (1,), 2)


def test_a_member_of_the_elr_alone_is_remembered_too() -> None:
    state = after(partition((), -1, elr=(1,)), rules(), restarted_uncleanly=(1,))
    assert (state.elr, state.last_known_elr, state.leader_epoch) == ((), (1,), 4)
    assert state.awaits_reports


def test_a_change_of_the_elr_alone_is_no_election() -> None:
    """KIP-966: nothing is led anew, so leader and followers go on; the partition epoch rises as with each change."""
    before = partition((1, 2), 1, elr=(3,))
    record = change(before, rules(1, 2, min_isr=3), restarted_uncleanly=(3,))
    assert record == PartitionChangeRecord(0, TOPIC, elr=(), last_known_elr=(3,))
    state = before.merge(record)
    assert (state.leader, state.isr, state.leader_epoch, state.partition_epoch) == (1, (1, 2), 4, 10)


def test_a_proven_isr_forgets_the_lost_ones_from_the_minimum_on() -> None:
    before = partition((1,), 1, last_known_elr=(2, 3))
    below = after(before, rules(1, 2, 3, min_isr=3), target_isr=(1, 2), isr_is_proven=True)
    assert below.last_known_elr == (3,)
    assert after(before, rules(1, 2, 3), target_isr=(1, 2), isr_is_proven=True).last_known_elr == ()
    assert after(before, rules(1, 2, 3), target_isr=(1, 2)).last_known_elr == (3,)


def test_unclean_only_when_allowed_and_nobody_else_may() -> None:
    before = partition((), -1, elr=(1,), last_known_elr=(3,))
    assert change(before, rules(2)) is None
    record = change(before, rules(2, unclean=True))
    assert record == PartitionChangeRecord(
        0,
        TOPIC,
        leader=2,
        isr=(2,),
        elr=(),
        last_known_elr=(),
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
        election_type=ElectionType.UNCLEAN,
    )
    assert after(before, rules(1, 2, unclean=True)).leader == 1


def test_recovered_takes_the_last_epoch_then_the_end_then_the_order_of_replicas() -> None:
    before = partition((), -1, last_known_elr=(3, 2, 1))

    def leader(*ends: tuple[int, int]) -> int | None:
        reports = {broker_id: ReplicaReport(0, *end) for broker_id, end in enumerate(ends, 1)}
        return recovered_change(TOPIC, 0, before, reports).leader

    assert leader((1, 50), (2, 10), (1, 90)) == 2
    assert leader((2, 50), (2, 10), (2, 90)) == 3
    assert leader((1, 50), (2, 90), (2, 90)) == 2
    assert leader((-1, 0), (-1, 0), (-1, 0)) == 1


def test_recovered_is_alone_in_the_isr_and_the_others_stay_remembered() -> None:
    before = partition((), -1, last_known_elr=(3, 1))
    reports = {1: ReplicaReport(0, 1, 5), 3: ReplicaReport(0, 1, 6)}
    record = recovered_change(TOPIC, 0, before, reports)
    assert (record.leader, record.isr, record.last_known_elr) == (3, (3,), (1,))
    assert record.election_type is ElectionType.RECOVERED
