"""Few descriptors: a log keeps a bounded number of files open, and having none left changes nothing."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from descriptor_kit import FewDescriptors
from local_kit import PATH, child_environment, open_simulated, values

from replog.errors import StorageError, TooManyOpenFilesError
from replog.local import open_log
from replog.testing import Operation, SimulatedFileSystem

pytestmark = pytest.mark.exhaustive

T = TypeVar("T")
LIMIT = 64
PRELUDE = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))
import replog
path = sys.argv[1]
settings = dict(segment_bytes=1024, max_batch_bytes=512, maintenance_interval_ms=0)
"""


def run(tmp_path: Path, program: str) -> None:
    """Runs a program that may open few files."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + program, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_writer_of_small_segments(tmp_path: Path, flush: str) -> None:
    run(
        tmp_path,
        f"""
with replog.open_log(path, flush={flush!r}, **settings) as log:
    log.append_many([b"x" * 400] * 300)
    for number in range(100):
        log.append(b"%d" % number * 100)
    assert sum(1 for _ in log) == 400
with replog.open_log(path, **settings) as log:
    assert sum(1 for _ in log) == 400
""",
    )


def test_readers_and_timestamps_over_many_segments(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from replog.local import NewRecord
with replog.open_log(path, flush="os", **settings) as log:
    log.append_many([NewRecord(b"x" * 400, timestamp_ms=number) for number in range(400)])
with replog.open_log(path, **settings) as log:
    assert [log.offset_for_timestamp(number) for number in (0, 200, 399, 400)] == [0, 200, 399, None]
    assert log.read_from(399)[0].offset == 399
    assert [record.offset for record in log.tail(0, timeout_s=0)] == list(range(400))
    iterators = [log.iterate(number) for number in range(0, 400, 4)]
    assert [next(one).offset for one in iterators] == list(range(0, 400, 4))
    log.truncate_before(398)
    log.append(b"more")
""",
    )


def test_retention_over_many_segments(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from replog.local import NewRecord
with replog.open_log(path, flush="os", **settings) as log:
    log.append_many([NewRecord(b"x" * 400, timestamp_ms=10**13 + number) for number in range(400)])
with replog.open_log(path, retention_ms=10**9, **settings) as log:
    log.maintain()
    assert sum(1 for _ in log) == 400
""",
    )


@pytest.mark.parametrize("flush", ["os", "always"])
def test_no_descriptor_left_changes_nothing(flush: str) -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk, flush=flush, segment_bytes=1024, max_batch_bytes=512) as log:
        log.append(b"first" * 70)
        log.append(b"second" * 60)
        for operation in (Operation.OPEN, Operation.CREATE):
            disk.faults.fail_always(operation, error_number=errno.EMFILE)
        with pytest.raises(TooManyOpenFilesError, match="ulimit -n"):
            log.append(b"third" * 70)
        assert not log.failed
        disk.faults.clear()
        log.append(b"fourth" * 60)
        assert values(log) == [b"first" * 70, b"second" * 60, b"fourth" * 60]


def test_a_log_that_cannot_be_opened_for_want_of_descriptors_says_so() -> None:
    fs = SimulatedFileSystem()
    with open_simulated(fs) as log:
        log.append(b"a")
    disk = FewDescriptors(fs)
    for read_only in (False, True):
        for moment in range(100):
            disk.refuse(moment)
            try:
                settings = {} if read_only else {"maintenance_interval_ms": 0}
                open_log(PATH, read_only=read_only, file_system=disk, **settings).close()
            except TooManyOpenFilesError:
                disk.allow()
            except StorageError as error:  # while it was closed
                told = str(error)
                disk.allow()
            else:
                break
        assert 3 < moment < 99
        assert read_only or "ulimit -n" in told
        disk.allow()
        with open_simulated(disk) as log:
            assert values(log) == [b"a"]


@pytest.mark.parametrize("flush", ["always", "os"])
@pytest.mark.parametrize(
    "count",
    [1, pytest.param(3, marks=pytest.mark.campaign), None],
    ids=["once", "three times", "until there are some"],
)
def test_whatever_a_user_does_without_a_descriptor_can_be_done_again(flush: str, count: int | None) -> None:
    """Opening, appending, reading, deleting, maintenance: a typed error, no acknowledged record less, and it goes on."""
    for moment in range(1000):
        disk = FewDescriptors(SimulatedFileSystem())
        disk.refuse(moment, count)
        use(disk, flush)
        if disk.taken_count <= moment:
            break
    assert 50 < moment < 999


def use(disk: FewDescriptors, flush: str) -> None:
    settings = {"flush": flush, "segment_bytes": 1024, "max_batch_bytes": 512, "retention_bytes": 2600}
    log = retried(disk, lambda: open_simulated(disk, **settings))
    acknowledged = [retried(disk, lambda: log.append(b"x" * 300)) for _ in range(8)]
    retried(disk, lambda: log.read(0))
    retried(disk, lambda: log.offset_for_timestamp(1))
    retried(disk, lambda: log.truncate_before(3))
    acknowledged.append(retried(disk, lambda: log.append(b"x" * 300)))
    retried(disk, log.maintain)
    assert not log.failed
    with contextlib.suppress(StorageError):
        log.close()
    disk.allow()
    with open_simulated(disk, **settings) as log:
        start = log.log_start_offset
        assert start <= 3
        assert {offset for offset in acknowledged if offset >= start} <= {record.offset for record in log}


@pytest.mark.parametrize("flush", ["always", "os"])
def test_an_append_without_a_descriptor_says_whether_the_record_is_there(flush: str) -> None:
    """Who takes "nothing was changed" at its word appends again; who is told that it is there must not."""
    said: set[bool] = set()
    for moment in range(1000):
        disk = FewDescriptors(SimulatedFileSystem())
        with open_simulated(disk, flush=flush, segment_bytes=1024, max_batch_bytes=512) as log:
            end = disk.taken_count + moment
            disk.refuse(moment)
            for number in range(8):
                try:
                    log.append(b"%03d" % number * 100)
                except TooManyOpenFilesError as error:
                    told = str(error)
                    is_there = "appended again it would be there twice" in told
                    assert is_there != ("Nothing was changed" in told)
                    said.add(is_there)
                    disk.allow()
                    if not is_there:
                        log.append(b"%03d" % number * 100)
            is_over = disk.taken_count <= end
            disk.allow()
            log.flush()
            assert values(log) == [b"%03d" % number * 100 for number in range(8)]
        if is_over:
            break
    assert 10 < moment < 999
    assert said == ({False, True} if flush == "always" else {False})


def test_a_log_that_is_closed_without_a_descriptor_is_whole_when_it_is_opened_again() -> None:
    disk = FewDescriptors(SimulatedFileSystem())
    log = open_simulated(disk, flush="os")
    log.append(b"a")
    disk.refuse(0)
    with pytest.raises(StorageError, match=r"closed, but not in order: too many open files.* open it again"):
        log.close()
    disk.allow()
    with open_simulated(disk) as log:
        assert values(log) == [b"a"]


AIO = """
import asyncio, gc, os
from replog.errors import TooManyOpenFilesError

async def use(log):
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(FREE):
        os.close(held.pop())
    try:
        log.aio()
    except TooManyOpenFilesError as error:
        assert "ulimit -n" in str(error), error
        refused = True
    else:
        refused = False
    for descriptor in held:
        os.close(descriptor)
    tasks = log.aio()
    assert await tasks.append(b"a") == 0
    await tasks.close()
    return refused

with replog.open_log(path, maintenance_interval_ms=0) as log:
    refused = asyncio.run(use(log))
assert refused == (FREE == 0), refused
"""


@pytest.mark.parametrize("free", [0, 1, 2])
def test_the_first_view_for_tasks_without_a_descriptor_says_so_and_the_next_one_works(
    tmp_path: Path, free: int
) -> None:
    """Its code is loaded by the first call."""
    run(tmp_path, f"FREE = {free}\n{AIO}")


def retried(disk: FewDescriptors, call: Callable[[], T]) -> T:
    try:
        return call()
    except TooManyOpenFilesError:
        disk.allow()
        return call()
