"""The disks of `replog chaos`: full means full, and a power cut takes what was not flushed."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from replog.testing.machines.disks import SmallDisk, small_disk_is_missing
from replog_chaos.cuttable_disk import CuttableDisk, cuttable_disk_is_missing
from replog_chaos.disk_faults import strace_is_missing


def test_a_power_cut_keeps_what_was_flushed_and_nothing_else(tmp_path: Path) -> None:
    if reason := cuttable_disk_is_missing():
        pytest.skip(reason)
    with CuttableDisk(tmp_path / "disk", 16 << 20) as disk:
        flushed, written = disk.folder / "flushed", disk.folder / "written"
        with flushed.open("wb") as file:
            file.write(b"kept")
            file.flush()
            os.fsync(file.fileno())
        written.write_bytes(b"gone")
        disk.cut_power()
        assert flushed.read_bytes() == b"kept"
        assert not written.exists() or written.read_bytes() == b""


def test_a_filled_disk_refuses_one_more_byte_until_there_is_room(tmp_path: Path) -> None:
    if reason := small_disk_is_missing():
        pytest.skip(reason)
    with SmallDisk(tmp_path / "disk", 1 << 20) as disk:
        disk.fill()
        with pytest.raises(OSError, match="No space left") as refused:
            (disk.folder / "more").write_bytes(b"x" * 5_000)
        assert refused.value.errno == errno.ENOSPC
        disk.make_room()
        (disk.folder / "more").write_bytes(b"x" * 5_000)
    assert not (tmp_path / "disk" / "more").exists(), "unmounted"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in {"mkfs.ext4", "umount", "strace"} else tool)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cuttable_disk_is_missing() == "no mkfs.ext4 here"
    assert small_disk_is_missing() == "no umount here"
    assert strace_is_missing() == "no strace here"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cuttable_disk_is_missing() == small_disk_is_missing() == "mounting needs root"
