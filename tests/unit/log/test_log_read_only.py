"""Opening for reading: recovery happens in memory, and no byte on disk changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_test_kit import T0, TINY, append, batch, content, filled, offsets, open_log, read_file, write_file

from replog.errors import CorruptRecordError, ReadOnlyLogError, StorageError
from replog.log import Log, LogConfig
from replog.log.recovery.promises import Promises
from replog.log.recovery.read_only_view import ReadOnlyView
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem, OpenMode, write_offset_checkpoint

DIRECTORY = "/data/t-0"


def path(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def read_only(fs: FileSystem, config: LogConfig = TINY, **arguments: object) -> Log:
    return Log.open_read_only(fs, DIRECTORY, config, now_ms=T0, **arguments)  # type: ignore[arg-type] -- any of its own


def killed(count: int = 20) -> SimulatedFileSystem:
    fs, _ = filled(count)
    fs.kill()
    return fs


def torn(fs: SimulatedFileSystem) -> None:
    data = read_file(fs, path(16, ".log"))
    write_file(fs, path(16, ".log"), data[:-5])


def without_indexes(fs: SimulatedFileSystem) -> None:
    for name in fs.list_dir(DIRECTORY):
        if not name.endswith(".log"):
            fs.remove(f"{DIRECTORY}/{name}")


def preallocated(fs: SimulatedFileSystem) -> None:
    write_file(fs, path(16, ".index"), bytes(65536))
    write_file(fs, path(16, ".timeindex"), bytes(65532))


def deleted(fs: SimulatedFileSystem) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        fs.rename(path(0, suffix), path(0, suffix) + ".deleted")


def swapped(fs: SimulatedFileSystem) -> None:
    """0 and 8 were compacted into one, and Kafka was killed before it had deleted them."""
    write_file(fs, path(0, ".log.swap"), read_file(fs, path(0, ".log")) + read_file(fs, path(8, ".log")))


def half_cleaned(fs: SimulatedFileSystem) -> None:
    write_file(fs, path(0, ".log.cleaned"), b"half")


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (lambda _: None, range(20)),
        (torn, range(19)),
        (without_indexes, range(20)),
        (preallocated, range(20)),
        (deleted, range(8, 20)),
        (swapped, range(20)),
        (half_cleaned, range(20)),
    ],
)
@pytest.mark.parametrize("verify_all", [False, True])
def test_no_byte_changes(prepare: Callable[[SimulatedFileSystem], None], expected: range, verify_all: bool) -> None:
    fs = killed()
    prepare(fs)
    before, operations = fs.image(), fs.faults.operation_count
    log = read_only(fs, verify_all=verify_all)
    assert offsets(log) == list(expected)
    assert log.offset_for_timestamp(T0 + 17, end_offset=99) == (17, T0 + 17)
    assert log.leader_epochs.entries == [(0, expected[0])]
    log.close(T0)
    assert fs.image() == before
    assert fs.faults.operation_count == operations


def test_a_swap_counts_as_what_it_replaces() -> None:
    fs = killed()
    swapped(fs)
    assert read_only(fs).segment_base_offsets == [0, 16]


def test_whatever_would_change_it_is_refused() -> None:
    log = read_only(killed())
    for change in (
        lambda: log.append_as_leader(batch(), leader_epoch=0, now_ms=T0),
        lambda: log.append_as_follower(batch(), now_ms=T0),
        lambda: log.truncate_to(3),
        lambda: log.set_log_start_offset(3),
        lambda: log.delete_old_segments(T0, 20),
        lambda: log.roll(T0),
        log.flush,
    ):
        with pytest.raises(ReadOnlyLogError, match="for reading only"):
            change()
    assert not log.failed
    assert len(content(log)) == 20


def test_a_writer_may_go_on() -> None:
    fs, writer = filled(20)
    log = read_only(fs)
    append(writer, 20)
    writer.flush()
    assert offsets(log) == list(range(20))
    assert offsets(read_only(fs)) == list(range(40))


def test_the_checkpoints_beside_it_are_believed() -> None:
    fs = killed()
    write_offset_checkpoint(fs, "/data/log-start-offset-checkpoint", {("t", 0): 5})
    assert read_only(fs).log_start_offset == 5
    write_offset_checkpoint(fs, "/data/recovery-point-offset-checkpoint", {("t", 0): 20})
    torn(fs)
    with pytest.raises(CorruptRecordError, match="everything below offset 20 was flushed"):
        read_only(fs)
    assert offsets(read_only(fs, promises=Promises())) == list(range(19))
    write_file(fs, "/data/recovery-point-offset-checkpoint", b"?")
    assert read_only(fs).log_end_offset == 19


def test_damage_in_the_middle_is_found_where_it_is_looked_for() -> None:
    fs = killed()
    fs.flip_bit(path(8, ".log"), 100)
    assert read_only(fs).log_end_offset == 20  # only the last segment was read
    log = read_only(fs, verify_all=True)
    assert (log.log_end_offset, log.recovery.segments_removed) == (9, 1)


def test_no_directory_is_made() -> None:
    fs = SimulatedFileSystem()
    with pytest.raises(StorageError, match="cannot be read"):
        read_only(fs)
    assert not fs.exists(DIRECTORY)
    fs.make_dirs(DIRECTORY)
    assert read_only(fs).log_end_offset == 0
    assert fs.list_dir(DIRECTORY) == []


def test_progress_is_told() -> None:
    fs = killed()
    seen: list[tuple[int, int]] = []
    log = read_only(fs, verify_all=True, on_progress=seen.append)
    assert len(seen) == 3  # once a segment
    assert seen == sorted(seen)
    assert seen[-1] == (log.size_bytes, log.size_bytes)
    assert all(total == log.size_bytes for _, total in seen)


def test_the_view_refuses_to_write_what_is_on_disk() -> None:
    fs = killed()
    view = ReadOnlyView(fs, DIRECTORY)
    before = fs.image()
    file = view.open(path(0, ".log"), OpenMode.WRITE)
    for change in (
        lambda: file.pwrite([b"x"], 0),
        lambda: file.allocate(10_000),
        lambda: view.open("/data/other", OpenMode.REPLACE),
        lambda: view.rename(path(0, ".log"), "/data/other"),
        lambda: view.remove_tree(DIRECTORY),
        lambda: view.make_dirs("/data/other"),
        lambda: view.lock("/data/.lock"),
    ):
        with pytest.raises(OSError, match="Read-only"):
            change()
    file.truncate(10)
    assert (file.size(), view.size(path(0, ".log")), len(file.pread(99, 0)), len(file.map_read())) == (10, 10, 10, 10)
    assert file.pread_into(bytearray(99), 4) == 6
    assert view.open(path(0, ".log"), OpenMode.READ).size() == 10
    assert fs.image() == before


def test_the_unclean_log_opened_for_reading_is_the_one_recovered_for_writing() -> None:
    fs = killed()
    torn(fs)
    for_reading = content(read_only(fs))
    assert content(open_log(fs)) == for_reading
