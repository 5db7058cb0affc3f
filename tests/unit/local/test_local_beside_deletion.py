"""A reader opens a log at the moment at which its writer deletes segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from local_kit import PATH, open_simulated

import replog
from replog.errors import OffsetOutOfRangeError, StorageError
from replog.local import LocalLog
from replog.testing import SimulatedFileSystem
from replog_checkpoints import OpenMode

pytestmark = pytest.mark.exhaustive

RECORDS = 40


class Meanwhile:
    """A disk on which something happens just before its user looks at it for the n-th time."""

    def __init__(self, disk: SimulatedFileSystem, action: Callable[[], object], moment: int, *, again: bool = False):
        self._disk = disk
        self._action = action
        self._moment = moment
        self._again = again
        self.looks_count = 0

    def __getattr__(self, name: str) -> Any:
        if name in {"open", "size", "list_dir", "exists", "is_dir"}:
            if self.looks_count == self._moment or (self._again and self.looks_count > self._moment):
                self._action()
            self.looks_count += 1
        return getattr(self._disk, name)


def writer() -> tuple[SimulatedFileSystem, LocalLog]:
    disk = SimulatedFileSystem()
    log = open_simulated(disk, segment_bytes=1024, max_batch_bytes=512)
    for number in range(RECORDS):
        log.append(b"%d" % number * 150)
    return disk, log


def test_a_reader_sees_a_whole_log_whenever_segments_are_deleted() -> None:
    for moment in range(1000):
        disk, log = writer()
        view = Meanwhile(disk, lambda log=log: log.truncate_before(RECORDS // 2), moment)
        with replog.open_log(PATH, read_only=True, file_system=view) as reader:
            is_over = view.looks_count <= moment
            assert reader.log_end_offset == RECORDS
            first = reader.log_start_offset
            try:
                found = [record.offset for record in reader]
            except OffsetOutOfRangeError as error:  # deleted after it was opened
                found = [record.offset for record in reader.iterate(error.log_start_offset)]
                first = error.log_start_offset
            assert found == list(range(first, RECORDS))
        log.close()
        if is_over:
            break
    assert 10 < moment < 999


def test_a_reader_says_that_it_never_saw_the_files_of_one_moment() -> None:
    disk, log = writer()
    names = iter(range(10**6))

    def shuffle() -> None:
        """Each look finds another file, and the first segment gone."""
        disk.open(f"{PATH}/log-0/{next(names)}.tmp", OpenMode.CREATE).close()

    disk.remove(f"{PATH}/log-0/{0:020d}.log")
    with pytest.raises(StorageError, match="open it again"):
        replog.open_log(PATH, read_only=True, file_system=Meanwhile(disk, shuffle, 0, again=True))
    log.close()
