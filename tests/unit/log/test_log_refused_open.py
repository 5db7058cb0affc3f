"""A log that cannot be opened leaves no descriptor open."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest
from log_crash_kit import CONFIG, FOLDER, Replica
from log_test_kit import T0

from replog.errors import CorruptRecordError, ReplogError
from replog.log import Log, LogConfig, LogManager
from replog.log.disk_space import NO_LIMITS
from replog.testing import Operation, SimulatedFileSystem


def test_damage_leaves_no_descriptor() -> None:
    fs = SimulatedFileSystem()
    replica = Replica(fs).open()
    replica.append(30, size_bytes=60)
    replica.flush()
    fs.kill()
    fs.flip_bit([path for path in fs.image() if path.endswith(".log")][-1], 80)
    for _ in range(3):
        with pytest.raises(CorruptRecordError):
            Log.open(
                fs,
                FOLDER,
                CONFIG,
                topic_partition="t-0",
                recovery_point=1000,
                log_start_offset=0,
                clean=False,
                now_ms=T0,
            )
    assert not fs._files


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_creation_that_fails_leaves_no_descriptor(nth: int) -> None:
    fs = SimulatedFileSystem()
    logs = LogManager.open(fs, ["/a"], cluster_id="c", node_id=1, now_ms=T0, limits=NO_LIMITS)
    before = len(fs._files)
    fs.faults.fail_next(Operation.SYNC_DIR, nth=nth, error_number=errno.EIO, path_part="/a")
    try:
        logs.open_log("t", 0, UUID(int=1), LogConfig(), now_ms=T0)
    except ReplogError:
        assert len(fs._files) == before
