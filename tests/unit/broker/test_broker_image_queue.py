"""Images of the metadata: applied in order, while the logs that they need are created in threads."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from broker_kit import DIRECTORY, KEY, TOPIC, TOPIC_ID, Rig, batch, registered, rig, topic, wait_until

from replog.broker.replicas.image_queue import CREATED_TOGETHER, TAKEN_TOGETHER, ImageQueue
from replog.broker.replicas.image_steps import LEADERS_TOGETHER
from replog.broker.replicas.logs import METADATA_TOPIC_ID
from replog.broker.replicas.stepper import REPLICAS_TOGETHER
from replog.errors import ErrorCode
from replog.log import Log, LogDirectory
from replog.metadata.delta import LocalPartition, MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.testing import SimulatedFileSystem
from replog_checkpoints import PartitionMetadata, uuid_to_text, write_partition_metadata

BROKERS = (registered(1), registered(2), registered(3))
OTHER = UUID(int=101)
OTHER_KEY = (OTHER, 0)


def never(_: UUID) -> bool:
    return False


def always(_: UUID) -> bool:
    return True


async def test_requests_wait_for_a_log_that_is_being_created() -> None:
    """Their clients know the topic already: told otherwise they would back off for many times as long as it takes."""
    async with rig() as it:
        await it.apply(*BROKERS)
        images = ImageQueue(it.manager, it.executor, lambda: None, it.failures.append, never, never)
        it.wait_for_image = images.run_later
        delta = MetadataDelta(it.image)
        for record in topic():
            delta.replay(record)
        images.submit(delta.apply(99, 1), delta.local_changes(1), ())
        assert KEY not in it.stepper.replicas
        fetched = it.fetch(0, max_wait_ms=0)
        in_order = [it.produce(batch(b"x", producer_id=7, base_sequence=number)) for number in range(3)]
        results = await asyncio.gather(*in_order)
        assert [(one.error, one.base_offset) for one in results] == [(ErrorCode.NONE, number) for number in range(3)]
        assert fetched.result.error is ErrorCode.NONE
        unknown = it.fetch(0, keys=(OTHER_KEY,))
        await it.settle()
        assert unknown.result.error is ErrorCode.UNKNOWN_TOPIC_ID  # no image waits any more
        await images.stop()


@dataclass
class Images:
    """A queue of images, with logs that are created when the test lets them."""

    it: Rig
    queue: ImageQueue
    gate: threading.Event
    image: MetadataImage
    applied: list[int] = field(default_factory=list)

    def submit(self, *records: MetadataRecord) -> int:
        """The end of the metadata with these records."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.end_offset + len(records), 1)
        self.queue.submit(self.image, delta.local_changes(1), tuple(delta.changed_brokers))
        return self.image.end_offset


@contextlib.asynccontextmanager
async def queued() -> AsyncIterator[Images]:
    class Gated(ThreadPoolExecutor):
        def submit(self, function, *args):  # type: ignore[no-untyped-def]
            return super().submit(lambda: (gate.wait(10), function(*args))[1])

    gate = threading.Event()
    with Gated(1) as executor:
        async with rig() as it:
            await it.apply(*BROKERS, *topic((1, 2)))
            it.manager.retirements._executor = executor
            queue = ImageQueue(
                it.manager,
                executor,
                lambda: images.applied.append(it.manager.applied_offset),
                it.failures.append,
                never,
                never,
            )
            it.wait_for_image = queue.run_later
            images = Images(it, queue, gate, it.image)
            try:
                yield images
            finally:
                gate.set()
                await queue.stop()


async def test_metadata_do_not_wait_for_logs_that_are_created() -> None:
    async with queued() as images:
        it = images.it
        created = images.submit(*topic(name="other", topic_id=OTHER))
        elected = images.submit(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        await it.settle()
        assert images.applied == [created, elected]
        assert isinstance(it.replica.role, Follower)
        waiting = it.fetch(0, keys=(OTHER_KEY,), max_wait_ms=0)
        await it.settle()
        assert OTHER_KEY not in it.stepper.replicas
        assert waiting.is_parked
        images.gate.set()
        await wait_until(lambda: not waiting.is_parked)
        assert waiting.result.error is ErrorCode.NONE
        assert isinstance(it.stepper.replicas[OTHER_KEY].role, Leader)


async def test_a_replica_gets_the_newest_role_when_its_log_is_there() -> None:
    async with queued() as images:
        it = images.it
        ends = [
            images.submit(*topic((1, 2), name="other", topic_id=OTHER)),
            images.submit(PartitionChangeRecord(0, OTHER, leader=2)),
            images.submit(PartitionChangeRecord(0, TOPIC_ID, leader=2)),
        ]
        await it.settle()
        assert images.applied == ends
        images.gate.set()
        await wait_until(lambda: OTHER_KEY in it.stepper.replicas)
        for key in (KEY, OTHER_KEY):
            role = it.stepper.replicas[key].role
            assert isinstance(role, Follower)
            assert role.leader_epoch == 1


async def test_logs_of_several_images_are_created_at_a_time_and_none_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    create = LogDirectory.create

    def noted(home, replicas, now_ms):  # type: ignore[no-untyped-def]
        threads.extend([threading.get_ident()] * len(replicas))
        return create(home, replicas, now_ms)

    monkeypatch.setattr(LogDirectory, "create", noted)
    async with queued() as images:
        threads.clear()
        ids = [UUID(int=number) for number in range(200, 204)]
        ends = [images.submit(*topic(name=f"t{number}", topic_id=one)) for number, one in enumerate(ids)]
        await wait_until(lambda: images.applied == ends)
        images.gate.set()
        await wait_until(lambda: len(images.it.stepper.replicas) == 5)
        assert len(threads) == 4
        assert threading.get_ident() not in threads
        assert set(images.it.directory._homes._creating.values()) == {0}


async def test_who_waits_for_room_does_not_touch_a_log_that_is_created() -> None:
    async with queued() as images:
        it = images.it
        images.submit(*topic(name="other", topic_id=OTHER))
        await it.settle()
        registration = it.stepper.image.partition(OTHER, 0)
        assert registration is not None
        it.stepper.trouble.waiting_for_room[OTHER_KEY] = LocalPartition("other", OTHER, 0, registration)
        await it.stepper.driver.call(images.queue.retry_roles)
        assert OTHER_KEY not in it.stepper.replicas
        images.gate.set()
        await wait_until(lambda: OTHER_KEY in it.stepper.replicas)
        replica = it.stepper.replicas[OTHER_KEY]
        assert replica.log is it.directory.logs["other", 0]


async def test_a_topic_that_is_deleted_while_it_is_created_leaves_nothing() -> None:
    async with queued() as images:
        images.submit(*topic(name="other", topic_id=OTHER))
        last = images.submit(RemoveTopicRecord(OTHER))
        await images.it.settle()
        images.gate.set()
        await wait_until(lambda: images.applied[-1] == last)
        assert list(images.it.stepper.replicas) == [KEY]
        assert images.it.directory.home_of("other", 0) is None


async def test_images_are_applied_in_order_while_logs_are_created_in_threads() -> None:
    async with rig() as it:
        applied: list[int] = []
        images = ImageQueue(
            it.manager,
            it.executor,
            lambda: applied.append(it.manager.applied_offset),
            it.failures.append,
            never,
            never,
        )
        image = it.image
        many = [PartitionRecord(number, TOPIC_ID, (1,), (1,), 1, 0, 0) for number in range(20)]
        for records in (BROKERS, (TopicRecord(TOPIC, TOPIC_ID), *many), topic(name="other", topic_id=OTHER)):
            delta = MetadataDelta(image)
            for record in records:
                delta.replay(record)
            image = delta.apply(image.end_offset + len(records), 1)
            images.submit(image, delta.local_changes(1), tuple(delta.changed_brokers))
        async with asyncio.timeout(60):
            while len(it.stepper.replicas) < 21:
                await asyncio.sleep(0.001)
        assert list(dict.fromkeys(applied)) == [3, 24, 26]
        assert len(it.stepper.replicas) == 21
        await images.stop()


MANY = 2 * REPLICAS_TOGETHER + 50


def many_partitions(leader: int = 1) -> tuple[MetadataRecord, ...]:
    replicas = (1, 2)
    made = [PartitionRecord(number, OTHER, replicas, replicas, leader, 0, 0) for number in range(MANY)]
    return (TopicRecord("other", OTHER), *made)


async def steps_until(images: Images, end_offset: int) -> int:
    """Steps of the driver until the image is applied; other work of the driver is done between two of them."""
    driver, steps = images.it.stepper.driver, 0
    while images.it.manager.applied_offset < end_offset:
        await driver.call(lambda: None)
        steps += 1
        assert steps < 1_000
    return steps


async def test_what_concerns_thousands_of_replicas_is_done_in_many_steps() -> None:
    """Deleted, elected, told of a broker, configured: produces, fetches and the controller have their turn in between."""
    async with queued() as images:
        images.gate.set()
        images.submit(*many_partitions())
        await wait_until(lambda: len(images.it.stepper.replicas) == MANY + 1)
        elected = images.submit(*(PartitionChangeRecord(number, OTHER, leader=2) for number in range(MANY)))
        assert await steps_until(images, elected) > 2
        back = images.submit(*(PartitionChangeRecord(number, OTHER, leader=1) for number in range(MANY)))
        assert await steps_until(images, back) > 2
        restarted = images.submit(registered(2, broker_epoch=900))
        assert await steps_until(images, restarted) > 2
        configured = images.submit(ConfigRecord(ResourceType.TOPIC, "other", "max.message.bytes", "5000"))
        assert await steps_until(images, configured) > 2
        assert {
            replica.max_message_bytes for replica in images.it.stepper.replicas.values() if replica.topic == "other"
        } == {5000}
        deleted = images.submit(RemoveTopicRecord(OTHER))
        assert await steps_until(images, deleted) > 2
        assert list(images.it.stepper.replicas) == [KEY]


async def most_together(images: Images, calls: list[object], end: Callable[[], bool]) -> int:
    """The largest number of `calls` that are made in one turn of the driver, until `end`."""
    driver, most, turns = images.it.stepper.driver, 0, 0
    while not end():
        before = len(calls)
        await driver.call(lambda: None)
        most = max(most, len(calls) - before)
        turns += 1
        assert turns < 10_000
    return most


async def test_few_replicas_begin_an_epoch_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes it to its disk first: a hundred together held the loop for most of a second."""
    async with queued() as images:
        images.gate.set()
        images.submit(*many_partitions(leader=2))
        manager = images.it.manager
        await wait_until(lambda: len(images.it.stepper.replicas) == MANY + 1)
        written: list[object] = []
        assign = Log.assign_epoch_start
        monkeypatch.setattr(Log, "assign_epoch_start", lambda log, epoch: (written.append(log), assign(log, epoch)))
        elected = images.submit(*(PartitionChangeRecord(number, OTHER, leader=1) for number in range(MANY)))
        assert await most_together(images, written, lambda: manager.applied_offset == elected) == LEADERS_TOGETHER
        assert len(written) == MANY
        shrunk = images.submit(*(PartitionChangeRecord(number, OTHER, isr=(1,)) for number in range(MANY)))
        assert await steps_until(images, shrunk) < MANY // LEADERS_TOGETHER  # nothing is written: large steps again
        assert len(written) == MANY


async def test_few_replicas_get_their_roles_in_one_step_after_their_logs_were_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with queued() as images:
        manager = images.it.manager
        images.submit(*many_partitions())
        await images.it.settle()
        taken: list[object] = []
        take = manager.take_role
        monkeypatch.setattr(manager, "take_role", lambda local, **kw: (taken.append(local), take(local, **kw)))
        told = len(images.applied)
        images.gate.set()
        assert await most_together(images, taken, lambda: len(taken) == MANY) == TAKEN_TOGETHER
        assert len(images.it.stepper.replicas) == MANY + 1
        threads_count = math.ceil(MANY / CREATED_TOGETHER)
        await wait_until(lambda: len(images.applied) == told + threads_count)  # told once of what each has created


async def test_the_controller_is_told_of_an_image_when_the_last_replica_has_changed() -> None:
    """A broker that has the lease again must not serve what it no longer leads."""
    async with queued() as images:
        images.gate.set()
        created = images.submit(*many_partitions())
        await wait_until(lambda: len(images.it.stepper.replicas) == MANY + 1)
        elected = images.submit(*(PartitionChangeRecord(number, OTHER, leader=2) for number in range(MANY)))
        seen: set[tuple[int, bool]] = set()
        replicas = images.it.stepper.replicas
        while images.it.manager.applied_offset < elected:
            seen.add((images.it.manager.applied_offset, isinstance(replicas[OTHER, MANY - 1].role, Leader)))
            await images.it.stepper.driver.call(lambda: None)
        assert seen == {(created, True)}
        assert isinstance(replicas[OTHER, MANY - 1].role, Follower)


async def test_a_topic_of_the_same_name_waits_for_the_folders_of_the_deleted_one() -> None:
    async with queued() as images:
        it, again = images.it, UUID(int=222)
        deleted = images.submit(RemoveTopicRecord(TOPIC_ID))
        created = images.submit(*topic((1, 2), topic_id=again))
        for _ in range(20):
            await it.settle()
        assert (it.stepper.replicas, images.applied) == ({}, [deleted]), "its folder has not got its new name"
        waiting = it.fetch(0, keys=((again, 0),), max_wait_ms=0)
        await it.settle()
        assert waiting.is_parked
        images.gate.set()
        await wait_until(lambda: (again, 0) in it.stepper.replicas)
        assert it.manager.applied_offset == created
        await wait_until(lambda: not waiting.is_parked)
        assert waiting.result.error is ErrorCode.NONE
        assert it.directory.topic_id(TOPIC, 0) == again
        await wait_until(lambda: not [name for name in it.fs.list_dir(DIRECTORY) if name.endswith("-delete")])


async def test_a_topic_that_is_deleted_and_created_again_in_one_image() -> None:
    async with queued() as images:
        images.gate.set()
        again = UUID(int=222)
        end_offset = images.submit(RemoveTopicRecord(TOPIC_ID), *topic((1, 2), topic_id=again))
        await wait_until(lambda: (again, 0) in images.it.stepper.replicas)
        assert images.applied[-1] == end_offset
        assert images.it.stepper.replicas[again, 0].log.log_end_offset == 0


async def test_a_deletion_that_a_stop_has_cut_off_goes_on_after_it() -> None:
    """The metadata log tells that the topic was deleted; a replica of which it tells nothing is set aside."""
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
    async with rig(fs) as it:
        queue = ImageQueue(
            it.manager, it.executor, lambda: None, it.failures.append, lambda topic_id: topic_id == OTHER, never
        )
        delta = MetadataDelta(it.image)
        for record in BROKERS:
            delta.replay(record)
        queue.submit(delta.apply(9, 1), delta.local_changes(1), ())
        await wait_until(lambda: it.manager.applied_offset == 9 and not it.manager.retirements.places)
        await wait_until(lambda: not [name for name in fs.list_dir(DIRECTORY) if "other" in name])
        assert [name.endswith("-stray") for name in fs.list_dir(DIRECTORY) if name.startswith(TOPIC)] == [True]
        await queue.stop()


@pytest.mark.parametrize(
    ("topic_id", "is_later"), [(UUID(int=102), never), (OTHER, always), (METADATA_TOPIC_ID, never)]
)
async def test_a_folder_with_the_id_of_a_topic_that_nobody_has_deleted_is_damaged(
    topic_id: UUID, is_later: Callable[[UUID], bool]
) -> None:
    """A digit has flipped, or the file is another's: an empty replica in its place would lead, and the others would follow it to nothing."""
    fs, path = SimulatedFileSystem(), f"{DIRECTORY}/{TOPIC}-0/partition.metadata"
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic())
    write_partition_metadata(fs, path, PartitionMetadata(topic_id))
    async with rig(fs) as it:
        queue = ImageQueue(it.manager, it.executor, lambda: None, it.failures.append, never, is_later)
        delta = MetadataDelta(it.image)
        for record in (*BROKERS, *topic(), *topic(name="other", topic_id=OTHER)):
            delta.replay(record)
        queue.submit(delta.apply(9, 1), delta.local_changes(1), ())
        await wait_until(lambda: it.manager.applied_offset == 9)
        await wait_until(lambda: list(it.stepper.replicas) == [OTHER_KEY])
        assert path in it.stepper.trouble.offline[TOPIC_ID, 0].reason
        assert fs.exists(path)
        await queue.stop()


async def test_the_folder_of_a_former_topic_makes_way_for_one_that_was_created_after_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A snapshot alone told of the deletion: the replica stayed offline until somebody moved the folder."""
    fs, again = SimulatedFileSystem(), UUID(int=222)
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic())
    async with rig(fs) as it:
        queue = ImageQueue(it.manager, it.executor, lambda: None, it.failures.append, never, always)
        delta = MetadataDelta(it.image)
        for record in (*BROKERS, *topic(topic_id=again)):
            delta.replay(record)
        queue.submit(delta.apply(9, 1), delta.local_changes(1), ())
        await wait_until(lambda: (again, 0) in it.stepper.replicas)
        assert it.stepper.trouble.offline == {}
        (kept,) = (name for name in fs.list_dir(DIRECTORY) if name.endswith("-stray"))
        assert f"has no such replica any more (of the topic with the id {uuid_to_text(TOPIC_ID)})" in caplog.text
        assert kept in caplog.text
        await queue.stop()


async def test_a_stop_between_two_steps_leaves_no_folder_that_nobody_names() -> None:
    """The replica has no checkpoint line any more: the next start would take its folder for a change of somebody's."""
    async with rig() as it:
        await it.apply(*BROKERS, *topic())
        delta = MetadataDelta(it.image)
        delta.replay(RemoveTopicRecord(TOPIC_ID))
        delta.apply(99, 1)
        steps = it.image_steps.delete(delta.local_changes(1).deletes)
        await it.stepper.driver.call(lambda: next(steps))
        assert it.fs.is_dir(f"{DIRECTORY}/{TOPIC}-0")
        await it.manager.retirements.stop()
        assert not it.fs.is_dir(f"{DIRECTORY}/{TOPIC}-0")
