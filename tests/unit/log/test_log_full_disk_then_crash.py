"""A part of an append that found room is cut off again durably: its segment may never be synced again."""

from __future__ import annotations

import random

import pytest
from log_crash_kit import CONFIG, open_replica
from log_test_kit import T0, batch, content

from replog.errors import DiskFullError
from replog.testing import SimulatedFileSystem


@pytest.mark.parametrize("seed", range(20))
def test_a_half_written_append_before_a_roll_does_not_come_back(seed: int) -> None:
    fs = SimulatedFileSystem()
    directory, log = open_replica(fs)
    log.append_as_leader(batch(bytes(150)), leader_epoch=0, now_ms=T0)
    log.flush()
    fs.capacity_bytes = fs.used_bytes() + 100
    with pytest.raises(DiskFullError):
        log.append_as_leader(batch(bytes(150)), leader_epoch=0, now_ms=T0)
    fs.capacity_bytes = None
    log.append_as_leader(batch(bytes(CONFIG.segment_bytes - 200)), leader_epoch=0, now_ms=T0)  # rolls
    assert log.segment_base_offsets == [0, 1]
    log.flush()
    directory.checkpoint_recovery_points()
    before = content(log)
    fs.crash(random.Random(seed))
    directory, log = open_replica(fs)
    assert not directory.offline
    assert content(log) == before
