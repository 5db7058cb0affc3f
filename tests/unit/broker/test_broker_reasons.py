"""What a broker logs about elections, changes of the ISR and truncations: once each, and with the reason."""

from __future__ import annotations

import logging

import pytest
from broker_kit import KEY, TOPIC_ID, Rig, registered, rig, topic

from replog.broker.replicas.partition_events import IsrChanges
from replog.broker.replicas.replica_manager import election_reason
from replog.controller.requests import PartitionIsrResult
from replog.errors import ErrorCode
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import (
    BrokerRegistrationChangeRecord,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
)
from replog.metadata.registrations import PartitionRegistration
from replog.records import encode_batch
from replog.replication.follower import Follower
from replog.replication.messages import EpochEnd, FetchAnswered, IsrChanged

BROKERS = (registered(1), registered(2), registered(3))
LED_BY_2 = PartitionRegistration((1, 2, 3), (1, 2, 3), leader=2, leader_epoch=4, partition_epoch=9)
LED_BY_1 = PartitionRegistration((1, 2, 3), (1, 3), leader=1, leader_epoch=5, partition_epoch=10)


def image(*records: MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    return delta.apply(len(records), 1)


@pytest.mark.parametrize(
    ("before", "now", "brokers", "words"),
    [
        (None, LED_BY_1, image(*BROKERS), "as this broker opens its replica"),
        (LED_BY_2, LED_BY_1, image(registered(1), registered(2, fenced=True)), "broker 2 is fenced"),
        (LED_BY_2, LED_BY_1, image(registered(1)), "broker 2 is not registered any more"),
        (LED_BY_2, LED_BY_1, image(*BROKERS), "broker 2 is out of the ISR"),
        (
            LED_BY_2,
            LED_BY_1,
            image(*BROKERS, BrokerRegistrationChangeRecord(2, 102, in_controlled_shutdown=True)),
            "broker 2 is shutting down",
        ),
        (LED_BY_2, LED_BY_2.merge(PartitionChangeRecord(0, TOPIC_ID, leader=1)), image(*BROKERS), "broker 2 gave it up"),
        (LED_BY_1, LED_BY_1.merge(PartitionChangeRecord(0, TOPIC_ID, leader=1)), image(*BROKERS), "broker 1 was elected again"),
        (LED_BY_1.merge(PartitionChangeRecord(0, TOPIC_ID, leader=-1)), LED_BY_1, image(*BROKERS), "there was no leader"),
        (
            LED_BY_2,
            LED_BY_1.merge(
                PartitionChangeRecord(0, TOPIC_ID, leader=1, leader_recovery_state=LeaderRecoveryState.RECOVERING)
            ),
            image(*BROKERS),
            "elected uncleanly, acknowledged records may be lost",
        ),
    ],
)  # fmt: skip
def test_why_there_is_another_leader(
    before: PartitionRegistration | None, now: PartitionRegistration, brokers: MetadataImage, words: str
) -> None:
    assert election_reason(before, now, brokers) == words


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged since this was asked last."""
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    caplog.clear()
    return found


async def test_elections_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.broker")
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2, 3)))
        (line,) = lines(caplog)
        assert line == "flights-0: leads in epoch 0 from offset 0, ISR [1, 2, 3]: as this broker opens its replica"
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        assert lines(caplog) == ["flights-0: follows broker 2 in epoch 1: broker 1 gave it up"]
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=-1), registered(2, broker_epoch=202, fenced=True))
        assert lines(caplog) == ["flights-0: has no leader in epoch 2: broker 2 is fenced"]
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1,)))
        assert lines(caplog) == []
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        assert lines(caplog) == ["flights-0: leads in epoch 3 from offset 0, ISR [1]: there was no leader"]
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        assert lines(caplog) == ["flights-0: leads on in epoch 4: broker 1 was elected again"]


async def test_a_change_of_the_isr_is_logged_when_it_is_committed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.broker")
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2, 3)))
        it.produce()
        await it.settle()
        lines(caplog)
        await it.advance(10_001)
        (proposal,) = it.proposals
        assert lines(caplog) == [], "proposed, not committed"
        await answered(it, proposal.proposal_id, (1,))
        assert lines(caplog) == [], "a smaller one is in force when the metadata has it"
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1,)))
        (line,) = lines(caplog)
        assert line == "flights-0: ISR [1], was [1, 2, 3]: replicas [2, 3] have not caught up in time"
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1, 2)))
        assert lines(caplog) == ["flights-0: ISR [1, 2], was [1]: decided by the controller"]
        assert (it.stepper.isr_changes.shrinks, it.stepper.isr_changes.expands) == (1, 1)


async def answered(it: Rig, proposal_id: int, isr: tuple[int, ...]) -> None:
    result = PartitionIsrResult(*KEY, ErrorCode.NONE, 1, 0, 1, isr)
    await it.stepper.driver.call(lambda: it.stepper.handle_isr_answer(KEY, proposal_id, result))


def test_a_swap_is_both() -> None:
    changes = IsrChanges()
    changes.note("t-0", IsrChanged((1, 2), (1, 3), "moved"))
    assert (changes.shrinks, changes.expands) == (1, 1)


async def test_a_truncation_names_its_reason_and_the_partition_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.broker")
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        await it.stepper.driver.call(lambda: follow(it))
        (line,) = [line for line in lines(caplog) if "truncated" in line]
        assert line == "flights-0: truncated from 3 to 1: epoch 0 ends at 1 on leader 2, at 3 here"


def follow(it: Rig) -> None:
    """Three records, of which the leader has one."""
    data = encode_batch([(1, None, b"v", ())], partition_leader_epoch=0)
    for offset in range(3):
        batch = encode_batch([(1, None, b"v", ())], base_offset=offset, partition_leader_epoch=0)
        step(it, len(data), batch)
    step(it, 0, b"", diverging=EpochEnd(0, 1))


def step(it: Rig, size: int, data: bytes, diverging: EpochEnd | None = None) -> None:
    role = it.replica.role
    assert isinstance(role, Follower)
    position = role.fetch_position(it.clock.now_ms())
    assert position is not None
    message = FetchAnswered(
        position.fetch_offset, position.leader_epoch, ErrorCode.NONE, 0, 0, 10, size, diverging=diverging
    )
    it.stepper.step_follower(it.replica, message, data)
