"""Nothing acknowledged is lost: kill -9 of a real process, and power cuts at every step on a simulated disk."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_kit import PATH, abandon, child_environment, open_simulated
from power_cuts import Once, stops

import replog
from replog.errors import CorruptRecordError
from replog.log.repair.repair import repair_log
from replog.testing import SimulatedFileSystem
from replog_checkpoints import OsFileSystem

pytestmark = pytest.mark.exhaustive

CHILD = """
import random, sys, threading, replog
path, flush, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = replog.open_log(path, flush=flush, segment_bytes=16_384, maintenance_interval_ms=5)
write_lock = threading.Lock()
def write(thread):
    rng = random.Random(seed * 10 + thread)
    for number in range(1_000_000):
        value = b"%d-%d-" % (thread, number) + rng.randbytes(rng.randint(0, 300))
        count = rng.choice((1, 1, 1, 5))
        offsets = log.append_many([value] * count) if count > 1 else range(o := log.append(value), o + 1)
        with write_lock:
            for offset in offsets:
                sys.stdout.write(f"{offset} {value.hex()}\\n")
            sys.stdout.flush()
threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
"""


@pytest.mark.parametrize("flush", ["always", "os"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kill_9_in_the_middle_of_appends(tmp_path: Path, flush: str, seed: int) -> None:
    path = str(tmp_path / "log")
    command = [sys.executable, "-c", CHILD, path, flush, str(seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(100 + 100 * seed)]
    child.kill()
    lines += child.stdout.read().splitlines(keepends=True)
    child.wait()
    child.stdout.close()
    acknowledged = dict(line.split() for line in lines if line.endswith("\n"))
    assert len(acknowledged) >= 100
    with replog.open_log(path, segment_bytes=16_384) as log:
        found = {str(record.offset): (record.value or b"").hex() for record in log}
        assert [int(offset) for offset in found] == list(range(log.log_end_offset))
        wrong = {offset for offset, value in acknowledged.items() if found.get(offset) != value}
        assert not wrong, f"seed {seed}: {len(wrong)} acknowledged records are lost or changed"
        assert log.append(b"goes on") == len(found)
        assert log.flushed_offset == log.log_end_offset


ONE_BY_ONE = """
import sys
import replog
log = replog.open_log(sys.argv[1])
for number in range(1_000):
    log.append(b"record %d" % number)
print("acknowledged", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def killed_after_1000_appends(tmp_path: Path) -> Path:
    """The folder of a log whose process was killed with -9, and its newest checkpoint is from before the first append."""
    path = tmp_path / "log"
    command = [sys.executable, "-c", ONE_BY_ONE, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, env=child_environment()) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "acknowledged\n"
        child.kill()
    return path


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_one_flipped_bit_after_kill_9_is_an_error_and_nothing_is_cut(killed_after_1000_appends: Path) -> None:
    """README: "what was stored safely is never cut to make a start succeed"."""
    path = killed_after_1000_appends
    segment = path / "log-0" / "00000000000000000000.log"
    flip(segment, 800)
    damaged = segment.read_bytes()
    for read_only in (False, True):
        with pytest.raises(CorruptRecordError, match="below offset 1000 was flushed") as refused:
            open_log_as(path, read_only=read_only)
        assert refused.value.path == str(segment)
        assert f"replog log repair {path}/log-0 --accept-loss" in str(refused.value)
    assert segment.read_bytes() == damaged
    flip(segment, 800)
    with replog.open_log(path) as log:
        assert len(list(log)) == 1_000


def open_log_as(path: Path, *, read_only: bool) -> None:
    if read_only:
        replog.open_log(path, read_only=True).close()
    else:
        replog.open_log(path).close()


def test_the_way_out_that_the_error_names(killed_after_1000_appends: Path) -> None:
    path = killed_after_1000_appends
    flip(path / "log-0" / "00000000000000000000.log", 800)
    report = repair_log(OsFileSystem(), str(path / "log-0"), accept_loss=True, now_ms=0)
    assert report.end_offset_before == 1_000
    with replog.open_log(path) as log:
        assert [record.value for record in log] == [b"record %d" % number for number in range(report.end_offset)]


def _story(disk: SimulatedFileSystem, acknowledged: dict[int, bytes], starts: list[int], flush: str) -> None:
    """Appends, rolls, truncations, maintenance, close, reopen; notes what was acknowledged."""
    for part in range(2):
        log = open_simulated(disk, segment_bytes=1024, flush=flush)
        try:
            for number in range(4):
                value = b"%d-%d" % (part, number) + b"x" * 250
                acknowledged[log.append(value)] = value
                if number == 1:
                    many = [b"%d-many-%d" % (part, n) for n in range(4)]
                    acknowledged.update(zip(log.append_many(many), many, strict=True))
                if number == 2:
                    log.maintain()
                if number == 3:
                    starts.append(log.log_start_offset + 5)
                    log.truncate_before(starts[-1])
                    starts.append(-starts[-1])  # returned: the start is there for good
            log.close()
        except BaseException:
            abandon(log)
            raise


def _check(disk: SimulatedFileSystem, acknowledged: dict[int, bytes], starts: list[int], step: int) -> None:
    with open_simulated(disk, segment_bytes=1024) as log:
        found = {record.offset: record.value for record in log}
        asked = max((start for start in starts if start > 0), default=0)
        promised = max((-start for start in starts if start < 0), default=0)
        assert promised <= log.log_start_offset <= asked, f"step {step}: starts at {log.log_start_offset}"
        lost = [o for o, value in acknowledged.items() if o >= log.log_start_offset and found.get(o) != value]
        assert not lost, f"step {step}: lost {lost}"
        assert log.append(b"goes on") == log.log_end_offset - 1


Stopped = tuple[SimulatedFileSystem, dict[int, bytes], list[int]]


def _stopped_anywhere(flush: str) -> list[Stopped]:
    """The machine, what was acknowledged and where it began, wherever a story can be stopped."""
    disk, acknowledged, starts = SimulatedFileSystem(), dict[int, bytes](), list[int]()
    return stops(
        disk,
        lambda: _story(disk, acknowledged, starts, flush),
        lambda: (disk.copied(), dict(acknowledged), list(starts)),
    )


def test_a_power_cut_at_every_step() -> None:
    stopped = _stopped_anywhere("always")
    once = Once()
    for step, (disk, acknowledged, starts) in enumerate(stopped):
        disk.crash(random.Random(step))
        if once.is_first(disk, *acknowledged, *starts):
            _check(disk, acknowledged, starts, step)
    assert len(stopped) > 80


def test_a_kill_at_every_step_loses_nothing_with_flush_os_either() -> None:
    stopped = _stopped_anywhere("os")
    once = Once()
    for step, (disk, acknowledged, starts) in enumerate(stopped):
        disk.kill()
        if once.is_first(disk, *acknowledged, *starts):
            _check(disk, acknowledged, starts, step)
    assert len(stopped) > 50


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_with_flush_os_takes_only_what_was_not_flushed(seed: int) -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk, flush="os")
    log.append_many([b"flushed"] * 10)
    log.flush()
    log.append_many([b"not yet"] * 10)
    disk.crash(random.Random(seed))
    abandon(log)
    with open_simulated(disk, flush="os") as log:
        assert log.log_end_offset in {10, 20}  # one batch: all of it or nothing
        assert log.flushed_offset == log.log_end_offset


def test_what_nobody_acknowledged_is_not_seen_until_it_is_flushed() -> None:
    """A reader must not see a record that a power cut takes away again."""
    disk = SimulatedFileSystem()
    log = open_simulated(disk)
    log.append(b"acknowledged")
    seen: list[Any] = []
    original = log._flushes.flush_to
    log._flushes.flush_to = lambda end: (
        seen.append((log.log_end_offset, log.high_watermark, list(log))),
        original(end),
    )  # type: ignore[assignment,func-returns-value]
    log.append(b"on its way")
    assert seen[0][:2] == (2, 1)
    assert [record.value for record in seen[0][2]] == [b"acknowledged"]
    assert log.high_watermark == 2
    log.close()


def test_a_kept_lock_file_does_not_matter_after_a_crash() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk)
    log.append(b"a")
    disk.kill()
    assert disk.exists(f"{PATH}/.lock")
    abandon(log)
    open_simulated(disk).close()
