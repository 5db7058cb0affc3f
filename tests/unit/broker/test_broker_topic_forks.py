"""Replicas of forks on one broker: made of the source beside them, or never taken for ones that have its records."""

from __future__ import annotations

from uuid import UUID

import pytest
from broker_kit import DIRECTORY, TOPIC_ID, Rig, registered, rig, topic, wait_until

from replog.broker.replicas.image_queue import ImageQueue
from replog.controller.requests import OfflineReplica
from replog.metadata.delta import MetadataDelta
from replog.metadata.records import MetadataRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.testing import SimulatedFileSystem

BROKERS = (registered(1), registered(2), registered(3))
COPY_ID = UUID(int=101)
KEY = (COPY_ID, 0)
OFFLINE = OfflineReplica(*KEY)


def copy(end_offset: int, *, leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> tuple[MetadataRecord, ...]:
    partition = PartitionRecord(
        0, COPY_ID, (1, 2), isr, leader, 1, 0, forked_topic_id=TOPIC_ID, forked_end_offset=end_offset
    )
    return TopicRecord("try", COPY_ID), partition


async def publish(it: Rig, images: ImageQueue, *records: MetadataRecord) -> None:
    delta = MetadataDelta(it.image)
    for record in records:
        delta.replay(record)
    it.image = delta.apply(it.image.end_offset + len(records), 1)
    images.submit(it.image, delta.local_changes(1), ())


def queue(it: Rig) -> ImageQueue:
    return ImageQueue(it.manager, it.executor, lambda: None, it.failures.append, lambda _: False, lambda _: False)


async def three_records(it: Rig) -> ImageQueue:
    images = queue(it)
    await it.apply(*BROKERS, *topic((1,)))
    await it.committed(3)
    return images


async def test_a_fork_is_led_with_the_records_and_its_own_epoch() -> None:
    async with rig() as it:
        images = await three_records(it)
        await publish(it, images, *copy(2))
        await wait_until(lambda: KEY in it.stepper.replicas)
        replica = it.stepper.replicas[KEY]
        assert isinstance(replica.role, Leader)
        assert (replica.log.log_end_offset, replica.log.leader_epochs.entries) == (2, [(0, 0), (1, 2)])
        assert it.stepper.trouble.reported() == ()
        await images.stop()


@pytest.mark.parametrize("end_offset", [4, 3])
async def test_a_member_that_lacks_records_is_offline_until_nobody_counts_on_it(end_offset: int) -> None:
    """The source ends too early, or was deleted together with the creation of the copy."""
    async with rig() as it:
        images = await three_records(it)
        if end_offset == 3:
            await it.apply(*copy(3, leader=2))  # by a way that makes no forks
        else:
            await publish(it, images, *copy(4, leader=2))
        await wait_until(lambda: it.stepper.trouble.reported() == (OFFLINE,))
        assert not it.fs.exists(f"{DIRECTORY}/try-0")
        assert not [name for name in it.fs.list_dir(DIRECTORY) if name.endswith("-delete")]
        await it.apply(PartitionChangeRecord(0, COPY_ID, leader=2, isr=(2,)))
        assert KEY not in it.stepper.replicas
        await it.stepper.driver.call(lambda: it.manager.controller_knows((OFFLINE,), it.image.end_offset))
        replica = it.stepper.replicas[KEY]
        assert isinstance(replica.role, Follower)
        assert replica.log.log_end_offset == 0
        assert it.stepper.trouble.reported() == (OFFLINE,), "nobody may take it into the ISR for what it was to hold"
        await images.stop()


async def test_a_replica_that_is_not_counted_on_begins_with_what_there_is() -> None:
    async with rig() as it:
        images = await three_records(it)
        await publish(it, images, *copy(4, leader=2, isr=(2,)))
        await wait_until(lambda: KEY in it.stepper.replicas)
        assert it.stepper.replicas[KEY].log.log_end_offset == 3
        assert it.stepper.trouble.reported() == ()
        await images.stop()


async def test_a_fork_that_was_not_made_before_a_restart_is_made_after_it() -> None:
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await three_records(it)
        image = it.image
    async with rig(fs) as it:
        images = queue(it)
        it.image = image
        before = MetadataDelta(image)
        for record in copy(3):
            before.replay(record)
        it.image = before.apply(image.end_offset + 2, 1)
        images.submit(it.image, MetadataDelta.between(type(image)(), it.image).local_changes(1), ())
        await wait_until(lambda: KEY in it.stepper.replicas)
        assert it.stepper.replicas[KEY].log.log_end_offset == 3
        await images.stop()
