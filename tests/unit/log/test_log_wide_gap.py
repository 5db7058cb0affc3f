"""A gap too wide for relative offsets, as a new replica of an old compacted topic meets it."""

from __future__ import annotations

import random

import pytest
from log_crash_kit import open_replica
from log_test_kit import T0, batch, stored

from replog.testing import SimulatedFileSystem

FAR = 3_000_000_000


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_flushed_records_behind_a_wide_gap_survive(before: int, seed: int | None) -> None:
    fs = SimulatedFileSystem()
    _, log = open_replica(fs)
    for offset in range(before):
        log.append_as_follower(stored(batch(b"a"), offset, 0), now_ms=T0, leader_epoch=0)
    batches = [stored(batch(b"b"), FAR + number, 0) for number in range(5)]
    log.append_as_follower(b"".join(batches), now_ms=T0, leader_epoch=0)
    log.flush()
    assert log.flushed_offset == FAR + 5
    if seed is None:
        fs.kill()
    else:
        fs.crash(random.Random(seed))
    _, log = open_replica(fs)
    assert log.log_end_offset == FAR + 5
