"""The real thing: processes killed in the middle of what they do, power cuts on ext4, fsyncs that fail in the kernel.

What a simulated disk proves is true of the simulation; these few runs show that the real one is no worse.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import log_real_writer
import pytest
from log_crash_kit import log_invariants
from log_real_writer import CONFIG, FAILED, TOPIC_ID, open_directory, value

from replog.log import Log
from replog.records import decode_batch, scan
from replog_chaos.cuttable_disk import CuttableDisk, cuttable_disk_is_missing

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60


def start_writer(folder: Path, seed: int, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    paths = (str(ROOT), *(str(ROOT / name) for name in ("timeline", "quorum", "checkpoints")))
    return subprocess.Popen(
        [*prefix, sys.executable, log_real_writer.__file__, str(folder), str(seed)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def lines_until(writer: subprocess.Popen[bytes], count: int) -> list[str]:
    """Waits for that many lines, kills the process, returns everything that it said."""
    assert writer.stdout is not None
    said = b""
    deadline = time.monotonic() + DEADLINE_S
    while said.count(b"\n") < count and writer.poll() is None:
        ready, _, _ = select.select([writer.stdout], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"after {DEADLINE_S} s only {said!r}"
        said += os.read(writer.stdout.fileno(), 65536)
    writer.kill()
    said += writer.stdout.read()
    writer.wait(DEADLINE_S)
    writer.stdout.close()
    return said.decode().splitlines()


def promised(lines: Sequence[str]) -> int:
    """Offset below which nothing may be lost."""
    flushed = 0
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "flushed":
            flushed = max(flushed, int(rest))
        elif word == "cutting":
            flushed = min(flushed, int(rest))
    return flushed


def check_log(folder: Path, flushed: int) -> int:
    """Opens the directory, checks every record; returns the log end."""
    directory = open_directory(str(folder))
    assert not directory.offline
    now_ms = int(time.time() * 1000)
    log = directory.open_log("t", 0, TOPIC_ID, CONFIG, now_ms=now_ms)
    assert log.log_end_offset >= flushed
    log_invariants(log)
    check_values(log)
    end_offset = log.log_end_offset
    directory.close(now_ms=now_ms, broker_epoch=None)
    return end_offset


def check_values(log: Log) -> None:
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True):
        for header in scan(data):
            for record in decode_batch(data[header.position : header.end_position]):
                assert record.value == value(record.offset, header.partition_leader_epoch)
            offset = header.next_offset


def test_a_process_killed_at_any_moment_loses_nothing_that_it_wrote(tmp_path: Path) -> None:
    for seed in range(4):
        lines = lines_until(start_writer(tmp_path / "data", seed), 5 + 9 * seed)
        assert any(line.startswith("flushed") for line in lines)
        check_log(tmp_path / "data", promised(lines))


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[CuttableDisk]:
    """A mounted ext4 file system of its own, in a file."""
    if reason := cuttable_disk_is_missing():
        pytest.skip(reason)
    with CuttableDisk(tmp_path / "mounted", 48 << 20) as disk:
        yield disk


def test_power_cuts_on_ext4_lose_nothing_that_was_flushed(ext4: CuttableDisk) -> None:
    for seed in range(6):
        lines = lines_until(start_writer(ext4.folder / "data", seed), 4 + 11 * seed)
        ext4.cut_power()
        check_log(ext4.folder / "data", promised(lines))


def test_an_fsync_that_fails_in_the_kernel_stops_the_log(tmp_path: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    strace = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fdatasync",
        "-e",
        "inject=fdatasync:error=EIO:when=30",
    ]
    probe = subprocess.run([*strace, "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip(f"strace may not trace here: {probe.stderr.decode().strip()}")
    writer = start_writer(tmp_path / "data", 1, strace)
    lines = lines_until(writer, 100_000)
    assert writer.returncode == FAILED
    assert lines[-1].startswith("failed")
    check_log(tmp_path / "data", promised(lines))
