"""A local log from asyncio: natural groups, cancelled tasks, tails."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from local_kit import CountingFileSystem, abandon, open_simulated

import replog
from replog.errors import BrokerClosedError, DirectoryLockedError, DiskFullError, StorageError
from replog.local import LocalLog, NewRecord, async_opening
from replog.records import scan
from replog.testing import Operation, SimulatedFileSystem
from tests.cancelling import WAITS_MAX, cancelled_at_wait

TASKS = 64


def _batches_count(log: LocalLog) -> int:
    data = log._log.read(0, max_bytes=1 << 30, end_offset=log.high_watermark, min_one_batch=True)
    return sum(1 for _ in scan(data))


async def test_tasks_share_a_batch_and_an_fsync(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with replog.open_log_async(tmp_path / "log", file_system=fs, maintenance_interval_ms=0) as log:
        before = fs.syncs_count
        offsets = await asyncio.gather(*(log.append(b"%d" % number) for number in range(TASKS)))
        assert offsets == list(range(TASKS))
        assert (fs.syncs_count - before, _batches_count(log.log)) == (1, 1)
        assert [record.value async for record in log] == [b"%d" % number for number in range(TASKS)]


async def test_who_comes_during_an_fsync_is_the_next_group(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with (
        replog.open_log_async(tmp_path / "log", file_system=fs, maintenance_interval_ms=0) as log,
        AsyncExitStack() as stack,
    ):
        stack.enter_context(fs.held())
        first = asyncio.create_task(log.append(b"first"))
        await asyncio.to_thread(fs.entered.acquire, timeout=60)
        others = [asyncio.create_task(log.append(b"other")) for _ in range(10)]
        await asyncio.sleep(0)
        fs.gate.set()
        assert await asyncio.gather(first, *others) == list(range(11))
        assert _batches_count(log.log) == 2


async def test_many_and_single_records_in_one_group_keep_their_order(tmp_path: Path) -> None:
    async with replog.open_log_async(tmp_path / "log") as log:
        found = await asyncio.gather(
            log.append(b"0"),
            log.append_many([b"1", (b"2", b"k")]),
            log.append(b"3", b"key", headers=[("h", b"v")], timestamp_ms=7),
            log.append_many([]),
            log.append_many([NewRecord(b"4")]),
        )
        assert found == [0, range(1, 3), 3, range(0), range(4, 5)]
        assert [record.value for record in await log.read(0)] == [b"0", b"1", b"2", b"3", b"4"]
        assert [record.offset for record in await log.read_from(8)] == [0, 1, 2, 4] or await log.offset_for_timestamp(
            8
        ) == 0
        assert (await log.flush(), log.flushed_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5, 5)


async def test_a_wrong_record_fails_its_own_task_only(tmp_path: Path) -> None:
    async with replog.open_log_async(tmp_path / "log") as log:
        text: Any = "text"
        found = await asyncio.gather(log.append(b"0"), log.append(text), log.append(b"1"), return_exceptions=True)
        assert [found[0], found[2]] == [0, 1]
        assert isinstance(found[1], TypeError)


async def test_a_cancelled_append_that_has_not_begun_is_not_written(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with (
        replog.open_log_async(tmp_path / "log", file_system=fs, maintenance_interval_ms=0) as log,
        AsyncExitStack() as stack,
    ):
        stack.enter_context(fs.held())
        first = asyncio.create_task(log.append(b"first"))
        await asyncio.to_thread(fs.entered.acquire, timeout=60)
        second, third = asyncio.create_task(log.append(b"second")), asyncio.create_task(log.append(b"third"))
        await asyncio.sleep(0)
        second.cancel()
        fs.gate.set()
        assert [await first, await third] == [0, 1]
        assert [record.value async for record in log] == [b"first", b"third"]


async def test_a_failed_fsync_fails_the_whole_group_and_what_follows() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk)
    view = log.aio()
    await view.append(b"safe")
    disk.faults.fail_next(Operation.SYNC, path_part=".log")
    found = await asyncio.gather(*(view.append(b"x") for _ in range(10)), return_exceptions=True)
    assert all(isinstance(error, StorageError) for error in found)
    with pytest.raises(StorageError):
        await view.append(b"y")
    with pytest.raises(StorageError):
        await view.wait_for(5)
    await view.close()
    abandon(log)


async def test_a_full_disk_fails_those_without_room_only() -> None:
    disk = SimulatedFileSystem(capacity_bytes=4 << 20)
    log = open_simulated(disk, max_batch_bytes=100_000, segment_bytes=200_000)
    async with log.aio() as view:
        found = await asyncio.gather(*(view.append(b"x" * 90_000) for _ in range(100)), return_exceptions=True)
        offsets = [offset for offset in found if isinstance(offset, int)]
        assert offsets == list(range(len(offsets)))
        assert 0 < len(offsets) < 100
        assert all(isinstance(error, DiskFullError) for error in found[len(offsets) :])
        disk.capacity_bytes = 64 << 20
        assert await view.append(b"goes on") == len(offsets)
    log.close()


async def test_tail_waits_without_a_thread(tmp_path: Path) -> None:
    async with replog.open_log_async(tmp_path / "log") as log:
        await log.append_many([b"0", b"1"])
        seen: list[bytes | None] = []

        async def follow() -> None:
            async for record in log.tail(1):
                seen.append(record.value)
                if record.value == b"end":
                    return

        follower = asyncio.create_task(follow())
        for value in (b"2", b"3"):
            await log.append(value)
        await asyncio.to_thread(log.log.append, b"end")  # from another thread
        await asyncio.wait_for(follower, 60)
        assert seen == [b"1", b"2", b"3", b"end"]
        assert [record.value async for record in log.tail(4, timeout_s=0.01)] == [b"end"]
        assert not await log.wait_for(99, timeout_s=0.01)
        assert await log.wait_for(4, timeout_s=0)


@pytest.mark.parametrize("how", ["view", "log"])
async def test_closing_ends_a_tail(tmp_path: Path, how: str) -> None:
    log = replog.open_log(tmp_path / "log")
    view = log.aio()
    await view.append(b"0")
    first = asyncio.Event()
    seen: list[bytes | None] = []

    async def follow() -> None:
        async for record in view.tail(0):
            seen.append(record.value)
            first.set()

    follower = asyncio.create_task(follow())
    await asyncio.wait_for(first.wait(), 60)
    if how == "view":
        await view.close()
    else:
        await asyncio.to_thread(log.close)
    await asyncio.wait_for(follower, 60)
    assert seen == [b"0"]
    await view.close()
    log.close()


async def test_a_view_leaves_the_log_open_and_close_waits_for_appends(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        view = log.aio()
        appends = [asyncio.create_task(view.append(b"x")) for _ in range(10)]
        await asyncio.sleep(0)
        await view.close()
        assert await asyncio.gather(*appends) == list(range(10))
        with pytest.raises(BrokerClosedError):
            await view.append(b"y")
        assert log.append(b"z") == 10


async def test_a_close_that_is_cancelled_still_answers_every_append(tmp_path: Path) -> None:
    for number in range(1, WAITS_MAX):
        log = await replog.open_log_async(tmp_path / f"log-{number}", maintenance_interval_ms=0)
        appends = [asyncio.create_task(log.append(b"first"))]
        await asyncio.sleep(0)
        appends += [asyncio.create_task(log.append(b"next group")) for _ in range(3)]
        await asyncio.sleep(0)
        was_cancelled = await cancelled_at_wait(number, log.close())
        assert await asyncio.wait_for(asyncio.gather(*appends), 60) == [0, 1, 2, 3]
        assert log.log.closed
        if not was_cancelled:
            break
    assert number > 1


@pytest.mark.parametrize("ends_first", ["the loop", "the thread"])
def test_an_opening_that_is_cancelled_leaves_the_log_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_first: str
) -> None:
    """Goal: Ctrl-C during a long recovery must not leave the folder locked, also where it ends the loop."""
    begun, may_end, is_open = threading.Event(), threading.Event(), threading.Event()
    opened: list[LocalLog] = []

    def slow_open_log(path: Path) -> LocalLog:
        begun.set()
        assert may_end.wait(20)
        opened.append(replog.open_log(path))
        is_open.set()
        return opened[0]

    async def give_up() -> None:
        opening = asyncio.ensure_future(replog.open_log_async(tmp_path / "log"))
        await asyncio.to_thread(begun.wait, 20)
        if ends_first == "the thread":
            may_end.set()
            is_open.wait(20)  # the loop stands still: it must not hear of it
        opening.cancel()
        may_end.set()

    monkeypatch.setattr(async_opening, "open_log", slow_open_log)
    asyncio.run(give_up())
    assert [log.closed for log in opened] == [True]


async def test_opening(tmp_path: Path) -> None:
    log = await replog.open_log_async(tmp_path / "log", codec="gzip")
    with pytest.raises(DirectoryLockedError):
        await replog.open_log_async(tmp_path / "log")
    await log.append(b"a")
    assert await log.truncate_before(1) == 1
    await log.maintain()
    assert (log.log_start_offset, log.path) == (1, str(tmp_path / "log"))
    await log.close()
    await log.close()
    assert log.log.closed
    with pytest.raises(TypeError, match="read_only=True"):
        replog.open_log_async(tmp_path / "log", read_only=True)
    with pytest.raises(StorageError):
        async with replog.open_log_async(tmp_path / "log/meta.properties"):
            pass


@pytest.mark.parametrize("follows", [False, True])
async def test_a_reader_that_is_cancelled_goes_on_with_the_next_record(tmp_path: Path, follows: bool) -> None:
    async with replog.open_log_async(tmp_path / "log", flush="os") as log:
        await log.append_many([b"%d" % number for number in range(5)])
        records = log.tail(0) if follows else log.iterate()
        found: list[bytes | None] = []

        async def read() -> None:
            found.append((await anext(records)).value)

        assert await cancelled_at_wait(1, read())
        for _ in range(5):
            await read()
        assert found == [b"0", b"1", b"2", b"3", b"4"]


def test_what_is_appended_while_a_page_is_read_is_not_skipped(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log", flush="os") as log:
        for number in range(3):
            log.append(b"%d" % number)
        records, next_offset = log.read_chunk(0, 1)
        assert ([record.offset for record in records], next_offset) == ([0], 1)


async def test_a_tail_of_a_task_gives_what_is_appended_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replog.open_log_async(tmp_path / "log", flush="os") as log:
        read_chunk = LocalLog.read_chunk

        def read_late(self: LocalLog, offset: int, end_offset: int) -> tuple[list[replog.Record], int]:
            if log.log_end_offset < 9:
                log.log.append(b"late")
            return read_chunk(self, offset, end_offset)

        monkeypatch.setattr(LocalLog, "read_chunk", read_late)
        await log.append(b"first")
        tail = log.tail(0, timeout_s=30)
        assert [(await anext(tail)).offset for _ in range(9)] == list(range(9))


async def test_closing_the_log_ends_a_tail_that_has_not_come_to_its_end(tmp_path: Path) -> None:
    async with replog.open_log_async(tmp_path / "log") as log:
        tail = log.tail(0)
        await log.append(b"unread")
    assert [record async for record in tail] == []
