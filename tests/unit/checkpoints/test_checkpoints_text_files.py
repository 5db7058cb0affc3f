"""Offset and leader-epoch checkpoints: round trips, and the line of each kind of damage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import (
    OpenMode,
    read_leader_epochs,
    read_offset_checkpoint,
    write_leader_epochs,
    write_offset_checkpoint,
)

INT64_MAX = 2**63 - 1
topics = st.text("abcXYZ019._-", min_size=1, max_size=249)
offsets = st.dictionaries(st.tuples(topics, st.integers(0, 2**31 - 1)), st.integers(0, INT64_MAX), max_size=8)
epoch_steps = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 2**40)), max_size=8)


@given(offsets)
@settings(max_examples=60, deadline=None)
def test_offsets_round_trip(values: dict[tuple[str, int], int]) -> None:
    disk = SimulatedFileSystem()
    write_offset_checkpoint(disk, "file", values)
    assert read_offset_checkpoint(disk, "file") == values


@given(epoch_steps)
@settings(max_examples=60, deadline=None)
def test_leader_epochs_round_trip(steps: list[tuple[int, int]]) -> None:
    entries, epoch, offset = [], 0, 0
    for epoch_step, offset_step in steps:
        entries.append((epoch, offset))
        epoch, offset = epoch + epoch_step, offset + offset_step
    disk = SimulatedFileSystem()
    write_leader_epochs(disk, "file", entries)
    assert read_leader_epochs(disk, "file") == entries


def test_no_entries_is_a_valid_file(disk: SimulatedFileSystem) -> None:
    write_offset_checkpoint(disk, "/logs/file", {})
    assert read_offset_checkpoint(disk, "/logs/file") == {}


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"1\n0\n", 1, "version 1 is not supported"),
        (b"-1\n0\n", 1, "version '-1' is not a number"),
        (b"zero\n0\n", 1, "version 'zero'"),
        (b"0\n", 2, "number of entries is missing"),
        (b"0\n-1\n", 2, "number of entries '-1'"),
        (b"0\n2\nt 0 42\n", 2, "2 entries announced, 1 found"),
        (b"0\n0\nt 0 42\n", 2, "0 entries announced, 1 found"),
        (b"0\n1\nt 0 42", 3, "no newline"),
        (b"0\n1\nt 0\n", 3, "2 fields instead of 3"),
        (b"0\n1\nt 0 42 7\n", 3, "4 fields instead of 3"),
        (b"0\n1\nt -1 42\n", 3, "partition '-1'"),
        (b"0\n2\nt 0 42\nt 1 -42\n", 4, "offset '-42'"),
        (b"0\n1\nt 0 9223372036854775808\n", 3, "offset '9223372036854775808'"),
        (b"0\n1\nt 2147483648 0\n", 3, "partition '2147483648'"),
        (b"0\n1\nt 0 4_2\n", 3, "offset '4_2'"),
        (b"0\n1\nt 0 +42\n", 3, "offset '+42'"),
        ("0\n1\nt 0 ٤٢\n".encode(), 3, "offset"),
        (b"0\n2\nt 0 42\nt 0 43\n", 4, "t-0 appears twice"),
        (b"0\n1\nt\xff 0 42\n", 3, "not UTF-8 at byte 5"),
    ],
)
def test_damaged_offsets(refused: Any, data: bytes, line: int, reason: str) -> None:
    error = refused(read_offset_checkpoint, data)
    assert error.line == line
    assert reason in error.reason


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"0\n2\n0 0\n0 10\n", 4, "0 10 does not rise"),
        (b"0\n2\n1 10\n2 10\n", 4, "2 10 does not rise"),
        (b"0\n2\n3 10\n2 20\n", 4, "2 20 does not rise"),
        (b"0\n1\n-1 0\n", 3, "leader epoch '-1'"),
        (b"0\n1\n0 -5\n", 3, "start offset '-5'"),
        (b"0\n1\n2147483648 0\n", 3, "leader epoch"),
    ],
)
def test_damaged_leader_epochs(refused: Any, data: bytes, line: int, reason: str) -> None:
    error = refused(read_leader_epochs, data)
    assert error.line == line
    assert reason in error.reason


def test_white_space_is_free_as_in_kafka(disk: SimulatedFileSystem) -> None:
    with_tabs = disk.open("/logs/file", OpenMode.CREATE)
    with_tabs.pwrite([b"0\r\n1 \r\n  t\t0   42\r\n"], 0)
    assert read_offset_checkpoint(disk, "/logs/file") == {("t", 0): 42}


@pytest.mark.parametrize("values", [{("", 0): 1}, {("a b", 0): 1}, {("t", -1): 1}, {("t", 0): -1}, {("t", 0): 2**63}])
def test_what_could_not_be_read_back_is_not_written(
    disk: SimulatedFileSystem, values: dict[tuple[str, int], int]
) -> None:
    with pytest.raises(ValueError):
        write_offset_checkpoint(disk, "/logs/file", values)
    assert disk.list_dir("/logs") == []


@pytest.mark.parametrize("entries", [[(0, 0), (0, 1)], [(0, 5), (1, 5)], [(-1, 0)], [(0, -1)]])
def test_epochs_that_do_not_rise_are_not_written(disk: SimulatedFileSystem, entries: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError):
        write_leader_epochs(disk, "/logs/file", entries)
    assert disk.list_dir("/logs") == []
