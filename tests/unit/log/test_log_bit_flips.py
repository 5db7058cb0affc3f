"""One bit flips in any file of a log that is closed or was killed: nothing that was acknowledged is wrong or gone in silence.

`REPLOG_BIT_FLIPS=20000` tries that many bits of each machine instead of a few dozen, `REPLOG_SEED=7` others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import UUID

import pytest
from log_test_kit import T0, append

from replog.cli.checks.logs import verify_rows
from replog.errors import CorruptRecordError, ReplogError
from replog.local import open_log
from replog.log import Log, LogConfig, LogDirectory
from replog.records import check_crc, decode_batch, scan
from replog.testing import SimulatedFileSystem

FLIPS = int(os.environ.get("REPLOG_BIT_FLIPS", "60"))
SEED = os.environ.get("REPLOG_SEED", "")
DATA = "/data"
COUNT = 40
START = 7
CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=100)
BROKER_KEYS = [("flights", 0), ("flights", 1), ("orders", 0)]
UNREAD = (".lock", ".reserve")
"""Files without content that anybody reads."""


@dataclass(frozen=True)
class Stopped:
    """A machine that was stopped.

    Attributes:
        disk: Its disk.
        folders: The partition folders.
        read: Opens everything and returns folder -> {offset: value}; raises `ReplogError`.
    """

    disk: SimulatedFileSystem
    folders: tuple[str, ...]
    read: Callable[[SimulatedFileSystem], dict[str, dict[int, bytes | None]]]


def local(*, is_killed: bool) -> Stopped:
    disk = SimulatedFileSystem()
    log = open_log(DATA, file_system=disk, segment_bytes=1024, max_batch_bytes=512, maintenance_interval_ms=0)
    for number in range(COUNT):
        log.append(b"%d" % number * 20)
    log.truncate_before(START)
    if is_killed:
        disk.kill()
        log._is_closed = True
    else:
        log.close()
    return Stopped(disk, (f"{DATA}/log-0",), read_local)


def read_local(disk: SimulatedFileSystem) -> dict[str, dict[int, bytes | None]]:
    with open_log(DATA, file_system=disk, maintenance_interval_ms=0) as log:
        return {f"{DATA}/log-0": {record.offset: record.value for record in log}}


def opened(disk: SimulatedFileSystem) -> LogDirectory:
    return LogDirectory.open(disk, DATA, cluster_id="c", node_id=1, now_ms=T0, config=CONFIG)


def broker(*, is_killed: bool) -> Stopped:
    disk = SimulatedFileSystem()
    directory = opened(disk)
    for number, (topic, partition) in enumerate(BROKER_KEYS):
        log = directory.open_log(topic, partition, UUID(int=1000 + number), CONFIG, now_ms=T0)
        for epoch in range(4):
            append(log, COUNT // 4, leader_epoch=epoch)
        log.flush()
        log.set_log_start_offset(START)
    directory.checkpoint_high_watermarks(dict.fromkeys(BROKER_KEYS, COUNT))
    directory.checkpoint_recovery_points()
    directory.checkpoint_recovery_points()
    if is_killed:
        disk.kill()
    else:
        directory.close(now_ms=T0, broker_epoch=1)
    return Stopped(disk, tuple(f"{DATA}/{topic}-{partition}" for topic, partition in BROKER_KEYS), read_broker)


def read_broker(disk: SimulatedFileSystem) -> dict[str, dict[int, bytes | None]]:
    directory = opened(disk)
    for error in directory.offline.values():
        raise error
    found = {f"{DATA}/{topic}-{partition}": values(log) for (topic, partition), log in directory.logs.items()}
    directory.close(now_ms=T0, broker_epoch=1)
    return found


def values(log: Log) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True):
        for header in scan(data):
            check_crc(data, header)  # as a consumer does with all that it is sent
            batch = data[header.position : header.end_position]
            found |= {record.offset: record.value for record in decode_batch(batch)}
            offset = header.next_offset
    return {offset: value for offset, value in found.items() if offset >= log.log_start_offset}


MACHINES: dict[str, Callable[[], Stopped]] = {
    "local closed": cache(lambda: local(is_killed=False)),
    "local killed": cache(lambda: local(is_killed=True)),
    "broker closed": cache(lambda: broker(is_killed=False)),
    "broker killed": cache(lambda: broker(is_killed=True)),
}


def is_silent(
    stopped: Stopped, path: str, position: int, bit: int, expected: dict[str, dict[int, bytes | None]]
) -> bool:
    """Whether a flipped bit makes records wrong or gone and nothing says so."""
    disk = stopped.disk.copied()
    disk.flip_bit(path, position, bit)
    verified = disk.copied()
    try:
        found = stopped.read(disk)
    except ReplogError as error:
        if DATA in str(error) or isinstance(error, CorruptRecordError):
            return False
        found = {}
    if all(found.get(folder, {}) | records == found.get(folder) for folder, records in expected.items()):
        return False
    rows = [row for folder in stopped.folders for row in verify_rows(Path(folder), verified)]
    return not any(row["kind"] == "finding" for row in rows)


@pytest.mark.parametrize("name", MACHINES)
def test_a_flipped_bit_is_never_silent(name: str) -> None:
    stopped = MACHINES[name]()
    expected = stopped.read(stopped.disk.copied())
    assert all(list(records) == list(range(START, COUNT)) for records in expected.values())
    files = {path: data for path, data in stopped.disk.image().items() if data and not path.endswith(UNREAD)}
    rng = random.Random(f"{name} {FLIPS}{SEED}")
    silent = set()
    for _ in range(FLIPS):
        path = rng.choice(sorted(files))
        position, bit = rng.randrange(len(files[path])), rng.randrange(8)
        if is_silent(stopped, path, position, bit, expected):
            silent.add((path, position, bit))
    assert not silent
