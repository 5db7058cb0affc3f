"""A process that writes a log until it is killed, and says on its standard output what must not be lost.

    python log_real_writer.py DIRECTORY SEED

Lines: `flushed 120` (everything below 120 is on the disk now), `cutting 90` (what was promised above 90 no longer counts).
Every record's value is its offset and its epoch, so that whoever reads the log afterwards knows what should be there.
Exit code 3: a storage error, as it should be on a disk that fails.
"""

from __future__ import annotations

import random
import sys
import time
from uuid import UUID

from replog.errors import StorageError
from replog.log import LogConfig, LogDirectory
from replog.records import encode_batch
from replog_checkpoints import OsFileSystem

CONFIG = LogConfig(segment_bytes=8000, index_interval_bytes=500, retention_ms=-1)
TOPIC_ID = UUID(int=7)
FAILED = 3
RECORDS_MAX = 3


def value(offset: int, epoch: int) -> bytes:
    """What the record at an offset holds."""
    return b"%d:%d" % (offset, epoch) + b"." * (offset % 40)


def open_directory(path: str) -> LogDirectory:
    """As a broker does."""
    now_ms = int(time.time() * 1000)
    return LogDirectory.open(OsFileSystem(), path, cluster_id="c", node_id=1, now_ms=now_ms, config=CONFIG)


def tell(text: str) -> None:
    print(text, flush=True)


def write(path: str, seed: int) -> None:
    """Never returns."""
    rng = random.Random(seed)
    directory = open_directory(path)
    log = directory.open_log("t", 0, TOPIC_ID, CONFIG, now_ms=int(time.time() * 1000))
    epoch = (log.last_epoch or 0) + 1
    while True:
        now_ms = int(time.time() * 1000)
        for _ in range(rng.randrange(1, 40)):
            offset = log.log_end_offset
            data = encode_batch(
                [(now_ms, None, value(offset + n, epoch), ()) for n in range(rng.randrange(1, RECORDS_MAX + 1))]
            )
            log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms)
        match rng.randrange(6):
            case 0:
                log.roll(now_ms)
            case 1:
                cut = max(log.log_start_offset, log.log_end_offset - rng.randrange(60))
                tell(f"cutting {cut - RECORDS_MAX + 1}")  # the batch that holds the offset goes whole
                log.truncate_to(cut)
                epoch += 1
            case 2:
                directory.checkpoint_recovery_points()
            case 3:
                log.set_log_start_offset(max(log.log_start_offset, log.log_end_offset - 2000))
                log.delete_old_segments(now_ms, log.log_end_offset)
            case _:
                log.flush()
                tell(f"flushed {log.flushed_offset}")


if __name__ == "__main__":
    try:
        write(sys.argv[1], int(sys.argv[2]))
    except StorageError as error:
        tell(f"failed {error}")
        sys.exit(FAILED)
