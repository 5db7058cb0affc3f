"""Retention on a disk that does not answer."""

from __future__ import annotations

import pytest
from log_crash_kit import CONFIG, Replica, open_replica
from msgspec.structs import replace

from replog.errors import StorageError
from replog.testing import Operation, SimulatedFileSystem


def test_an_unreadable_time_index_is_an_error_of_ours() -> None:
    """A bare OSError would end a broker's driver, with all its disks."""
    fs = SimulatedFileSystem()
    config = replace(CONFIG, retention_ms=1000)
    replica = Replica(fs, config).open()
    replica.append(20, size_bytes=40)
    replica.close()
    _, log = open_replica(fs, config)
    fs.faults.fail_next(Operation.OPEN, path_part=".timeindex")
    with pytest.raises(StorageError, match="cannot be read"):
        log.delete_old_segments(10**15, log.log_end_offset)
    assert not log.failed
