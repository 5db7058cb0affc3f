"""A replica whose creation failed on one disk and that is made on another: the node must start again."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest
from log_test_kit import T0

from replog.errors import DiskFullError, StorageError
from replog.log import LogConfig, LogManager
from replog.log.disk_space import NO_LIMITS
from replog.testing import Operation, SimulatedFileSystem

TOPIC_ID = UUID(int=9)


def open_manager(fs: SimulatedFileSystem) -> LogManager:
    return LogManager.open(fs, ["/a", "/b"], cluster_id="c", node_id=1, now_ms=T0, limits=NO_LIMITS)


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.CREATE, Operation.SYNC_DIR])
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_a_half_made_replica_is_not_made_twice(operation: Operation, error_number: int) -> None:
    fs = SimulatedFileSystem()
    logs = open_manager(fs)
    fs.faults.fail_next(operation, error_number=error_number, path_part="/a/t-0")
    job = logs.prepare_create("t", 0, TOPIC_ID, LogConfig(), now_ms=T0)
    assert job is not None
    job.run()
    assert job.error is not None
    logs.complete_create(job)
    logs.directories["/a"].space.refuse()  # the other disk is taken next
    logs.open_log("t", 0, TOPIC_ID, LogConfig(), now_ms=T0)
    logs.close(now_ms=T0, broker_epoch=3)
    open_manager(fs).close(now_ms=T0, broker_epoch=4)


def test_what_cannot_be_removed_keeps_the_replica_there() -> None:
    fs = SimulatedFileSystem()
    logs = open_manager(fs)
    fs.faults.fail_always(Operation.WRITE, path_part="/a/t-0", error_number=errno.ENOSPC)
    fs.faults.fail_always(Operation.REMOVE, path_part="/a/t-0")
    with pytest.raises((DiskFullError, StorageError)):
        logs.open_log("t", 0, TOPIC_ID, LogConfig(), now_ms=T0)
    fs.faults.clear()
    logs.directories["/a"].space.refuse()
    logs.open_log("t", 0, TOPIC_ID, LogConfig(), now_ms=T0)
    logs.close(now_ms=T0, broker_epoch=3)
    open_manager(fs).close(now_ms=T0, broker_epoch=4)
