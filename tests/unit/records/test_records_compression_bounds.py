"""Bounds of decompression: bombs, lies, torn and doubled streams.  One test per way in which bytes may mislead."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from replog import records as r
from replog.errors import InvalidRecordError
from replog.records import compression
from replog.records.compression import compress, compress_batch, decompress, decompressed_bytes_limit
from replog.records.frames import LZ4_BLOCK_BYTES
from tests.records_codecs import empty_batch

MIB = 1 << 20
PLAIN = b"abcdefgh" * 5000
COMPRESSING = [codec for codec in r.Codec if codec]
FRAMED = [r.Codec.LZ4, r.Codec.ZSTD]
XERIAL = bytes.fromhex("82534e4150505900") + struct.pack(">ii", 1, 1)


@pytest.fixture(autouse=True)
def library() -> Any:
    return pytest.importorskip("cramjam", reason="the extra replog[compression] is not installed")


def chunk(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block


# ---- limits -------------------------------------------------------------------------------------------------------------


def test_the_ratio_counts_above_what_honest_batches_reach() -> None:
    assert decompressed_bytes_limit(10, 128 * MIB) == 32 * MIB
    assert decompressed_bytes_limit(64 * 1024, 128 * MIB) == 64 * MIB
    assert decompressed_bytes_limit(MIB, 128 * MIB) == 128 * MIB
    assert decompressed_bytes_limit(MIB, 1000) == 1000


def test_an_honest_batch_that_shrinks_to_nothing_is_read() -> None:
    data = bytes(31 * MIB)
    assert decompress(r.Codec.ZSTD, compress(r.Codec.ZSTD, data), 128 * MIB) == data


@pytest.mark.parametrize("codec", [r.Codec.GZIP, r.Codec.ZSTD])
def test_kilobytes_that_claim_much_are_refused_by_their_ratio(codec: r.Codec) -> None:
    bomb = compress(codec, bytes(33 * MIB))
    assert len(bomb) < 40_000
    if codec is r.Codec.GZIP:  # its format cannot pass the ratio, so the absolute cap has to
        with pytest.raises(InvalidRecordError, match="more than"):
            decompress(codec, bomb, 32 * MIB)
    else:
        with pytest.raises(InvalidRecordError, match=f"more than {32 * MIB}"):
            decompress(codec, bomb, 1 << 40)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_what_is_encoded_can_be_decoded(codec: r.Codec) -> None:
    value = bytes(34 * MIB)
    batch = r.encode_batch([(0, None, value, ())], codec=codec)
    assert r.decode_batch(batch)[0].value == value
    assert r.parse_header(batch).codec in {codec, r.Codec.NONE}


def test_a_batch_above_the_cap_is_not_compressed() -> None:
    data = bytearray(os.urandom(MIB) * 2)
    data *= 65  # 130 MiB that compression would halve at best
    assert compression.compress_readable(r.Codec.LZ4, data) is None


def test_only_files_of_this_machine_are_read_without_the_ratio() -> None:
    bomb = compress(r.Codec.ZSTD, bytes(33 * MIB))
    assert len(decompress(r.Codec.ZSTD, bomb, r.TRUSTED_DECOMPRESSED_BYTES_MAX)) == 33 * MIB
    with pytest.raises(InvalidRecordError, match=f"more than {32 * MIB}"):
        decompress(r.Codec.ZSTD, bomb, r.TRUSTED_DECOMPRESSED_BYTES_MAX - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_limit_itself_is_allowed_and_one_less_is_not(codec: r.Codec) -> None:
    data = compress(codec, PLAIN)
    assert decompress(codec, data, len(PLAIN)) == PLAIN
    with pytest.raises(InvalidRecordError, match="more than"):
        decompress(codec, data, len(PLAIN) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: r.Codec) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError):
            decompress(codec, bomb, 2 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 2 * MIB + len(bomb)


def test_the_libraries_too_take_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    """What tracemalloc cannot see: a process with 128 MiB of address space to spare meets bombs of 256 MiB."""
    bombs = tmp_path / "bombs"
    zeros = bytes(16 * MIB)
    bombs.write_bytes(pickle.dumps([(int(codec), compress(codec, zeros) * 16) for codec in COMPRESSING]))
    script = """
import pickle, resource, sys
from replog.records.compression import decompress
from replog.records import Codec
from replog.errors import InvalidRecordError
import cramjam
bombs = pickle.load(open(sys.argv[1], "rb"))
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, ((pages * 4096) + (128 << 20),) * 2)
for codec, data in bombs:
    try:
        decompress(Codec(codec), data, 16 << 20)
    except InvalidRecordError as error:
        print("refused")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run(
        [sys.executable, "-c", script, str(bombs)], env=environment, capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["refused"] * len(COMPRESSING)


def test_many_small_bombs_in_one_call_are_one_large_one(implementation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [r.encode_batch([(1, None, bytes(MIB), ())], base_offset=i, codec=r.Codec.GZIP) for i in range(4)]
    monkeypatch.setattr(implementation, "DECOMPRESSED_CALL_BYTES_MAX", 3 * MIB)
    assert len(r.decode_records(b"".join(batches[:2]))) == 2
    for decode in (r.decode_records, r.decode_columns):
        with pytest.raises(InvalidRecordError, match="more than"):
            decode(b"".join(batches))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_count_that_the_bytes_could_not_hold_makes_no_offsets(implementation: Any, codec: r.Codec) -> None:
    """Offsets may follow from the header alone, so a header alone must not be worth gigabytes."""
    batch = bytearray(r.encode_batch([(1, None, None, ())], codec=codec))
    struct.pack_into(">i", batch, 23, 2**31 - 2)
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    lie = compression.with_section(batch, codec, batch[61:])
    with pytest.raises(InvalidRecordError, match="cannot stand in"):
        r.decode_columns(lie, with_timestamps=False, with_keys=False, with_values=False)


# ---- streams ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSING)
def test_streams_may_follow_each_other_and_count_together(codec: r.Codec) -> None:
    twice = compress(codec, PLAIN) * 2
    assert decompress(codec, twice, 2 * len(PLAIN)) == PLAIN * 2
    with pytest.raises(InvalidRecordError, match="more than"):
        decompress(codec, twice, 2 * len(PLAIN) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("garbage", [b"\x00", b"garbage!", bytes(100), b"\x1f\x8b"])
def test_what_follows_a_stream_and_is_none_is_refused(codec: r.Codec, garbage: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        decompress(codec, compress(codec, PLAIN) + garbage, MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_cut_is_refused(codec: r.Codec) -> None:
    data = compress(codec, PLAIN[:3000] + os.urandom(100))
    whole_chunks = {16} if codec is r.Codec.SNAPPY else set()  # a snappy stream may end after its header
    for cut in set(range(len(data))) - whole_chunks:
        with pytest.raises(InvalidRecordError):
            decompress(codec, data[:cut], MIB)


def test_gzip_members_are_counted() -> None:
    member = gzip.compress(b"")
    allowed = compression.GZIP_MEMBERS_MAX
    assert decompress(r.Codec.GZIP, member * allowed, MIB) == b""
    with pytest.raises(InvalidRecordError, match="members"):
        decompress(r.Codec.GZIP, member * 1_000_000, MIB)


@pytest.mark.parametrize("position", [-1, -5])
def test_gzip_checks_its_checksum_and_length(position: int) -> None:
    data = bytearray(compress(r.Codec.GZIP, PLAIN))
    data[position] ^= 1
    with pytest.raises(InvalidRecordError, match="gzip"):
        decompress(r.Codec.GZIP, data, MIB)


# ---- zstd ---------------------------------------------------------------------------------------------------------------


def zstd_frame(content_bytes: int, block: bytes) -> bytes:
    """A single-segment frame with an eight-byte content size and one raw block."""
    return bytes.fromhex("28b52ffd") + b"\xe0" + struct.pack("<Q", content_bytes) + _last_raw_block(block)


def _last_raw_block(block: bytes) -> bytes:
    return (len(block) << 3 | 1).to_bytes(3, "little") + block


def test_a_zstd_frame_that_states_its_size_truly_is_read() -> None:
    assert decompress(r.Codec.ZSTD, zstd_frame(300, b"x" * 300), MIB) == b"x" * 300


@pytest.mark.parametrize("lie", [0, 299, 301, 2**31, 2**62])
def test_a_zstd_frame_that_lies_about_its_size_is_refused(lie: int) -> None:
    with pytest.raises(InvalidRecordError):
        decompress(r.Codec.ZSTD, zstd_frame(lie, b"x" * 300), MIB)


def test_a_zstd_window_beyond_the_readers_is_refused() -> None:
    window_of_2_gib = bytes.fromhex("28b52ffd") + b"\x00" + bytes([21 << 3]) + _last_raw_block(b"x")
    with pytest.raises(InvalidRecordError):
        decompress(r.Codec.ZSTD, window_of_2_gib, MIB)


def test_skippable_zstd_frames_are_skipped() -> None:
    skippable = bytes.fromhex("502a4d18") + struct.pack("<I", 4) + b"note"
    assert decompress(r.Codec.ZSTD, skippable + zstd_frame(1, b"x"), MIB) == b"x"


# ---- lz4 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", b"x" * LZ4_BLOCK_BYTES, b"x" * (LZ4_BLOCK_BYTES + 1), os.urandom(200_000)])
def test_lz4_is_written_in_kafkas_framing(data: bytes) -> None:
    frame = compress(r.Codec.LZ4, data)
    assert frame[:7].hex() == "04224d18604082"  # as in the golden vector: the checksum of the descriptor is right
    position, blocks = 7, 0
    while (length := int.from_bytes(frame[position : position + 4], "little")) != 0:
        assert length & 0x7FFF_FFFF <= LZ4_BLOCK_BYTES
        position += 4 + (length & 0x7FFF_FFFF)
        blocks += 1
    assert position + 4 == len(frame)
    assert blocks == -(-len(data) // LZ4_BLOCK_BYTES)
    assert decompress(r.Codec.LZ4, frame, len(data)) == data


@pytest.mark.parametrize("options", [{"block_linked": True}, {"block_linked": False, "content_checksum": True}])
def test_lz4_frames_that_others_write_are_read(library: Any, options: dict[str, bool]) -> None:
    """Linked blocks too: Kafka refuses them, and refusing what can be read would help nobody."""
    other = library.lz4.Compressor(**options)
    other.compress(PLAIN * 5)
    assert decompress(r.Codec.LZ4, bytes(other.finish()), MIB) == PLAIN * 5


@pytest.mark.parametrize("position", [6, -1])  # of the descriptor, of the content
def test_lz4_checksums_are_checked(library: Any, position: int) -> None:
    other = library.lz4.Compressor(content_checksum=True, block_linked=False)
    other.compress(PLAIN)
    frame = bytearray(bytes(other.finish()))
    decompress(r.Codec.LZ4, frame, MIB)
    frame[position] ^= 1
    with pytest.raises(InvalidRecordError, match="lz4"):
        decompress(r.Codec.LZ4, frame, MIB)


# ---- snappy -------------------------------------------------------------------------------------------------------------


def test_a_snappy_block_that_claims_more_than_the_format_can_is_refused_before_memory_is_taken() -> None:
    claims_16_mib = b"\x80\x80\x80\x08" + b"\x00x"
    with pytest.raises(InvalidRecordError, match="claim"):
        decompress(r.Codec.SNAPPY, XERIAL + chunk(claims_16_mib), 64 * MIB)
    with pytest.raises(InvalidRecordError, match="claim"):
        decompress(r.Codec.SNAPPY, claims_16_mib, 64 * MIB)  # without the framing too


@pytest.mark.parametrize(
    "stream",
    [
        XERIAL[:12],
        XERIAL + b"\0\0",
        XERIAL + struct.pack(">i", -5) + b"12345",
        XERIAL + struct.pack(">i", 2**31 - 1) + b"12345",
        XERIAL + chunk(b""),
        XERIAL + chunk(b"\xff" * 10),
        XERIAL[:12] + struct.pack(">i", 2) + chunk(b"\x01\x00x"),
        b"",
    ],
    ids=[
        "header cut",
        "length cut",
        "negative",
        "beyond the end",
        "empty block",
        "no size",
        "later version",
        "nothing",
    ],
)
def test_snappy_streams_that_are_none(stream: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        decompress(r.Codec.SNAPPY, stream, MIB)


# ---- batches ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_retained_batch_without_records_needs_no_stream(implementation: Any, codec: r.Codec) -> None:
    empty = empty_batch(base_offset=5, last_offset=9, max_timestamp=1)
    marked = compression.with_section(empty, codec, b"")
    assert r.decode_batch(marked) == []
    assert r.decode_columns(marked).count == r.check_records(marked) == 0


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_behind_the_last_record_are_refused_in_every_codec(implementation: Any, codec: r.Codec) -> None:
    plain = r.encode_batch([(1, b"k", b"v", ())])
    bad = compression.with_section(plain, codec, compress(codec, plain[61:] + b"\0"))
    with pytest.raises(InvalidRecordError, match="left after"):
        r.decode_batch(bad)
    assert len(r.decode_batch(compress_batch(plain, codec))) == 1
