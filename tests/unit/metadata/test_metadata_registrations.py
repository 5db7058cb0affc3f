"""The one place of the rule how a change alters a partition or a broker."""

from __future__ import annotations

import gc
from uuid import UUID

import pytest
from msgspec.structs import replace

from replog.errors import InvariantViolationError
from replog.metadata import BrokerRegistration, PartitionRegistration
from replog.metadata.records import (
    CLIENT_LISTENER,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    LeaderRecoveryState,
    PartitionChangeRecord,
)

TOPIC = UUID(int=1)
PARTITION = PartitionRegistration(replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=9, elr=(3,))
BROKER = BrokerRegistration(1, UUID(int=2), 7, "localhost", 9001, (UUID(int=3),), fenced=False)


def change(**fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(0, TOPIC, **fields)  # type: ignore[arg-type]


def test_a_change_without_leader_keeps_the_leader_epoch() -> None:
    after = PARTITION.merge(change(isr=(1,)))
    assert (after.isr, after.leader_epoch, after.partition_epoch) == ((1,), 4, 10)
    assert (after.elr, after.leader, after.replicas) == ((3,), 1, (1, 2, 3))


def test_a_leader_that_is_set_raises_the_leader_epoch_even_to_the_same_broker() -> None:
    assert PARTITION.merge(change(leader=1)).leader_epoch == 5
    assert PARTITION.merge(change(leader=-1)).leader_epoch == 5


def test_empty_is_a_value_none_is_not() -> None:
    after = PARTITION.merge(change(isr=(), elr=(), last_known_elr=(1,), leader=-1))
    assert (after.isr, after.elr, after.last_known_elr) == ((), (), (1,))
    assert after.awaits_reports


def test_recovery_state_can_go_back() -> None:
    recovering = PARTITION.merge(change(leader_recovery_state=LeaderRecoveryState.RECOVERING))
    recovered = recovering.merge(change(leader_recovery_state=LeaderRecoveryState.RECOVERED))
    assert recovering.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert recovered.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_partition_with_somebody_to_wait_for_asks_for_no_reports() -> None:
    nobody = PARTITION.merge(change(isr=(), elr=(), last_known_elr=(1, 2), leader=-1))
    assert nobody.awaits_reports
    assert not nobody.merge(change(elr=(3,))).awaits_reports
    assert not nobody.merge(change(isr=(1,), leader=1)).awaits_reports


def test_broker_changes() -> None:
    assert BROKER.is_active
    assert not BROKER.merge(BrokerRegistrationChangeRecord(1, 7, fenced=True)).is_active
    shutting_down = BROKER.merge(BrokerRegistrationChangeRecord(1, 7, in_controlled_shutdown=True))
    assert (shutting_down.fenced, shutting_down.is_active) == (False, False)
    with pytest.raises(InvariantViolationError):
        BROKER.merge(BrokerRegistrationChangeRecord(1, 6, fenced=True))


def test_endpoints_are_told_later_and_change_nothing_else() -> None:
    kafka, other = BrokerEndpoint(CLIENT_LISTENER, "localhost", 9), BrokerEndpoint("OTHER", "localhost", 8)
    assert BROKER.endpoint(CLIENT_LISTENER) is None
    told = BROKER.merge(BrokerRegistrationChangeRecord(1, 7, endpoints=(other, kafka)))
    assert told.endpoint(CLIENT_LISTENER) == kafka
    assert replace(told, endpoints=()) == BROKER
    assert told.merge(BrokerRegistrationChangeRecord(1, 7, fenced=True)).endpoints == (other, kafka)


@pytest.mark.parametrize("made", [PARTITION, change(isr=(1,)), BROKER])
def test_metadata_are_no_work_for_the_garbage_collector(made: object) -> None:
    """Trap: 50,000 partitions were 75 ms of each full pass, which holds the loop; they refer to nothing that refers back."""
    assert not gc.is_tracked(made)
