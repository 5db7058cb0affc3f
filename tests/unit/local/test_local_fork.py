"""Forks of local logs: the same records without a copy of them, and neither log is seen in the other, whatever happens."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from local_kit import PATH, open_simulated, values
from power_cuts import Once, stops

from replog.errors import DirectoryLockedError, StorageError
from replog.local import fork_log, open_log
from replog.local.fork import FORKING_SUFFIX
from replog.log.repair.repair import repair_log
from replog.testing import SimulatedFileSystem

COPY = "/logs/copy"
SMALL = {"segment_bytes": 1_024, "max_batch_bytes": 512}
ALL = [b"%d" % number for number in range(40)]


def filled(disk: SimulatedFileSystem, count: int = len(ALL)) -> SimulatedFileSystem:
    with open_simulated(disk, **SMALL) as log:
        for value in ALL[:count]:
            log.append(value + bytes(100))
    return disk


def read(disk: SimulatedFileSystem, path: str) -> list[bytes]:
    with open_simulated(disk, path, **SMALL) as log:
        return [(value or b"").rstrip(b"\0") for value in values(log)]


def test_both_have_the_records_share_their_bytes_and_go_on_alone() -> None:
    disk = filled(SimulatedFileSystem())
    before_bytes = disk.used_bytes()
    assert fork_log(PATH, COPY, file_system=disk) == 40
    assert disk.used_bytes() < before_bytes * 1.8  # indexes and reserves
    with open_simulated(disk, **SMALL) as log, open_simulated(disk, COPY, **SMALL) as copy:
        assert log.append(b"mine") == copy.append(b"other") == 40
        log.truncate_before(30)
        log.maintain()
        assert values(copy)[-1] == b"other"
    assert read(disk, COPY) == [*ALL, b"other"]
    assert read(disk, PATH) == [*ALL[30:], b"mine"]


def test_a_power_cut_at_any_step_leaves_the_log_and_the_copy_whole_or_not_there() -> None:
    disk, found, once = filled(SimulatedFileSystem(), 7), set(), Once()
    for number, cut in enumerate(stops(disk, lambda: fork_log(PATH, COPY, file_system=disk), disk.copied)):
        cut.crash(random.Random(number))
        if not once.is_first(cut):
            continue
        is_there = cut.exists(COPY)
        found.add(is_there)
        if not is_there:
            fork_log(PATH, COPY, file_system=cut)
        assert not cut.exists(COPY + FORKING_SUFFIX)
        assert read(cut, COPY) == read(cut, PATH) == ALL[:7]
    assert found == {False, True}


def test_a_power_cut_while_a_shared_segment_is_copied_leaves_both_logs_whole() -> None:
    disk = filled(SimulatedFileSystem(), 7)
    fork_log(PATH, COPY, file_system=disk)
    empty, shared = (
        sorted(n for n in disk.list_dir(f"{COPY}/log-0") if n.endswith(".log"))[place] for place in (-1, -2)
    )
    for suffix in (".log", ".index", ".timeindex"):
        if disk.exists(f"{COPY}/log-0/{empty.removesuffix('.log')}{suffix}"):
            disk.remove(f"{COPY}/log-0/{empty.removesuffix('.log')}{suffix}")
    disk.sync_dir(f"{COPY}/log-0")
    once = Once()
    for number, cut in enumerate(stops(disk, lambda: append(disk), disk.copied)):
        cut.crash(random.Random(number))
        if once.is_first(cut):
            assert read(cut, COPY)[:7] == read(cut, PATH) == ALL[:7]
            assert f"{shared}.tmp" not in cut.list_dir(f"{COPY}/log-0")
    assert disk.links_count(f"{COPY}/log-0/{shared}") == 1


def append(disk: SimulatedFileSystem) -> None:
    with open_simulated(disk, COPY, **SMALL) as copy:
        copy.append(b"other")


@pytest.mark.parametrize("damage", ["the active segment is gone", "a bit has flipped"])
def test_a_fork_that_is_cut_and_appended_to_leaves_the_other_alone(damage: str) -> None:
    """Goal: a repair ends the copy with a shared segment, or in one; what is cut and written there is not the other log's."""
    disk = filled(SimulatedFileSystem())
    fork_log(PATH, COPY, file_system=disk)
    segments = sorted(name for name in disk.list_dir(f"{COPY}/log-0") if name.endswith(".log"))
    if damage == "the active segment is gone":
        for name in disk.list_dir(f"{COPY}/log-0"):
            if name.startswith(segments[-1].removesuffix(".log")):
                disk.remove(f"{COPY}/log-0/{name}")
        cut = f"{COPY}/log-0/{segments[-2]}"
    else:
        cut = f"{COPY}/log-0/{segments[-3]}"
        disk.flip_bit(cut, disk.size(cut) - 1)  # in both
    assert disk.links_count(cut) == 2
    repair_log(disk, f"{COPY}/log-0", accept_loss=True, now_ms=0)
    with open_simulated(disk, COPY, **SMALL) as copy:
        copy.append(b"other")
    assert disk.links_count(cut) == 1
    if damage == "a bit has flipped":
        original = f"{PATH}/log-0/{segments[-3]}"
        disk.flip_bit(original, disk.size(original) - 1)
    assert read(disk, COPY)[-1] == b"other"
    assert ALL[:20] == read(disk, COPY)[:20]
    assert read(disk, PATH) == ALL


def test_what_cannot_be_forked_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    """On this machine's disk, where segments are hard links."""
    with open_log(tmp_path / "log", **SMALL) as log:
        log.append_many([bytes(100)] * 100)
        with pytest.raises(DirectoryLockedError, match="open for writing already"):
            fork_log(tmp_path / "log", tmp_path / "copy")
    with pytest.raises(StorageError, match="is there already"):
        fork_log(tmp_path / "log", tmp_path)
    for inside in ("log/copy", "log/log-0/copy"):
        with pytest.raises(StorageError, match="lies in the folder of the log"):
            fork_log(tmp_path / "log", tmp_path / inside)
    with pytest.raises(StorageError, match="no log that open_log made"):
        fork_log(tmp_path, tmp_path / "copy")
    assert fork_log(tmp_path / "log", tmp_path / "copy") == 100
    first = "log-0/00000000000000000000.log"
    assert (tmp_path / "log" / first).samefile(tmp_path / "copy" / first)
    with open_log(tmp_path / "copy", **SMALL) as copy:
        assert (copy.append(b"x"), len(list(copy))) == (100, 101)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "log"]


def test_another_disk_is_told() -> None:
    class OtherDisk(SimulatedFileSystem):
        def link(self, source: str, target: str) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link", target)

    disk = OtherDisk()
    filled(disk)
    with pytest.raises(StorageError, match="is on another disk than the log"):
        fork_log(PATH, COPY, file_system=disk)
    assert disk.list_dir("/logs") == ["orders"]
    assert read(disk, PATH) == ALL
