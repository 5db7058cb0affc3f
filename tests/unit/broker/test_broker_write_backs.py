"""Produces that come together, a disk that is behind, and flushes beside the way of an acknowledgement."""

from __future__ import annotations

import asyncio
import threading

from broker_kit import KEY, TOPIC, Rig, batch, registered, rig, topic, wait_until

from replog.errors import ErrorCode
from replog.log.dirty_window import BEHIND_WINDOWS
from replog.metadata.config_keys import FlushPolicy
from replog.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord, ResourceType
from replog.testing import Operation, SimulatedFileSystem

WINDOW = 64 * 1024
DATA = batch(b"x" * 16_000)


class SlowDisk(SimulatedFileSystem):
    """Write-backs wait for the test; writes of record files are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.write_backs = 0
        self.writes = 0

    def wait_write_back(self, file: object, position: int, length: int) -> None:
        self.write_backs += 1
        self.gate.wait(5)
        super().wait_write_back(file, position, length)  # type: ignore[arg-type]

    def write_file_bytes(self, file: object, data: bytes, position: int) -> None:
        self.writes += ".log" in file.path and TOPIC in file.path  # type: ignore[attr-defined]
        super().write_file_bytes(file, data, position)  # type: ignore[arg-type]


async def lead(it: Rig) -> SlowDisk:
    assert isinstance(it.fs, SlowDisk)
    await it.apply(registered(1), registered(2), *topic((1,)))
    return it.fs


async def test_produces_that_come_together_are_one_write() -> None:
    async with rig(SlowDisk()) as it:
        fs = await lead(it)
        await it.committed(1)
        fs.writes = 0
        results = await asyncio.gather(*[it.produce() for _ in range(20)], it.produce(b"no batch"))
        assert fs.writes == 1
        assert [result.base_offset for result in results[:20]] == list(range(1, 21))
        assert results[20].error is ErrorCode.CORRUPT_MESSAGE


async def test_a_repeat_among_them_gets_the_original() -> None:
    async with rig(SlowDisk()) as it:
        await lead(it)
        first, repeat, second = await asyncio.gather(
            it.produce(batch(b"a", producer_id=7, base_sequence=0)),
            it.produce(batch(b"a", producer_id=7, base_sequence=0)),
            it.produce(batch(b"b", producer_id=7, base_sequence=1)),
        )
        assert [first.base_offset, repeat.base_offset, second.base_offset] == [0, 0, 1]
        assert it.replica.log.log_end_offset == 2


async def test_the_window_is_written_back_beside_the_appends() -> None:
    async with rig(SlowDisk(), log_dirty_window_bytes=WINDOW, flush_policy="os") as it:
        fs = await lead(it)
        for _ in range(40):
            await it.produce(DATA)
        await wait_until(lambda: fs.write_backs >= 2)
        await wait_until(lambda: it.replica.log.dirty_bytes < 2 * WINDOW)
        assert it.replica.log.flushed_offset == 0


async def fall_behind(it: Rig, fs: SlowDisk) -> asyncio.Future[object]:
    """Appends until the disk is so far behind that a produce is held back."""
    fs.gate.clear()
    while not it.replica.log.is_behind_write_back:
        await it.produce(DATA)
    held = it.produce(DATA)
    await it.settle()
    assert not held.done()
    assert it.replica.log.dirty_bytes < (BEHIND_WINDOWS + 1) * WINDOW
    return held  # type: ignore[return-value]


async def test_producers_wait_while_the_disk_is_behind_and_keep_their_order() -> None:
    async with rig(SlowDisk(), log_dirty_window_bytes=WINDOW, flush_policy="os") as it:
        fs = await lead(it)
        held = await fall_behind(it, fs)
        later = it.produce(batch(b"small"))
        await it.settle()
        end_offset = it.replica.log.log_end_offset
        assert not later.done()
        fs.gate.set()
        assert (await held).base_offset == end_offset  # type: ignore[attr-defined]
        assert (await later).base_offset == end_offset + 1


async def test_who_is_held_back_hears_that_leadership_is_lost() -> None:
    async with rig(SlowDisk(), log_dirty_window_bytes=WINDOW, flush_policy="os") as it:
        fs = await lead(it)
        held = await fall_behind(it, fs)
        await it.apply(PartitionChangeRecord(0, KEY[0], replicas=(1, 2), isr=(2,), leader=2))
        fs.gate.set()
        assert (await held).error is ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[attr-defined]


async def test_what_is_held_back_is_not_appended_without_the_lease() -> None:
    async with rig(SlowDisk(), log_dirty_window_bytes=WINDOW, flush_policy="os") as it:
        fs = await lead(it)
        held = await fall_behind(it, fs)
        end_offset = it.replica.log.log_end_offset
        it.refused = "cut off from the controller"
        fs.gate.set()
        assert (await held).error is ErrorCode.BROKER_NOT_AVAILABLE  # type: ignore[attr-defined]
        assert it.replica.log.log_end_offset == end_offset


async def test_who_is_held_back_hears_that_the_topic_is_gone() -> None:
    async with rig(SlowDisk(), log_dirty_window_bytes=WINDOW, flush_policy="os") as it:
        fs = await lead(it)
        held = await fall_behind(it, fs)
        await it.apply(RemoveTopicRecord(KEY[0]))
        fs.gate.set()
        assert (await held).error is ErrorCode.UNKNOWN_TOPIC_ID  # type: ignore[attr-defined]


async def test_a_failed_write_back_is_a_failed_disk() -> None:
    async with rig(SlowDisk(), log_dirty_window_bytes=WINDOW, flush_policy="os") as it:
        fs = await lead(it)
        fs.faults.fail_next(Operation.WRITE_BACK)
        for _ in range(WINDOW // len(DATA) + 1):
            it.produce(DATA, acks=1)
        assert "nothing more is appended" in str(await it.failure())


async def test_stopping_waits_for_a_write_back_and_leaves_nothing_open() -> None:
    fs = SlowDisk()
    async with rig(fs, log_dirty_window_bytes=WINDOW, flush_policy="os") as it:
        await lead(it)
        fs.gate.clear()
        for _ in range(WINDOW // len(DATA) + 1):
            await it.produce(DATA)
        await wait_until(lambda: fs.write_backs)
        asyncio.get_running_loop().call_later(0.01, fs.gate.set)
    assert not fs._files


# Flushes


async def test_flush_messages_of_a_topic() -> None:
    async with rig(flush_policy="os") as it:
        await it.apply(registered(1), *topic((1,)))
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "flush.messages", "3"))
        await it.committed(2)
        await it.flushed()
        assert it.replica.log.flushed_offset == 0
        await it.committed(1)
        await it.flushed()
        assert it.replica.log.flushed_offset == 3


async def test_flush_ms_of_a_topic() -> None:
    async with rig(flush_policy="os") as it:
        await it.apply(registered(1), *topic((1,)))
        await it.committed(2)
        shortest_ms = it.stepper.flushes.request_due([it.replica])
        await it.flushed()
        assert it.replica.log.flushed_offset == 0
        assert it.stepper.flushes.check_interval_ms(shortest_ms) == 1000
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "flush.ms", "500"))
        shortest_ms = it.stepper.flushes.request_due([it.replica])
        assert it.stepper.flushes.check_interval_ms(shortest_ms) == 250
        await it.flushed()
        assert it.replica.log.flushed_offset == 2
        await it.committed(1)
        await it.advance(499)
        it.stepper.flushes.request_due([it.replica])
        await it.flushed()
        assert it.replica.log.flushed_offset == 2
        await it.advance(1)
        it.stepper.flushes.request_due([it.replica])
        await it.flushed()
        assert it.replica.log.flushed_offset == 3


async def test_the_scheduler_interval_decides_how_often_is_looked() -> None:
    async with rig(log_flush_scheduler_interval_ms=70, log_flush_interval_ms=10) as it:
        await it.apply(registered(1), *topic((1,)))
        assert it.stepper.flushes.check_interval_ms(10) == 70
        assert it.replica.log.config.flush_ms == 10


async def test_a_changed_flush_policy_holds_at_once() -> None:
    async with rig(flush_policy="os") as it:
        await it.apply(registered(1), *topic((1,)))
        await it.committed(2)
        assert it.replica.log.flushed_offset == 0
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "flush.policy", "always"))
        assert it.replica.flush_policy is FlushPolicy.ALWAYS
        await it.committed(1)
        assert it.replica.log.flushed_offset == 3
