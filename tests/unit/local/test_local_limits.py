"""What a log takes, it gives back: large compressible values, and what stands in front of something unreadable."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_kit import PARTITION, open_simulated, values

import replog
from replog import records as r
from replog.errors import CorruptRecordError
from replog.local import open_log
from replog.log.repair.verification import Finding, FindingKind, LogVerifier
from replog.records.compression import compress, with_section
from replog.testing import SimulatedFileSystem
from replog_checkpoints import OpenMode

MIB = 1 << 20
FILE = f"{PARTITION}/{0:020d}.log"


def verified(disk: SimulatedFileSystem) -> list[Finding]:
    return list(LogVerifier(disk, PARTITION, None).run())


def rewrite_last_batch(disk: SimulatedFileSystem, codec: r.Codec, section: bytes) -> None:
    """The last batch gets another records section; its checksum fits."""
    file = disk.open(FILE, OpenMode.WRITE)
    data = file.pread(file.size(), 0)
    last = list(r.scan(data))[-1]
    file.truncate(last.position)
    file.pwrite([with_section(data[last.position :], codec, section)], last.position)
    file.close()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_large_compressible_value_comes_back(codec: str) -> None:
    pytest.importorskip("cramjam")
    disk, large = SimulatedFileSystem(), bytes(34 * MIB)
    with open_simulated(disk, codec=codec, max_batch_bytes=100 * MIB) as log:
        log.append_many([b"before", b"before"])
        log.append(large)
        log.append(b"after")
        assert values(log) == [b"before", b"before", large, b"after"]
    assert verified(disk) == []


def test_many_batches_that_are_little_on_the_disk_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cramjam")
    monkeypatch.setattr(r.batch._codec, "DECOMPRESSED_CALL_BYTES_MAX", 8 * MIB)
    disk, large = SimulatedFileSystem(), bytes(3 * MIB)
    with open_simulated(disk, codec="zstd", max_batch_bytes=4 * MIB) as log:
        for _ in range(8):  # together more than one call may decode
            log.append(large)
        assert sum(record.value == large for record in log) == 8
        assert log.read(0)[0].value == large


def test_what_older_versions_wrote_is_read() -> None:
    """They compressed whatever came: 40 MB became a kilobyte that nobody decoded."""
    pytest.importorskip("cramjam")
    disk, large = SimulatedFileSystem(), bytes(40 * MIB)
    with open_simulated(disk, max_batch_bytes=100 * MIB) as log:
        log.append(b"before")
        log.append(large)
    file = disk.open(FILE, OpenMode.READ)
    data = file.pread(file.size(), 0)
    body = data[list(r.scan(data))[-1].position + r.HEADER_BYTES :]
    file.close()
    rewrite_last_batch(disk, r.Codec.ZSTD, compress(r.Codec.ZSTD, body))
    with open_log(PARTITION, read_only=True, file_system=disk) as log:
        assert values(log) == [b"before", large]
    assert [finding.kind for finding in verified(disk)] == []


def test_what_cannot_be_decoded_is_an_error_with_a_place_behind_what_can() -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk) as log:
        log.append(b"first")
        log.append(b"second")
        log.append(b"third")
    rewrite_last_batch(disk, r.Codec.NONE, b"\x7f" * 20)
    with open_log(PARTITION, read_only=True, file_system=disk) as log:
        assert [record.value for record in log.read(0)] == [b"first", b"second"]
        seen = log.iterate()
        assert [next(seen).value, next(seen).value] == [b"first", b"second"]
        with pytest.raises(CorruptRecordError) as caught:
            next(seen)
    assert caught.value.path == FILE
    (finding,) = verified(disk)
    assert finding.kind is FindingKind.TORN  # nobody told the verifier what was flushed
    assert (finding.position, finding.offset) == (caught.value.position, 2)


def test_arrow_gives_what_is_in_front_of_damage(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with replog.open_log(tmp_path / "log") as log:
        log.append(b"first")
        log.append(b"second")
    path = tmp_path / "log" / "log-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with replog.open_log(tmp_path / "log") as log:
        batches = log.arrow_batches(columns=["value"])
        assert next(batches).column("value").to_pylist() == [b"first"]
        with pytest.raises(CorruptRecordError, match=r"0\.log"):
            next(batches)
