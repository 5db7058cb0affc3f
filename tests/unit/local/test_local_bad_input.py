"""What `open_log` and its log refuse, and that nothing has happened then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from local_kit import values

import replog
from replog.errors import ConfigError, CorruptRecordError, InvalidRecordError, RecordTooLargeError, StorageError
from replog.local import NewRecord
from replog.records import scan


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"flush": "never"}, 'must be one of "always", "os"'),
        ({"segment_bytes": 100}, "from 1024"),
        ({"segment_bytes": True}, "integer"),
        ({"segment_bytes": "1 GiB"}, "integer"),
        ({"segment_ms": 0}, "or None"),
        ({"retention_ms": -1}, "or None"),
        ({"retention_bytes": 0}, "from 1"),
        ({"max_batch_bytes": 1}, "from 512"),
        ({"flush_interval_ms": -1}, "from 0"),
        ({"codec": "brotli"}, '"none", "gzip", "snappy", "lz4", "zstd"'),
        ({"codec": None}, "must be one of"),
        ({"colour": "red"}, "no setting 'colour'; it has flush"),
        ({"read_only": True, "flush": "os"}, "no meaning with read_only"),
    ],
)
def test_wrong_settings(tmp_path: Path, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        replog.open_log(tmp_path / "log", **settings)
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("path", "error"),
    [("", ConfigError), ("a\0b", ConfigError), (b"bytes", TypeError), (7, TypeError), (None, TypeError)],
)
def test_wrong_paths(path: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        replog.open_log(path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(StorageError, match="is a file"):
        replog.open_log(tmp_path / "file")
    with pytest.raises(StorageError, match=r"Check the path|cannot|Not a directory|is a file"):
        replog.open_log(tmp_path / "file" / "log")
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_bytes(b"mine")
    with pytest.raises(StorageError, match=r"it holds diary\.txt"):
        replog.open_log(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("text",), TypeError),
        ((7,), TypeError),
        ((b"v", "key"), TypeError),
        ((b"v", b"k", [("name", "text")]), TypeError),
        ((b"v", b"k", [(b"name", b"v")]), TypeError),
        ((b"v", b"k", [b"name"]), TypeError),
        ((b"v", b"k", [("\ud800", b"")]), InvalidRecordError),
        ((b"v", b"k", (), "2024"), TypeError),
        ((b"v", b"k", (), True), TypeError),
        ((b"v", b"k", (), -1), InvalidRecordError),
        ((b"v", b"k", (), 2**63), InvalidRecordError),
        ((b"v" * 2000,), RecordTooLargeError),
        ((b"v", b"k" * 2000), RecordTooLargeError),
        ((b"v", b"k", [("h", b"x" * 2000)]), RecordTooLargeError),
    ],
)
def test_a_wrong_record_is_refused_and_nothing_is_written(
    tmp_path: Path, arguments: Any, error: type[Exception]
) -> None:
    record = NewRecord(*arguments)
    with replog.open_log(tmp_path / "log", max_batch_bytes=1000) as log:
        with pytest.raises(error):
            log.append(record.value, record.key, headers=record.headers, timestamp_ms=record.timestamp_ms)
        with pytest.raises(error):
            log.append_many([b"fine", record, b"fine"])
        assert log.append(b"goes on") == 0
        assert values(log) == [b"goes on"]


@pytest.mark.parametrize("records", [b"one", "one", [("a", "b", "c")], [(b"v", b"k", b"x")], 7])
def test_append_many_wants_records(tmp_path: Path, records: Any) -> None:
    with replog.open_log(tmp_path / "log") as log, pytest.raises(TypeError):
        log.append_many(records)


@pytest.mark.parametrize("offset", ["0", 1.0, None, True])
def test_offsets_are_integers(tmp_path: Path, offset: Any) -> None:
    with replog.open_log(tmp_path / "log") as log:
        for use in (log.read, log.truncate_before, log.wait_for):
            with pytest.raises(TypeError, match="is an int"):
                use(offset)


def test_a_record_fits_into_half_a_segment(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log", segment_bytes=2048) as log:
        assert log.append(b"x" * 900) == 0
        with pytest.raises(RecordTooLargeError, match="max_batch_bytes"):
            log.append(b"x" * 1000)


def test_a_missing_codec_library_is_found_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from replog.errors import UnsupportedCompressionError

    monkeypatch.setitem(sys.modules, "cramjam", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UnsupportedCompressionError, match=r"pip install .*cramjam"):
        replog.open_log(tmp_path / "log", codec="zstd")
    assert not (tmp_path / "log").exists()


def test_a_wrong_offset_is_no_order_and_hides_nothing(tmp_path: Path) -> None:
    """No checksum covers a base offset; batches that are not one behind the other say that it changed."""
    with replog.open_log(tmp_path / "log") as log:
        for number in range(3):
            log.append_many([b"%d" % number] * 10)
    (file,) = (tmp_path / "log").glob("**/*.log")
    data = bytearray(file.read_bytes())
    second = [header.position for header in scan(data)][1]
    for bit in range(3):
        damaged = bytearray(data)
        damaged[second + 7] ^= 1 << bit
        file.write_bytes(damaged)
        for read in (
            list,
            lambda log: [log.read(offset) for offset in (0, 10, 20)],
            lambda log: list(log.arrow_batches()),
        ):
            # where the timestamps of the batches differ, the last entry of the time index notices it at opening
            with (
                pytest.raises(
                    CorruptRecordError, match=r"at byte \d+: (no batch that follows|offsets .* (cannot|are missing))"
                ),
                replog.open_log(tmp_path / "log", read_only=True) as log,
            ):
                read(log)
