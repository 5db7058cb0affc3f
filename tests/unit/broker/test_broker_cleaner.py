"""The cleaner of a broker: which log it takes, what it leaves alone, and that a damaged one stops nobody else."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from broker_kit import DIRECTORY, KEY, TOPIC, Rig, registered, rig, topic

import replog_checkpoints as checkpoints
from replog.broker.replicas.cleaner import LogCleaner
from replog.metadata.records import ConfigRecord, MetadataRecord, ResourceType
from replog.records import decode_records, encode_batch, scan
from replog.testing import Operation

OTHER = UUID(int=101)


def setting(name: str, value: str, *, of: str = TOPIC) -> MetadataRecord:
    return ConfigRecord(ResourceType.TOPIC, of, name, value)


def cleaner(it: Rig) -> LogCleaner:
    return LogCleaner(it.config, it.directory, it.stepper, it.failures.append)


async def compacted_topic(it: Rig, *records: MetadataRecord) -> None:
    await it.apply(registered(1), *topic(), setting("cleanup.policy", "compact"), *records)


async def write(it: Rig, *pairs: tuple[bytes, bytes | None]) -> None:
    result = await it.produce(encode_batch([(1, key, value, ()) for key, value in pairs]))
    assert result.error == 0, result


async def seal(it: Rig) -> None:
    await it.stepper.driver.call(lambda: it.replica.log.roll(it.clock.wall_ms()))
    await it.flusher.flush(it.replica.log)
    await it.settle()


def left(it: Rig) -> list[tuple[int, bytes | None]]:
    log = it.replica.log
    data = b""
    while part := log.read(_end(data), max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True):
        data += part
    return [(record.offset, record.value) for record in decode_records(data)]


def _end(data: bytes) -> int:
    return max((header.next_offset for header in scan(data)), default=0)


async def test_a_pass_compacts_and_checkpoints() -> None:
    async with rig() as it:
        await compacted_topic(it)
        await write(it, (b"a", b"1"), (b"b", b"1"))
        await write(it, (b"a", b"2"))
        await seal(it)
        one = cleaner(it)
        assert await one.clean_dirtiest()
        assert left(it) == [(1, b"1"), (2, b"2")]
        path = f"{DIRECTORY}/{checkpoints.CLEANER_OFFSET_FILE}"
        assert checkpoints.read_offset_checkpoint(it.fs, path) == {(TOPIC, 0): 3}
        assert not await one.clean_dirtiest()
        await one.stop()


async def test_topics_that_only_delete_are_left_alone() -> None:
    async with rig() as it:
        await it.apply(registered(1), *topic())
        await write(it, (b"a", b"1"))
        await write(it, (b"a", b"2"))
        await seal(it)
        one = cleaner(it)
        assert not await one.clean_dirtiest()
        await one.stop()


async def test_quiet_logs_are_rolled_before_the_lag_is_over() -> None:
    async with rig() as it:
        await compacted_topic(it, setting("max.compaction.lag.ms", "1000"))
        await write(it, (b"a", b"1"))
        await write(it, (b"a", b"2"))
        one = cleaner(it)
        assert await one.clean_dirtiest()  # the records are of 1970
        assert it.replica.log.segment_base_offsets == [0, 2]
        assert left(it) == [(1, b"2")]
        await it.flushed()
        await one.stop()


async def test_damage_is_noted_once_and_others_are_compacted(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as it:
        await compacted_topic(
            it, *topic(name="other", topic_id=OTHER), setting("cleanup.policy", "compact", of="other")
        )
        await write(it, (b"a", b"1"))
        await write(it, (b"a", b"2"))
        await seal(it)
        it.fs.flip_bit(f"{it.replica.log.directory}/{0:020d}.log", 65)
        one = cleaner(it)
        with caplog.at_level(logging.ERROR):
            assert not await one.clean_dirtiest()
        assert list(one.uncleanable) == [KEY]
        assert "flights-0: is not compacted until the broker restarts" in caplog.text
        assert not await one.clean_dirtiest()
        assert not it.replica.log.failed
        other = it.stepper.replicas[OTHER, 0].log
        for value in (b"1", b"2"):
            data = encode_batch([(1, b"a", value, ())])
            await it.stepper.driver.call(
                lambda data=data: other.append_as_leader(data, leader_epoch=0, now_ms=it.clock.wall_ms())
            )
        await it.stepper.driver.call(lambda: other.roll(it.clock.wall_ms()))
        await it.flusher.flush(other)
        it.stepper.replicas[OTHER, 0].role = None
        it.stepper.replicas[OTHER, 0].checkpointed_high_watermark = 2
        assert await one.clean_dirtiest()
        await one.stop()


async def test_a_full_disk_is_waited_for() -> None:
    async with rig() as it:
        await compacted_topic(it)
        await write(it, (b"a", b"1"))
        await write(it, (b"a", b"2"))
        await seal(it)
        it.fs.capacity_bytes = it.fs.used_bytes()
        one = cleaner(it)
        assert not await one.clean_dirtiest()
        assert not one.uncleanable
        it.fs.capacity_bytes = None
        assert await one.clean_dirtiest()
        await one.stop()


async def test_a_failed_fsync_takes_the_disk_offline() -> None:
    async with rig(log_dirs=[DIRECTORY, "/other"]) as it:
        await compacted_topic(it)
        await write(it, (b"a", b"1"))
        await write(it, (b"a", b"2"))
        await seal(it)
        it.fs.faults.fail_next(Operation.SYNC, path_part=".cleaned")
        one = cleaner(it)
        assert not await one.clean_dirtiest()
        await it.settle()
        assert KEY in it.stepper.trouble.offline
        it.has_failed = True
        await one.stop()


async def test_stopping_ends_what_runs() -> None:
    async with rig(log_cleaner_io_max_bytes_per_second=1024, log_cleaner_backoff_ms=1) as it:
        await compacted_topic(it)
        for number in range(40):
            await write(it, (b"a", b"%d" % number))
        await seal(it)
        one = cleaner(it)
        one.start()
        await it.settle()
        await one.stop()
        names = it.fs.list_dir(it.replica.log.directory)
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        assert len(left(it)) in {1, 40}
