"""Opening a log after a crash, with damage, with missing files (docs/KAFKA.md 3)."""

from __future__ import annotations

import pytest
from log_test_kit import (
    T0,
    TINY,
    append,
    batch,
    content,
    filled,
    implied_epochs,
    offsets,
    open_log,
    read_file,
    stored,
    write_file,
)

from replog.errors import CorruptRecordError
from replog.log import Log, LogConfig
from replog.log.recovery.plausibility import lost_segments
from replog.testing.simulated_filesystem import SimulatedFileSystem

DIRECTORY = "/data/t-0"
BIG = LogConfig(index_interval_bytes=100)


def path(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def snapshot_of(fs: SimulatedFileSystem) -> dict[str, bytes]:
    return {name: read_file(fs, f"{DIRECTORY}/{name}") for name in fs.list_dir(DIRECTORY)}


def killed(count: int = 20, *, config: LogConfig = BIG, flushed: int = 0) -> tuple[SimulatedFileSystem, list[bytes]]:
    """A directory after kill -9, and the batches in it."""
    fs, log = filled(flushed, config=config)
    log.flush()
    append(log, count - flushed)
    before = content(log)
    fs.kill()
    return fs, before


@pytest.mark.parametrize("cut_bytes", [1, 5, 60, 61, 70])
def test_a_torn_tail_is_cut(cut_bytes: int) -> None:
    fs, before = killed(5)
    data = read_file(fs, path(0, ".log"))
    write_file(fs, path(0, ".log"), data[: len(data) - cut_bytes])
    log = open_log(fs, recovery_point=0)
    assert content(log) == before[: 5 - 1 - (cut_bytes > len(before[-1]))]
    assert log.recovery.bytes_cut == fs_size(before) - cut_bytes - log.size_bytes
    append(log, 1, leader_epoch=1)
    assert log.log_end_offset == len(content(log))


def fs_size(batches: list[bytes]) -> int:
    return sum(map(len, batches))


@pytest.mark.parametrize("tail", [b"\0" * 500, b"\xff" * 100, b"x" * 61, b"\0" * 7])
def test_garbage_behind_the_last_batch_is_cut(tail: bytes) -> None:
    fs, before = killed(5)
    write_file(fs, path(0, ".log"), b"".join(before) + tail)
    log = open_log(fs)
    assert content(log) == before
    assert log.recovery.bytes_cut == len(tail)


def test_an_old_batch_behind_a_new_tail_is_cut_although_its_checksum_is_right() -> None:
    fs, before = killed(5)
    write_file(fs, path(0, ".log"), b"".join(before) + before[2])
    assert offsets(open_log(fs)) == [0, 1, 2, 3, 4]
    write_file(fs, path(0, ".log"), b"".join(before) + stored(batch(), 5, 3) + stored(batch(), 6, 2))
    assert offsets(open_log(fs)) == [0, 1, 2, 3, 4, 5]


def test_damage_above_the_recovery_point_deletes_what_is_behind_it() -> None:
    fs, before = killed(20, config=TINY)
    fs.flip_bit(path(8, ".log"), 100)
    log = open_log(fs)
    assert content(log) == before[: log.log_end_offset]
    assert log.segment_base_offsets == [0, 8]
    assert log.recovery.segments_removed == 1
    assert fs.exists(path(8, ".log"))
    assert not fs.exists(path(16, ".log"))


@pytest.mark.parametrize("position", [8, 20, 30, 100])
@pytest.mark.parametrize("config", [BIG, TINY])
def test_damage_below_the_recovery_point_is_reported_and_nothing_is_touched(position: int, config: LogConfig) -> None:
    fs, _ = killed(20, config=config, flushed=18)
    base = 0 if config is BIG else 16
    fs.flip_bit(path(base, ".log"), position)
    before = snapshot_of(fs)
    with pytest.raises(CorruptRecordError, match="Nothing was cut or deleted"):
        open_log(fs, config=config, recovery_point=18)
    assert {name: snapshot_of(fs)[name] for name in before} == before


TIMESTAMP = 36
"""Of a batch: a byte of its largest timestamp, zero for the next centuries."""


def test_a_timestamp_that_the_time_index_would_know_is_damage() -> None:
    """The index says the largest so far; one before it that is larger would make its entries fall."""
    fs, log = filled(5, config=LogConfig())
    log.close(T0)
    fs.flip_bit(path(0, ".log"), TIMESTAMP)
    with pytest.raises(CorruptRecordError, match=r"checksum .* everything below offset 5 was flushed"):
        open_log(fs, config=LogConfig(), recovery_point=5, clean=True)


def test_a_timestamp_that_the_time_index_would_know_is_met_by_a_cut() -> None:
    fs, log = filled(5, config=LogConfig())
    log.close(T0)
    log = open_log(fs, config=LogConfig(), recovery_point=5, clean=True)
    append(log, 1)
    fs.flip_bit(path(0, ".log"), TIMESTAMP)
    with pytest.raises(CorruptRecordError, match="the largest up to offset 4 is"):
        log.truncate_to(5)


def test_a_log_that_ends_below_the_recovery_point_is_refused() -> None:
    fs, before = killed(5, flushed=5)
    write_file(fs, path(0, ".log"), b"".join(before[:4]))
    for clean in (True, False):
        with pytest.raises(CorruptRecordError, match="everything below offset 5 was flushed"):
            open_log(fs, recovery_point=5, clean=clean)
    fs.remove(path(0, ".log"))
    with pytest.raises(CorruptRecordError, match="no segment files"):
        open_log(fs, recovery_point=5)


def test_a_segment_that_lost_its_end_at_a_batch_border_is_a_hole_and_not_a_gap() -> None:
    fs, before = killed(20, config=TINY)
    write_file(fs, path(8, ".log"), b"".join(before[8:12]))
    log = open_log(fs)
    assert content(log) == before[:12]
    fs, before = killed(20, config=TINY, flushed=13)
    write_file(fs, path(8, ".log"), b"".join(before[8:12]))
    with pytest.raises(CorruptRecordError, match="the segment ends here"):
        open_log(fs, recovery_point=13)


def closed(count: int = 40) -> tuple[SimulatedFileSystem, list[bytes]]:
    fs, log = filled(count)
    before = content(log)
    log.close(T0)
    return fs, before


def reopen_clean(fs: SimulatedFileSystem, count: int = 40) -> Log:
    return open_log(fs, recovery_point=count, clean=True)


def test_a_clean_open_scans_nothing_and_changes_nothing() -> None:
    fs, before = closed()
    files = snapshot_of(fs)
    log = reopen_clean(fs)
    assert (content(log), log.recovery.segments_scanned, log.flushed_offset) == (before, 0, 40)
    log.close(T0)
    assert snapshot_of(fs) == files


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["remove", "empty", "short", "zeros", "noise"])
def test_no_index_or_snapshot_changes_an_answer(suffix: str, damage: str) -> None:
    fs, before = closed()
    for name in fs.list_dir(DIRECTORY):
        if not name.endswith(suffix):
            continue
        data = read_file(fs, f"{DIRECTORY}/{name}")
        match damage:
            case "remove":
                fs.remove(f"{DIRECTORY}/{name}")
            case "empty":
                write_file(fs, f"{DIRECTORY}/{name}", b"")
            case "short":
                write_file(fs, f"{DIRECTORY}/{name}", data[:-3])
            case "zeros":
                write_file(fs, f"{DIRECTORY}/{name}", bytes(len(data) + 240))
            case _ if suffix == ".timeindex":
                write_file(fs, f"{DIRECTORY}/{name}", b"\x7f" * len(data))
            case _:
                write_file(fs, f"{DIRECTORY}/{name}", bytes(range(48)))
    log = reopen_clean(fs)
    assert content(log, max_bytes=300) == before
    for offset in range(40):
        assert log.read(offset, max_bytes=1, end_offset=40, min_one_batch=True) == before[offset]
    append(log, 3)
    assert offsets(log) == list(range(43))
    log.close(T0)
    assert offsets(open_log(fs, recovery_point=43, clean=True)) == list(range(43))


@pytest.mark.parametrize("damage", ["remove", "empty", "short"])
def test_times_are_found_without_time_indexes(damage: str) -> None:
    fs, _ = closed()
    for name in fs.list_dir(DIRECTORY):
        if name.endswith(".timeindex"):
            fs.remove(f"{DIRECTORY}/{name}")
            if damage != "remove":
                write_file(fs, f"{DIRECTORY}/{name}", b"" if damage == "empty" else b"1234567")
    log = reopen_clean(fs)
    for offset in range(40):
        assert log.offset_for_timestamp(T0 + offset, end_offset=40) == (offset, T0 + offset)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("data", [None, b"", b"0\n5\n0 0\n"])
def test_epochs_are_rebuilt_from_the_log(clean: bool, data: bytes | None) -> None:
    fs, log = filled(10)
    append(log, 10, leader_epoch=2)
    append(log, 10, leader_epoch=5)
    log.close(T0)
    name = f"{DIRECTORY}/leader-epoch-checkpoint"
    fs.remove(name)
    if data is not None:
        write_file(fs, name, data)
    log = open_log(fs, recovery_point=30, clean=clean)
    assert log.recovery.epochs_rebuilt
    assert log.leader_epochs.entries == implied_epochs(log) == [(0, 0), (2, 10), (5, 20)]
    assert read_file(fs, name) == b"0\n3\n0 0\n2 10\n5 20\n"


def test_leftovers_are_swept() -> None:
    fs, before = killed(5)
    for name in (path(0, ".log.deleted"), path(3, ".index"), path(9, ".log.cleaned"), path(99, ".snapshot")):
        write_file(fs, name, b"12345678")
    assert content(open_log(fs)) == before
    assert not [name for name in fs.list_dir(DIRECTORY) if name.endswith((".deleted", ".cleaned"))]
    assert not fs.exists(path(3, ".index"))
    assert not fs.exists(path(99, ".snapshot"))


def test_a_log_start_above_the_log_end_begins_anew_there() -> None:
    fs, _ = killed(5)
    log = open_log(fs, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, content(log)) == (50, 50, [])


def test_a_log_start_inside_a_segment_is_kept() -> None:
    fs, _ = closed()
    log = open_log(fs, recovery_point=40, log_start_offset=9, clean=True)
    assert offsets(log) == list(range(9, 40))
    assert log.leader_epochs.entries == [(0, 0)]


def test_an_index_beside_what_a_compaction_left_tells_of_a_log_that_is_gone() -> None:
    """The log began behind it, and nobody was told."""
    half_deleted = [f"{0:020d}.log.deleted", f"{0:020d}.index", f"{7:020d}.log"]
    assert lost_segments(half_deleted, 0, was_clean=False) == []
    assert lost_segments(half_deleted, 0, was_clean=True) == [0]
    assert lost_segments([*half_deleted, f"{0:020d}.index.deleted"], 0, was_clean=False) == [0]
