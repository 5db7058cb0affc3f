"""Which empty log directories of a node should hold data: the table in `replog.log.directories.expected_data`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replog.log import LogManager
from replog.log.directories.expected_data import missing_data
from replog_checkpoints import OsFileSystem

NODE_ID = 1


def run_once(paths: list[str]) -> None:
    """The node starts with these directories and stops in order."""
    logs = LogManager.open(OsFileSystem(), paths, cluster_id="c", node_id=NODE_ID, now_ms=0)
    logs.close(now_ms=0, broker_epoch=None)


@pytest.fixture
def disks(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("a", "b", "c")]


def test_all_that_is_formatted_is_fine(disks: list[str]) -> None:
    run_once(disks)
    assert missing_data(OsFileSystem(), disks, NODE_ID) == []


def test_a_node_without_any_data_is_new_or_elsewhere(disks: list[str]) -> None:
    Path(disks[0]).mkdir()
    assert missing_data(OsFileSystem(), disks, NODE_ID) == disks


def test_a_folder_that_is_added_is_new(disks: list[str]) -> None:
    run_once(disks[:2])
    assert missing_data(OsFileSystem(), disks, NODE_ID) == []


def test_a_disk_that_is_not_mounted_is_missed(disks: list[str]) -> None:
    run_once(disks)
    shutil.rmtree(disks[1])
    Path(disks[1]).mkdir()
    assert missing_data(OsFileSystem(), disks, NODE_ID) == [disks[1]]


def test_a_disk_that_cannot_be_read_is_not_the_one_that_was_added(disks: list[str]) -> None:
    run_once(disks[:2])
    (Path(disks[1]) / "meta.properties").write_bytes(b"\0")
    assert missing_data(OsFileSystem(), disks, NODE_ID) == []


def test_the_directory_of_another_node_is_judged_by_who_opens_it(disks: list[str]) -> None:
    run_once(disks[:1])
    assert missing_data(OsFileSystem(), disks[:1], NODE_ID + 1) == []
