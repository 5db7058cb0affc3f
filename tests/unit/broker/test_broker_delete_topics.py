"""Deleted topics on disks that fail or are full."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest
from broker_kit import TOPIC, TOPIC_ID, batch, registered, rig, topic, wait_until

from replog.broker.replicas import retirements
from replog.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from replog.replication.leader import Leader
from replog.testing import Operation, SimulatedFileSystem

BROKERS = (registered(1), registered(2))
BOTH = UUID(int=200)
OTHER = UUID(int=101)


async def test_a_deletion_on_a_failed_disk_leaves_the_other_disk_alone() -> None:
    fs = SimulatedFileSystem()
    async with rig(fs, log_dirs=["/data", "/other"]) as it:
        it.has_failed = True  # its directory is not closed in order
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
        partitions = [PartitionRecord(number, BOTH, (1,), (1,), 1, 0, 0) for number in (0, 1)]
        await it.apply(TopicRecord("both", BOTH), *partitions)
        failing = it.directory.home_of("both", 0)
        assert failing is not None
        assert failing.path == "/data"
        fs.faults.fail_always(Operation.RENAME, path_part="/data/both-0")
        await it.apply(RemoveTopicRecord(BOTH))
        assert failing.failure is not None
        assert it.directory.directories["/other"].failure is None
        assert list(it.stepper.replicas) == [(OTHER, 0)]
        assert isinstance(it.stepper.replicas[OTHER, 0].role, Leader)
        assert it.directory.home_of("both", 1) is None, "the replica on the other disk is deleted"


async def test_a_deletion_makes_room_where_not_even_a_checkpoint_finds_some() -> None:
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
        await it.stepper.driver.call(it.directory.checkpoint_recovery_points)
        await it.produce(batch(bytes(5000)), acks=1)
        fs.capacity_bytes = fs.used_bytes() + 10
        await it.apply(RemoveTopicRecord(TOPIC_ID))
        await wait_until(lambda: not [path for path in fs.image() if f"/{TOPIC}-0" in path and path.endswith(".log")])
        points = "/data/recovery-point-offset-checkpoint"
        await wait_until(lambda: TOPIC.encode() not in fs.image()[points])  # a start would take the line for a loss
        fs.capacity_bytes = None


async def test_a_deletion_for_whose_name_a_full_disk_has_no_room_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The node ended: its only disk counted as failed."""
    monkeypatch.setattr(retirements, "RETRY_S", 0.01)
    fs = SimulatedFileSystem()
    async with rig(fs) as it:
        await it.apply(*BROKERS, *topic(), *topic(name="other", topic_id=OTHER))
        for nth in (1, 2, 3):
            full = errno.EMFILE if nth == 2 else errno.ENOSPC
            fs.faults.fail_next(Operation.RENAME, nth=nth, error_number=full, path_part=f"/{TOPIC}-0")
        await it.apply(RemoveTopicRecord(TOPIC_ID))
        await wait_until(lambda: not [path for path in fs.image() if f"/{TOPIC}-0" in path])
        assert list(it.stepper.replicas) == [(OTHER, 0)]
        assert f"/data/{TOPIC}-0 is not out of the way" in caplog.text
        assert not fs.faults.is_failing
