"""Indexes of sealed segments: mapped, bounded, replaced by renames, and never believed without a check."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from log_test_kit import T0, append, open_log, read_file, write_file

from replog.errors import CorruptRecordError
from replog.log import Log, LogConfig
from replog.log.segments.index_cache import INDEX_CACHE, IndexCache
from replog.log.segments.index_entries import without_trailing_zeros
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem, OsFileSystem

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=100, retention_ms=1000)
DIRECTORY = "/data/t-0"
COUNT = 80


def path(suffix: str, offset: int = 0) -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def sealed(fs: FileSystem | None = None, directory: str = DIRECTORY) -> tuple[SimulatedFileSystem, Log]:
    disk = fs or SimulatedFileSystem()
    log = open_log(disk, directory, CONFIG)
    append(log, COUNT)
    log.flush()
    return disk, log  # type: ignore[return-value] -- a real disk only where the test asked for it


def forget_maps(log: Log) -> None:
    for segment in log._state.segments:
        segment.drop_maps()
        segment._largest_timestamp = None
        segment._verified = 0
    log._state.segments._forget_timestamps()


def check(log: Log) -> None:
    for offset in range(COUNT):
        assert log.read(offset, max_bytes=1, end_offset=COUNT, min_one_batch=True)[:8] == offset.to_bytes(8, "big")
        assert log.offset_for_timestamp(T0 + offset, end_offset=COUNT) == (offset, T0 + offset)


def damage(data: bytes, kind: str) -> bytes | None:
    match kind:
        case "missing":
            return None
        case "empty":
            return b""
        case "half":
            return data[:-3]
        case "short":  # whole entries, the last ones gone
            return data[: len(data) // 24 // 2 * 24]
        case "zeros":
            return bytes(len(data))
        case "noise":
            return random.Random(7).randbytes(len(data))
        case _:
            return data + data


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("kind", ["missing", "empty", "half", "short", "zeros", "noise", "twice"])
def test_what_goes_wrong_while_the_log_is_open_is_noticed_and_mended(suffix: str, kind: str) -> None:
    fs, log = sealed()
    good = {name: read_file(fs, path(name)) for name in (".index", ".timeindex")}
    forget_maps(log)
    data = damage(good[suffix], kind)
    fs.remove(path(suffix))
    if data is not None:
        write_file(fs, path(suffix), data)
    check(log)
    newest = max(log._state.segments[1].base_offset - 1, 0) + T0
    assert log._state.segments[0].largest_timestamp() == newest
    if log._state.segments[0].needs_rewrite:
        assert log._upkeep.mend_indexes() == 1
        forget_maps(log)
        check(log)
        assert not log._state.segments[0].needs_rewrite
        assert read_file(fs, path(".timeindex"))[-12:] == good[".timeindex"][-12:]
    else:
        assert kind == "twice" or (suffix, kind) in {(".index", "empty"), (".index", "short")}  # each entry is true
    assert log._upkeep.mend_indexes() == 0


def test_one_wrong_entry_in_the_middle_is_not_used() -> None:
    fs, log = sealed()
    for suffix, width in ((".index", 8), (".timeindex", 12)):
        data = bytearray(read_file(fs, path(suffix)))
        data[width * 3 + width - 1] ^= 1
        write_file(fs, path(suffix), bytes(data))
    forget_maps(log)
    check(log)


def test_retention_does_not_believe_a_time_index_that_lost_its_end() -> None:
    fs, log = sealed()
    forget_maps(log)
    write_file(fs, path(".timeindex"), read_file(fs, path(".timeindex"))[:12])
    newest = T0 + log._state.segments[1].base_offset - 1
    assert log.delete_old_segments(newest + 1000, high_watermark=COUNT) == 0
    assert log.delete_old_segments(newest + 1001, high_watermark=COUNT) == 1


def test_damage_deletes_nothing_by_age() -> None:
    fs, log = sealed()
    forget_maps(log)
    fs.remove(path(".timeindex"))
    fs.flip_bit(path(".log"), 16, 1)  # the magic of the first batch
    log._state.segments[0]._file = None
    assert log.delete_old_segments(T0 + 10**9, high_watermark=COUNT) == 0
    with pytest.raises(CorruptRecordError):
        log._state.segments[0].largest_timestamp()


def test_a_map_survives_the_replacement_of_its_file(tmp_path: Path) -> None:
    """SIGBUS would end the process here if the file were written in place."""
    _, log = sealed(OsFileSystem(), str(tmp_path / "t-0"))
    segment = log._state.segments[0]
    check(log)
    index = segment.reader()._index
    assert index is not None
    before = [index.entry(number) for number in range(index.count)]
    for file in segment.rewrite_indexes():
        file.truncate(0)
        file.close()
    assert [index.entry(number) for number in range(index.count)] == before
    log.truncate_to(3)
    assert [index.entry(number) for number in range(index.count)] == before
    log.close(T0)


def test_maps_go_with_their_segments() -> None:
    before = len(INDEX_CACHE)
    _, log = sealed()
    check(log)
    assert len(INDEX_CACHE) > before
    log.set_log_start_offset(COUNT)
    log.delete_old_segments(T0, high_watermark=COUNT)
    log.remove_deleted_files(T0 + 10**9)
    assert len(INDEX_CACHE) == before
    _, log = sealed()
    check(log)
    log.truncate_to(3)
    assert len(INDEX_CACHE) == before
    _, log = sealed()
    check(log)
    log.close(T0)
    assert len(INDEX_CACHE) == before


@pytest.mark.parametrize("size", [1, 5000])
def test_the_cache_is_bounded_and_drops_what_was_used_longest_ago(size: int) -> None:
    cache, view = IndexCache(2, 2), memoryview(size * b"x")
    assert (cache.put("a", "k", view) is view) == (size > 4096)  # a small one is copied
    cache.put("b", "k", view)
    assert cache.get("a", "k") == view
    cache.put("c", "k", view)
    assert (len(cache), cache.get("b", "k"), cache.get("a", "k")) == (2, None, view)
    cache.drop("a", "k")
    cache.drop("nobody", "k")
    assert cache.get("a", "k") is None


def test_preallocated_zeros_are_no_entries() -> None:
    assert without_trailing_zeros(b"\0\0\0\1\0\0\1\0" + bytes(80), 8) == b"\0\0\0\1\0\0\1\0"
    assert without_trailing_zeros(b"\0\0\0\1\0\0\1\0", 8) == b"\0\0\0\1\0\0\1\0"
    assert without_trailing_zeros(bytes(80), 8) == b""
    assert without_trailing_zeros(b"", 8) == b""
    assert without_trailing_zeros(bytes(7), 8) == bytes(7)
