"""Compression: every codec both ways, a ceiling on what comes out, and clear words when a library is missing."""

from __future__ import annotations

import gzip
import os
import sys
from typing import Any

import pytest

from replog import records as r
from replog.errors import InvalidRecordError, UnsupportedCompressionError
from replog.records.compression import compress, decompress, shrink_batch

NEEDS_LIBRARY = [r.Codec.SNAPPY, r.Codec.LZ4, r.Codec.ZSTD]
ROWS = [(i, b"key", b"value" * 5000, ()) for i in range(20)]


def installed(codec: r.Codec) -> None:
    if codec in NEEDS_LIBRARY:
        pytest.importorskip("cramjam", reason="the extra replog[compression] is not installed")


@pytest.mark.parametrize("codec", list(r.Codec))
def test_round_trip_and_smaller(implementation: Any, codec: r.Codec) -> None:
    installed(codec)
    batch = r.encode_batch(ROWS, codec=codec, base_offset=5)
    header = r.validate_produced(r.encode_batch(ROWS, codec=codec), max_batch_bytes=1_000_000)
    assert (header.codec, header.records_count) == (codec, 20)
    assert [record[1:] for record in r.decode_batch(batch)] == ROWS
    assert r.decode_columns(batch).count == 20
    if codec:
        assert len(batch) < 100_000


@pytest.mark.parametrize("codec", [codec for codec in r.Codec if codec])
def test_a_bomb_is_refused(implementation: Any, codec: r.Codec) -> None:
    installed(codec)
    batch = r.encode_batch([(1, None, bytes(3_000_000), ())], codec=codec)
    for decode in (r.decode_batch, r.decode_records, r.decode_columns, r.check_records):
        with pytest.raises(InvalidRecordError, match="more than"):
            decode(batch, max_decompressed_bytes=2_000_000)
    assert len(r.decode_batch(batch, max_decompressed_bytes=3_000_100)) == 1


@pytest.mark.parametrize("codec", [codec for codec in r.Codec if codec])
def test_damage_never_gets_past_the_limit(codec: r.Codec) -> None:
    installed(codec)
    good = compress(codec, b"abcdefgh" * 5000)
    for position in range(0, len(good), max(1, len(good) // 100)):
        bad = bytearray(good)
        bad[position] ^= 0x55
        try:
            out = decompress(codec, bytes(bad), 100_000)
        except InvalidRecordError:
            continue
        assert len(out) <= 100_000


@pytest.mark.parametrize("codec", [r.Codec.GZIP, r.Codec.LZ4, r.Codec.ZSTD])
def test_a_cut_stream_is_refused(codec: r.Codec) -> None:
    installed(codec)
    good = compress(codec, b"abcdefgh" * 5000)
    for cut in range(1, len(good), max(1, len(good) // 50)):
        with pytest.raises(InvalidRecordError):
            decompress(codec, good[:cut], 100_000)


@pytest.mark.parametrize("codec", NEEDS_LIBRARY)
def test_a_missing_library_names_the_codec_and_what_to_install(
    implementation: Any, codec: r.Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(codec)
    batch = r.encode_batch(ROWS, codec=codec)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    for use in (
        lambda: r.decode_batch(batch),
        lambda: r.decode_columns(batch),
        lambda: r.encode_batch(ROWS, codec=codec),
    ):
        with pytest.raises(UnsupportedCompressionError, match=rf"{codec.name.lower()}.*pip install .*cramjam"):
            use()


def test_gzip_members_may_follow_each_other() -> None:
    assert decompress(r.Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd"), 4) == b"abcd"
    with pytest.raises(InvalidRecordError):
        decompress(r.Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd"), 3)


def test_lz4_is_the_kind_kafka_reads() -> None:
    """Version 1, independent blocks: Kafka refuses linked ones."""
    installed(r.Codec.LZ4)
    frame = compress(r.Codec.LZ4, b"x" * 200_000)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0b1110_0000 == 0b0110_0000


def test_snappy_is_framed_like_snappy_java() -> None:
    installed(r.Codec.SNAPPY)
    framed = compress(r.Codec.SNAPPY, b"x" * 100_000)
    assert framed[:16] == bytes.fromhex("82534e4150505900") + b"\0\0\0\1\0\0\0\1"
    raw = framed[20 : 20 + int.from_bytes(framed[16:20], "big")]
    assert decompress(r.Codec.SNAPPY, raw, 100_000) == b"x" * 32768  # a bare block, as other clients write it


# ---- what producers send -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [codec for codec in r.Codec if codec])
def test_a_batch_shrinks_or_stays_what_it_was(codec: r.Codec) -> None:
    installed(codec)
    plain = r.encode_batch(ROWS, producer_id=4, producer_epoch=5, base_sequence=6)
    small = shrink_batch(plain, codec)
    assert len(small) < len(plain)
    assert small == r.encode_batch(ROWS, codec=codec, producer_id=4, producer_epoch=5, base_sequence=6)
    for hopeless in (b"x", os.urandom(100_000)):
        batch = r.encode_batch([(1, None, hopeless, ())])
        assert shrink_batch(batch, codec) is batch


@pytest.mark.parametrize(("codec", "levels"), [(r.Codec.GZIP, (1, 9)), (r.Codec.ZSTD, (-100, 19))])
def test_a_higher_level_makes_it_smaller(codec: r.Codec, levels: tuple[int, int]) -> None:
    installed(codec)
    batch = r.encode_batch([(i, b"key%d" % (i * i), b"%d some text %d" % (i * 7919, i), ()) for i in range(3000)])
    low, high = (shrink_batch(batch, codec, level) for level in levels)
    assert len(high) < len(low) < len(batch)
    assert r.decode_batch(high) == r.decode_batch(low) == r.decode_batch(batch)


def test_what_readers_would_refuse_stays_as_it_is() -> None:
    """Goal: 34 MiB of zeros shrink by more than a reader believes, and would never be read again."""
    batch = r.encode_batch([(1, None, bytes(34 << 20), ())])
    installed(r.Codec.ZSTD)
    assert len(compress(r.Codec.ZSTD, bytes(34 << 20))) < 10_000
    assert shrink_batch(batch, r.Codec.ZSTD) is batch
