"""What the tests of the log share: a log on a simulated disk, batches, and the whole content of a log."""

from __future__ import annotations

from collections.abc import Iterable

from replog.log import Log, LogConfig
from replog.records import BatchHeader, encode_batch, parse_header, scan
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem, OpenMode

T0 = 1_700_000_000_000
TINY = LogConfig(segment_bytes=600, index_interval_bytes=100)


def batch(
    *values: bytes,
    timestamp_ms: int = T0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch as a client sends it."""
    records = [(timestamp_ms + number, None, value, ()) for number, value in enumerate(values or (b"v",))]
    return encode_batch(records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


def stored(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """The same batch as a leader stores it."""
    return base_offset.to_bytes(8, "big") + data[8:12] + leader_epoch.to_bytes(4, "big", signed=True) + data[16:]


def open_log(
    fs: FileSystem,
    directory: str = "/data/t-0",
    config: LogConfig = TINY,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool = False,
    now_ms: int = T0,
) -> Log:
    """A log without a directory around it."""
    return Log.open(
        fs,
        directory,
        config,
        topic_partition="t-0",
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=clean,
        now_ms=now_ms,
    )


def filled(count: int, *, config: LogConfig = TINY, leader_epoch: int = 0) -> tuple[SimulatedFileSystem, Log]:
    """A log with `count` batches of one record each, values 0, 1, 2, ..."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=config)
    append(log, count, leader_epoch=leader_epoch)
    return fs, log


def append(log: Log, count: int, *, leader_epoch: int = 0) -> None:
    """Appends batches of one record; the value is the offset, the timestamp rises with it."""
    for _ in range(count):
        offset = log.log_end_offset
        data = batch(str(offset).encode(), timestamp_ms=T0 + offset)
        log.append_as_leader(data, leader_epoch=leader_epoch, now_ms=T0)


def content(log: Log, *, max_bytes: int = 1 << 20) -> list[bytes]:
    """All batches of a log."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes=max_bytes, end_offset=log.log_end_offset, min_one_batch=True):
        for header in scan(data):
            found.append(data[header.position : header.end_position])
            offset = header.next_offset
    return found


def offsets(log: Log) -> list[int]:
    """Base offsets of all batches."""
    return [parse_header(data).base_offset for data in content(log)]


def visible_epochs(log: Log) -> list[tuple[int, int]]:
    """The epoch cache as far as it speaks of records that can be read."""
    entries = log.leader_epochs.entries
    ends = [start for _, start in [*entries, (0, log.log_end_offset)]][1:]
    return [
        (epoch, max(start, log.log_start_offset))
        for (epoch, start), end in zip(entries, ends, strict=True)
        if end > max(start, log.log_start_offset)
    ]


def implied_epochs(log: Log) -> list[tuple[int, int]]:
    """What the epoch cache must hold, from the batches alone."""
    return epochs_of(map(parse_header, content(log)), log.log_start_offset)


def epochs_of(headers: Iterable[BatchHeader], log_start_offset: int) -> list[tuple[int, int]]:
    """What the epoch cache must hold of a log with these batches."""
    starts: dict[int, int] = {}
    for header in headers:
        starts.setdefault(header.partition_leader_epoch, max(header.base_offset, log_start_offset))
    return list(starts.items())


def write_file(fs: FileSystem, path: str, data: bytes) -> None:
    """Puts a file on the disk, replacing one that is there."""
    file = fs.open(path, OpenMode.REPLACE)
    file.pwrite([data], 0)
    file.sync()
    file.close()


def read_file(fs: FileSystem, path: str) -> bytes:
    """The whole content of a file."""
    file = fs.open(path, OpenMode.READ)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
