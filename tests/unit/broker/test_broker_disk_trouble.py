"""Disks that fail or are full under a broker: what goes offline, what goes on, and what clients and the controller hear."""

from __future__ import annotations

import errno
from contextlib import AbstractAsyncContextManager
from uuid import UUID

import pytest
from broker_kit import DIRECTORY, KEY, TOPIC, TOPIC_ID, Rig, batch, registered, rig, topic, wait_until
from replica_kit import on_driver, stored

from replog.broker.replicas import log_keeper
from replog.broker.replicas.log_keeper import LogKeeper
from replog.controller.requests import OfflineReplica
from replog.errors import ErrorCode, StorageError
from replog.log import DiskState
from replog.log.repair.repair import repair_log
from replog.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from replog.records import encode_batch
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.messages import Appended, FetchAnswered
from replog.rpc.messages import EARLIEST_TIMESTAMP, ListOffsetsPartition
from replog.testing import Operation, SimulatedFileSystem

BROKERS = (registered(1), registered(2), registered(3))
OTHER = UUID(int=101)
OTHER_KEY = (OTHER, 0)
OFFLINE = OfflineReplica(TOPIC_ID, 0)
BOTH = (DIRECTORY, "/other")


def two_disks(fs: SimulatedFileSystem | None = None, **config: object) -> AbstractAsyncContextManager[Rig]:
    return rig(fs, log_dirs=list(BOTH), **config)


async def two_topics(it: Rig) -> None:
    """`flights` on the first disk, `other` on the second, both led here."""
    await it.apply(*BROKERS, *topic((1, 2)), *topic((1, 2), name="other", topic_id=OTHER))
    homes = [it.directory.home_of(name, 0) for name in (TOPIC, "other")]
    assert [home.path for home in homes if home is not None] == list(BOTH)


def keeper(it: Rig) -> LogKeeper:
    return LogKeeper(it.config, it.directory, it.stepper, it.manager.retry_roles, it.executor, it.failures.append)


async def test_a_failed_append_takes_its_disk_offline_and_no_other() -> None:
    async with two_disks() as it:
        await two_topics(it)
        it.told_offline.clear()
        waiting = it.produce()
        await it.settle()
        it.fs.faults.fail_next(Operation.WRITE, path_part=f"{TOPIC}-0/")
        assert (await it.produce(acks=1)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER, "who resigned acknowledges nothing any more"
        again = await it.produce(acks=1)
        assert again.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert "flights-0 is offline here" in again.message
        assert "/" not in again.message
        fetched = it.fetch(0)
        await it.settle()
        assert fetched.result.error is ErrorCode.KAFKA_STORAGE_ERROR
        asked = ListOffsetsPartition(TOPIC_ID, 0, EARLIEST_TIMESTAMP)
        listed = await it.stepper.driver.call(lambda: it.look_ups.list_offset(asked))
        assert listed.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert isinstance(it.stepper.replicas[OTHER_KEY].role, Leader)
        assert it.stepper.trouble.reported() == (OfflineReplica(TOPIC_ID, 0, is_intact=True),)
        assert it.told_offline
        status = next(status for status in it.manager.statuses() if status.topic == TOPIC)
        assert (status.state, status.is_leader) == ("offline", False)
        it.has_failed = True  # its directory is not closed in order


async def test_a_failed_fsync_takes_its_disk_offline() -> None:
    async with two_disks(flush_policy="always") as it:
        await two_topics(it)
        it.fs.faults.fail_next(Operation.SYNC, path_part=f"{TOPIC}-0/")
        waiting = it.produce()
        await wait_until(lambda: KEY in it.stepper.trouble.offline)
        assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert list(it.stepper.replicas) == [OTHER_KEY]
        it.has_failed = True


async def test_a_follower_of_a_failed_disk_fetches_no_more() -> None:
    async with two_disks() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2), *topic((1, 2), leader=2, name="other", topic_id=OTHER))
        assert isinstance(it.replica.role, Follower)
        await it.stepper.driver.call(lambda: it.stepper.trouble.directory_failed(DIRECTORY, StorageError("gone")))
        assert list(it.stepper.replicas) == [OTHER_KEY]
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        assert list(it.stepper.replicas) == [OTHER_KEY], "nor does it lead when the controller does not know yet"
        it.has_failed = True


async def test_without_its_last_disk_a_node_stops() -> None:
    async with two_disks() as it:
        await two_topics(it)
        it.fs.faults.fail_always(Operation.WRITE, path_part="-0/")
        assert (await it.produce(acks=1)).error is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(StorageError, match="the second"):
            await it.stepper.driver.call(
                lambda: it.stepper.trouble.storage_failed(it.stepper.replicas[OTHER_KEY], StorageError("the second"))
            )
        assert isinstance(await it.failure(), StorageError)
        it.fs.faults.clear()


@pytest.mark.parametrize(("position", "bit"), [(8, 7), (64, 0)], ids=["the length of the first batch", "its record"])
async def test_bytes_that_rot_take_one_replica_offline(position: int, bit: int) -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
        await it.committed(3)
        await it.flushed()
        it.replica.log.keep_tail(None)
        it.fs.flip_bit(f"{DIRECTORY}/{TOPIC}-0/{0:020d}.log", position, bit)
        fetched = it.fetch(0, max_wait_ms=0)
        await it.settle()
        assert fetched.result.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert list(it.stepper.replicas) == [OTHER_KEY]
        assert list(it.directory.offline) == [(TOPIC, 0)]


@pytest.mark.parametrize("min_bytes", [1, 1_000], ids=["woken", "out of time"])
async def test_a_waiting_fetch_that_cannot_be_answered_leaves_the_others_to_be(min_bytes: int) -> None:
    """All of them are due in one run of the driver; that of the damaged partition comes first."""
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)), *topic((1, 2), name="other", topic_id=OTHER))
        for replica in it.stepper.replicas.values():
            replica.log.append_as_leader(batch(), leader_epoch=0, now_ms=1)
            it.stepper.step_leader(replica, Appended(1))
        keys = (KEY, OTHER_KEY, KEY)
        waiting = [it.fetch(0, keys=(key,), min_bytes=min_bytes, max_wait_ms=500) for key in keys]
        await it.settle()
        is_woken = min_bytes == 1
        if not is_woken:
            it.fetch(1, replica_id=2, keys=(KEY, OTHER_KEY), max_wait_ms=0)  # all have something now, and too little
            await it.settle()
        assert all(fetched.is_parked for fetched in waiting)
        it.replica.log.keep_tail(None)
        it.fs.flip_bit(f"{DIRECTORY}/{TOPIC}-0/{0:020d}.log", 64, 0)
        if is_woken:
            it.fetch(1, replica_id=2, keys=(KEY, OTHER_KEY), max_wait_ms=0)
        await it.advance(0 if is_woken else 500)
        await wait_until(lambda: not any(fetched.is_parked for fetched in waiting))
        errors = [fetched.result.error for fetched in waiting]
        assert errors == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert waiting[1].size > 0
        assert list(it.stepper.replicas) == [OTHER_KEY]
        assert it.fetch_path.waiting_count == 0


async def damaged_follower(it: Rig) -> None:
    """Broker 1 led and followed broker 2 then; its first batch has rotted, and somebody has read it."""
    await it.apply(*BROKERS, *topic((1, 2)))
    for _ in range(3):
        await it.produce(acks=1)
    await it.flushed()
    it.replica.log.keep_tail(None)
    it.fs.flip_bit(f"{DIRECTORY}/{TOPIC}-0/{0:020d}.log", 8, 7)
    it.fetch(1, replica_id=2, max_wait_ms=0)
    await it.settle()
    assert it.stepper.trouble.reported() == (OFFLINE,)


async def controller_knows(it: Rig, metadata_offset: int) -> None:
    await it.stepper.driver.call(lambda: it.manager.controller_knows((OFFLINE,), metadata_offset))


async def test_a_damaged_replica_begins_anew_when_nobody_counts_on_it() -> None:
    async with rig() as it:
        await damaged_follower(it)
        await controller_knows(it, it.image.end_offset + 1)
        assert KEY in it.stepper.trouble.offline, "what the controller made of it has not arrived"
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2,)))
        assert isinstance(it.replica.role, Follower)
        assert it.replica.log.log_end_offset == 0
        strays = [name for name in it.fs.list_dir(DIRECTORY) if name.endswith("-stray")]
        assert len(strays) == 1, "what is left of it is kept"
        assert it.stepper.trouble.reported() == (OFFLINE,), "nobody may take it into the ISR for what it held"
        stored = encode_batch([(1, None, b"v", ())], base_offset=0, partition_leader_epoch=1)
        for fetched in (
            FetchAnswered(0, 1, ErrorCode.NONE, 0, 0, 1, len(stored)),
            FetchAnswered(1, 1, ErrorCode.NONE, 0, 0, 1, 0),
        ):
            assert it.stepper.trouble.reported() == (OFFLINE,)
            data = stored if fetched.size_bytes else b""
            await it.stepper.driver.call(lambda f=fetched, d=data: it.stepper.step_follower(it.replica, f, d))  # type: ignore[misc]
        assert it.replica.log.log_end_offset == 1
        assert it.stepper.trouble.reported() == ()


async def test_a_replica_that_was_fetched_anew_is_not_set_aside_for_what_its_leader_sends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was, again and again, and each time a copy was kept."""
    async with rig() as it:
        await damaged_follower(it)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2,)))
        await controller_knows(it, it.image.end_offset)

        async def fetched(offset: int, records_count: int) -> None:
            records = [(1, None, b"v", ())] * records_count
            data = encode_batch(records, base_offset=0, partition_leader_epoch=1)
            answer = FetchAnswered(offset, 1, ErrorCode.NONE, 9, 0, 9, len(data))
            await it.stepper.driver.call(lambda: it.stepper.step_follower(it.replica, answer, data))
            await it.advance(2_000)

        await fetched(0, 1)
        for _ in range(5):
            await fetched(1, 2)  # reaches over the end of the log
        assert it.stepper.trouble.offline == {}
        assert len([name for name in it.fs.list_dir(DIRECTORY) if name.endswith("-stray")]) == 1
        assert caplog.text.count("although all of this one was fetched anew") == 1


async def test_a_damaged_replica_that_cannot_be_set_aside_for_want_of_room_is_later() -> None:
    async with rig() as it:
        await damaged_follower(it)
        it.fs.faults.fail_next(Operation.RENAME, error_number=errno.ENOSPC, path_part=f"/{TOPIC}-0")
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2,)))
        await controller_knows(it, it.image.end_offset)
        assert KEY in it.stepper.trouble.offline
        await controller_knows(it, it.image.end_offset)
        assert isinstance(it.replica.role, Follower)


@pytest.mark.parametrize(
    "change",
    [
        PartitionChangeRecord(0, TOPIC_ID, leader=-1, isr=(), elr=(2,)),
        PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(1, 2)),
        PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2,), elr=(1,)),
        PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2, 3), replicas=(2, 3)),
    ],
    ids=["nobody leads", "in the ISR", "eligible", "not a replica any more"],
)
async def test_a_damaged_replica_that_counts_is_left_as_it_is(change: PartitionChangeRecord) -> None:
    async with rig() as it:
        await damaged_follower(it)
        await controller_knows(it, it.image.end_offset)
        await it.apply(change)
        assert not any(name.endswith("-stray") for name in it.fs.list_dir(DIRECTORY))
        assert KEY not in it.stepper.replicas


async def test_a_damaged_replica_of_which_the_controller_has_not_heard_is_left_as_it_is() -> None:
    async with rig() as it:
        await damaged_follower(it)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2,)))
        assert KEY in it.stepper.trouble.offline
        await controller_knows(it, it.image.end_offset)
        assert isinstance(it.replica.role, Follower)


async def test_a_replica_on_a_failed_disk_does_not_begin_anew() -> None:
    async with two_disks() as it:
        await two_topics(it)
        await it.stepper.driver.call(
            lambda: it.stepper.trouble.storage_failed(it.stepper.replicas[OTHER_KEY], StorageError("the disk"))
        )
        reported = it.stepper.trouble.reported()
        await it.stepper.driver.call(lambda: it.manager.controller_knows(reported, 0))
        await it.apply(PartitionChangeRecord(0, OTHER, leader=2, isr=(2,)))
        assert OTHER_KEY in it.stepper.trouble.offline
        it.has_failed = True


async def test_a_replica_that_cannot_be_opened_does_not_keep_the_broker_from_starting() -> None:
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
        await it.committed(3)
        await it.flushed()
        it.directory.checkpoint_recovery_points()
        fs.kill()
        it.has_failed = True
    fs.flip_bit(f"{DIRECTORY}/{TOPIC}-0/{0:020d}.log", 90)
    before = {path: data for path, data in fs.image().items() if f"/{TOPIC}-0" in path}
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
        assert list(it.stepper.replicas) == [OTHER_KEY]
        assert it.stepper.trouble.reported() == (OfflineReplica(TOPIC_ID, 0),)
        assert "Nothing was cut or deleted" in it.stepper.trouble.offline[KEY].reason
        assert (await it.produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert {path: data for path, data in fs.image().items() if f"/{TOPIC}-0" in path} == before
        await it.apply(RemoveTopicRecord(TOPIC_ID))
        await wait_until(lambda: not fs.is_dir(f"{DIRECTORY}/{TOPIC}-0"))
        assert it.stepper.trouble.reported() == ()
        await it.apply(*topic())
        assert (await it.produce()).base_offset == 0


# ---- replicas of which a repair gave records up ----------------------------------------------------------------------------

GAVE_UP = OfflineReplica(TOPIC_ID, 0, gave_up=True)


async def repaired(*, loses_folder: bool) -> SimulatedFileSystem:
    """A disk with one replica of six records, of which a repair has given up all but one or two, or everything."""
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(3)
        await it.flushed()
        it.directory.checkpoint_recovery_points()
        fs.kill()
        it.has_failed = True
    folder = f"{DIRECTORY}/{TOPIC}-0"
    if loses_folder:
        fs.remove_tree(folder)
    else:
        fs.flip_bit(f"{folder}/{0:020d}.log", 90)
    assert repair_log(fs, folder, accept_loss=True, now_ms=0).offsets_given_up
    return fs


@pytest.mark.parametrize("loses_folder", [False, True])
async def test_a_repaired_replica_takes_no_role_until_nobody_counts_on_it(*, loses_folder: bool) -> None:
    fs = await repaired(loses_folder=loses_folder)
    for _ in range(2):  # a stop in between changes nothing
        async with rig(fs) as it:
            await it.apply(*BROKERS, *topic((1, 2)))
            assert it.stepper.trouble.reported() == (GAVE_UP,)
            assert (await it.produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
            await controller_knows(it, it.image.end_offset)
            assert it.stepper.trouble.reported() == (GAVE_UP,), "it is in the ISR"
            await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2,), elr=(1,)))
            await controller_knows(it, it.image.end_offset)
            assert it.stepper.trouble.reported() == (GAVE_UP,), "it is eligible"
            await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=-1, isr=(), elr=(), last_known_elr=(1,)))
            await controller_knows(it, it.image.end_offset)
            assert it.stepper.trouble.reported() == (GAVE_UP,), "it is waited for"
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2,)))
        assert KEY in it.stepper.trouble.offline, "the controller has not said that it knows"
        await controller_knows(it, it.image.end_offset)
        assert isinstance(it.replica.role, Follower)
        assert it.replica.log.log_end_offset == 0, "what the repair has left may have a hole"
        assert not it.directory.gave_up(TOPIC, 0)
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        assert isinstance(it.replica.role, Leader), "what it fetched counts like any other's"


@pytest.mark.parametrize("loses_folder", [False, True])
async def test_what_a_deleted_topic_gave_up_does_not_meet_the_next_of_its_name(*, loses_folder: bool) -> None:
    fs = await repaired(loses_folder=loses_folder)
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        assert it.stepper.trouble.reported() == (GAVE_UP,)
        await it.apply(RemoveTopicRecord(TOPIC_ID))
        assert not it.directory.gave_up(TOPIC, 0)


@pytest.mark.parametrize("loses_folder", [False, True])
async def test_a_repaired_only_replica_leads_with_what_is_left(*, loses_folder: bool) -> None:
    fs = await repaired(loses_folder=loses_folder)
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic((1,)))
        assert it.stepper.trouble.reported() == ()
        assert (await it.produce()).error is ErrorCode.NONE
        assert not it.directory.gave_up(TOPIC, 0)


@pytest.mark.parametrize(
    ("error_number", "waiting"),
    [(errno.EIO, True), (errno.EMFILE, False)],  # no descriptor was left for a moment: it is removed at once after that
)
async def test_a_note_that_cannot_be_removed_keeps_the_replica_waiting(error_number: int, *, waiting: bool) -> None:
    fs = await repaired(loses_folder=False)
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2, isr=(2,)))
        fs.faults.fail_next(Operation.RENAME, path_part="given-up", error_number=error_number)
        await controller_knows(it, it.image.end_offset)
        assert it.stepper.trouble.reported() == (GAVE_UP if waiting else OfflineReplica(TOPIC_ID, 0),)
        assert it.directory.gave_up(TOPIC, 0) is waiting
        await controller_knows(it, it.image.end_offset)
        assert it.stepper.trouble.reported() == (OfflineReplica(TOPIC_ID, 0),), "it begins anew"
        assert not it.directory.gave_up(TOPIC, 0)


async def test_a_replica_of_a_disk_that_could_not_be_opened_is_not_created_elsewhere() -> None:
    fs = SimulatedFileSystem()
    async with two_disks(fs) as it:
        await two_topics(it)
        await it.produce(acks=1)
    fs.faults.fail_always(Operation.OPEN, path_part=f"{DIRECTORY}/meta.properties")
    async with two_disks(fs) as it:
        await it.apply(*BROKERS, *topic((1, 2)), *topic((1, 2), name="other", topic_id=OTHER))
        assert it.stepper.trouble.reported() == (OfflineReplica(TOPIC_ID, 0, is_intact=True),)
        await it.apply(*topic(name="new", topic_id=UUID(int=102)))
        assert (UUID(int=102), 0) in it.stepper.replicas, "what is new now cannot be on the other disk"
        assert not fs.is_dir(f"/other/{TOPIC}-0")


# ---- full disks ----------------------------------------------------------------------------------------------------------


async def test_a_follower_waits_for_room_and_goes_on() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        home = it.directory.directories[DIRECTORY]
        home.space.refuse()

        await on_driver(it, stored(0), high_watermark=1)
        assert it.replica.log.log_end_offset == 0
        assert "backing_off" in it.replica.status().state
        await keeper(it).check_disks()
        await it.advance(1_000)
        await on_driver(it, stored(0), high_watermark=1)
        assert it.replica.log.log_end_offset == 1


async def test_a_leader_without_room_for_its_epoch_leads_when_there_is_some() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        it.fs.faults.fail_always(Operation.WRITE, path_part="leader-epoch", error_number=errno.ENOSPC)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        assert it.replica.role is None
        refused = await it.produce()
        assert refused.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert "waits for room" in refused.message
        upkeep = keeper(it)
        await upkeep.check_disks()
        assert it.replica.role is None
        it.fs.faults.clear()
        await upkeep.check_disks()
        assert isinstance(it.replica.role, Leader)
        assert (await it.produce(acks=1)).base_offset == 0


async def test_a_leader_without_room_to_recover_at_the_start_leads_when_there_is_some() -> None:
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic())
        await it.committed(3)
        await it.flushed()
        it.directory.checkpoint_recovery_points()
        fs.kill()
        it.has_failed = True
    fs.remove(f"{DIRECTORY}/{TOPIC}-0/leader-epoch-checkpoint")
    fs.faults.fail_always(Operation.WRITE, path_part="leader-epoch", error_number=errno.ENOSPC)
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic())
        assert "waits for room" in (await it.produce()).message
        upkeep = keeper(it)
        await upkeep.check_disks()
        assert "waits for room" in (await it.produce()).message
        fs.faults.clear()
        await upkeep.check_disks()
        assert (await it.produce(acks=1)).base_offset == 3


async def test_states_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic())
        upkeep = keeper(it)
        space = it.directory.directories[DIRECTORY].space
        await upkeep.check_disks()
        assert "free" not in caplog.text
        space._configured = type(space.limits)(read_only_free_bytes=1 << 60)
        it.fs.capacity_bytes = it.fs.used_bytes()
        for _ in range(3):
            await upkeep.check_disks()
        assert space.state is DiskState.READ_ONLY
        assert caplog.text.count(f"{DIRECTORY} is read-only") == 1
        it.fs.capacity_bytes = None
        space._configured = type(space.limits)(0, 0, 0)
        await upkeep.check_disks()
        assert caplog.text.count("bytes free") == 2


# ---- upkeep --------------------------------------------------------------------------------------------------------------


async def test_upkeep_writes_every_checkpoint_beside_the_loop() -> None:
    async with two_disks() as it:
        await two_topics(it)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1,)))
        await it.committed(4)
        await it.flushed()
        upkeep = keeper(it)
        await upkeep.checkpoint_high_watermarks()
        await upkeep.checkpoint_recovery_points()
        await upkeep.checkpoint_log_start_offsets()
        image = it.fs.image()
        assert image[f"{DIRECTORY}/replication-offset-checkpoint"] == b"0\n1\nflights 0 4\n"
        assert image["/other/replication-offset-checkpoint"] == b"0\n1\nother 0 0\n"
        assert image[f"{DIRECTORY}/recovery-point-offset-checkpoint"] == b"0\n1\nflights 0 4\n"
        await upkeep.expire_producers()
        await upkeep.apply_retention()
        await upkeep.remove_deleted_files()


async def test_descriptors_are_bounded_and_no_unflushed_file_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
        await it.committed(2)
        await it.flushed()
        await it.produce(acks=1)
        log = it.replica.log
        upkeep = keeper(it)
        opened = len(it.fs._files)
        monkeypatch.setattr(log_keeper, "open_descriptors", lambda: 10**6)
        assert not log.release_files()
        await upkeep.bound_descriptors()
        await it.flushed()
        assert log.flushed_offset == 3, "flushed first"
        await upkeep.bound_descriptors()
        assert len(it.fs._files) < opened
        assert (await it.produce(acks=1)).base_offset == 3
        opened = len(it.fs._files)
        monkeypatch.setattr(log_keeper, "open_descriptors", lambda: 3)
        await upkeep.bound_descriptors()
        assert len(it.fs._files) == opened


async def test_a_checkpoint_that_fails_takes_its_directory_offline() -> None:
    async with two_disks() as it:
        await two_topics(it)
        it.fs.faults.fail_next(Operation.CREATE, path_part=f"{DIRECTORY}/replication-offset")
        await keeper(it).checkpoint_high_watermarks()
        assert list(it.stepper.replicas) == [OTHER_KEY]
        assert it.fs.exists("/other/replication-offset-checkpoint")
        it.has_failed = True


async def test_a_disk_that_is_unmounted_goes_offline() -> None:
    async with two_disks() as it:
        await two_topics(it)
        it.fs.rename(DIRECTORY, "/elsewhere")
        it.fs.make_dirs(DIRECTORY)
        await keeper(it).check_disks()
        assert list(it.stepper.replicas) == [OTHER_KEY]
        it.has_failed = True


async def test_a_deleted_topic_leaves_no_line_in_any_checkpoint() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
        await it.committed(1)
        await it.flushed()
        upkeep = keeper(it)
        await upkeep.checkpoint_high_watermarks()
        await upkeep.checkpoint_recovery_points()
        await it.apply(RemoveTopicRecord(TOPIC_ID))
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            assert b"flights" not in it.fs.image()[f"{DIRECTORY}/{name}"]
            assert b"other" in it.fs.image()[f"{DIRECTORY}/{name}"]


async def test_a_last_batch_of_an_epoch_that_is_yet_to_come_takes_its_replica_offline_and_not_the_node() -> None:
    """No checksum covers it: one bit would end the broker, with all it has, at each start."""
    fs, path = SimulatedFileSystem(), f"{DIRECTORY}/{TOPIC}-0/{0:020d}.log"
    async with rig(fs) as it:
        await it.apply(registered(1), registered(2), *topic((1, 2)))
        it.produce()
        await it.flushed()
    fs.flip_bit(path, 14, 1)
    async with rig(fs) as it:
        await it.apply(registered(1), registered(2), *topic((1, 2), leader_epoch=3))
        assert path in it.stepper.trouble.offline[KEY].reason
        assert it.stepper.replicas == {}
