"""Compaction of batches, compiled and in pure Python: which records stay, and that their bytes do.  Invariant S11."""

from __future__ import annotations

import importlib
import os
import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog import records as r
from replog.errors import ConfigError, CorruptRecordError
from replog.records import _compaction_py
from replog.records.compaction_rules import FillProgress, RewriteRules, Rewritten

try:
    compiled: ModuleType | None = importlib.import_module("replog.records._compaction")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the extension is not built: python setup.py build_ext --inplace"
)
BOTH = [pytest.param(_compaction_py, id="python"), pytest.param(compiled, id="cython", marks=needs_compiled)]
both = pytest.mark.parametrize("module", BOTH)

T0 = 1_700_000_000_000
LATER = T0 + 10_000_000
SEED = bytes(16)
Given = tuple[bytes | None, bytes | None]


class NoTransactions:
    """Of a log without any."""

    def drops_data(self, producer_id: int, last_offset: int) -> bool:
        return False

    def drops_marker(self, batch: bytes) -> bool:
        return False


class EverythingAborted(NoTransactions):
    def drops_data(self, producer_id: int, last_offset: int) -> bool:
        return True

    def drops_marker(self, batch: bytes) -> bool:
        return True


def batch(base_offset: int, *pairs: Given, codec: r.Codec = r.Codec.NONE, **fields: Any) -> bytes:
    rows = [(T0 + base_offset + i, key, value, ()) for i, (key, value) in enumerate(pairs)]
    return r.encode_batch(rows, base_offset=base_offset, partition_leader_epoch=3, codec=codec, **fields)


def map_of(module: Any, data: bytes, *, size_bytes: int = 1 << 16, start_offset: int = 0) -> tuple[Any, FillProgress]:
    offset_map = module.OffsetMap(size_bytes, 0.9, SEED)
    return offset_map, module.fill_offset_map(offset_map, data, start_offset, NoTransactions(), 1 << 20)


def compacted(
    module: Any,
    data: bytes,
    *,
    clean_end_offset: int | None = None,
    now_ms: int = T0,
    transactions: Any = None,
    keeps_last: bool = False,
    last_data_offsets: frozenset[int] = frozenset(),
    marker_epochs: dict[int, int] | None = None,
) -> Rewritten:
    offset_map, progress = map_of(module, data)
    end = progress.end_offset if clean_end_offset is None else clean_end_offset
    rules = RewriteRules(end, now_ms, 1000, last_data_offsets, marker_epochs or {})
    return module.rewrite_batches(data, offset_map, rules, transactions or NoTransactions(), keeps_last, 1 << 20)


def rows(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(x.offset, x.timestamp, x.key, x.value) for h in r.scan(data) for x in r.decode_batch(data, h.position)]


# The offset map


@both
def test_the_map_remembers_the_latest_offset_of_each_key(module: Any) -> None:
    offset_map = module.OffsetMap(24 * 100, 0.9, SEED)
    assert offset_map.capacity == 90
    assert offset_map.get(b"a") == -1
    for offset, key in enumerate((b"a", b"", b"a", b"x" * 100)):
        assert offset_map.put(key, offset)
    assert [offset_map.get(key) for key in (b"a", b"", b"x" * 100, b"b")] == [2, 1, 3, -1]
    assert offset_map.count == 3


@both
def test_a_full_map_takes_known_keys_only(module: Any) -> None:
    offset_map = module.OffsetMap(24 * 10, 0.5, SEED)
    assert [offset_map.put(bytes([i]), i) for i in range(7)] == [True] * 5 + [False] * 2
    assert offset_map.put(b"\x03", 9)
    assert [offset_map.get(bytes([i])) for i in range(7)] == [0, 1, 2, 9, 4, -1, -1]


@both
def test_a_map_for_no_key_is_refused_with_the_setting(module: Any) -> None:
    with pytest.raises(ConfigError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        module.OffsetMap(47, 0.9, SEED)


@both
@settings(max_examples=50, deadline=None)
@given(keys=st.lists(st.binary(max_size=3), max_size=300))
def test_the_map_equals_a_dictionary(module: Any, keys: list[bytes]) -> None:
    offset_map, expected = module.OffsetMap(24 * 330, 0.99, SEED), {}
    for offset, key in enumerate(keys):
        assert offset_map.put(key, offset)
        expected[key] = offset
    assert {key: offset_map.get(key) for key in expected} == expected
    assert offset_map.count == len(expected)


@needs_compiled
def test_the_compiled_hash_is_siphash_2_4_128() -> None:
    """The first published vectors: key 00 01 .. 0f, inputs of 0, 1, 8 and 15 bytes 00 01 02 .."""
    assert compiled is not None
    published = {0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45"}
    assert {n: compiled.key_hash(bytes(range(n)), bytes(range(16))).hex() for n in published} == published
    assert len({compiled.key_hash(bytes(n), SEED) for n in range(40)}) == 40


# Filling


@both
def test_filling_stops_at_the_first_record_that_does_not_fit(module: Any) -> None:
    data = batch(10, (b"a", b"1"), (b"b", b"1")) + batch(12, (b"a", b"2"), (b"c", b"1"), (b"b", b"2"))
    offset_map, progress = map_of(module, data, size_bytes=24 * 3)  # two keys
    assert progress == FillProgress(len(batch(10, (b"a", b"1"), (b"b", b"1"))), 3, 13, is_full=True)
    assert [offset_map.get(key) for key in (b"a", b"b", b"c")] == [12, 11, -1]


@both
def test_filling_leaves_out_what_is_below_the_start_and_a_torn_end(module: Any) -> None:
    whole = batch(0, (b"a", b"1"), (b"b", b"1"), (None, b"1"))
    offset_map, progress = map_of(module, whole + whole[:70], start_offset=1)
    assert progress == FillProgress(len(whole), 3, 3, is_full=False)
    assert [offset_map.get(key) for key in (b"a", b"b")] == [-1, 1]


@both
def test_the_last_offset_that_has_one_behind_it_is_the_last(module: Any) -> None:
    last = 2**63 - 2
    row = (T0, b"k", b"v", ())
    data = r.encode_batch([row], base_offset=last)
    offset_map, progress = map_of(module, data)
    assert (progress.end_offset, offset_map.get(b"k")) == (last + 1, last)
    assert compacted(module, data).records_kept == 1
    with pytest.raises(CorruptRecordError, match="is no offset"):
        map_of(module, r.encode_batch([row, row], base_offset=last))
    for offset in (-1, last + 1):
        with pytest.raises(ValueError, match="is no offset"):
            offset_map.put(b"k", offset)


@both
def test_aborted_data_supersedes_nothing(module: Any) -> None:
    data = batch(0, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    offset_map = module.OffsetMap(4096, 0.9, SEED)
    assert module.fill_offset_map(offset_map, data, 0, EverythingAborted(), 1 << 20).end_offset == 1
    assert offset_map.count == 0


# Rewriting


@both
def test_the_newest_of_each_key_stays_with_offset_timestamp_and_headers(module: Any) -> None:
    first = r.encode_batch(
        [(T0 + 5, b"a", b"1", ()), (T0 + 1, b"b", b"1", (("h", b"x"), ("n", None))), (T0 + 9, None, b"no key", ())],
        base_offset=0,
        partition_leader_epoch=3,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
    )
    data = first + batch(3, (b"a", b"2"))
    result = compacted(module, data)
    header, untouched = r.scan(result.data)
    assert rows(result.data) == [(1, T0 + 1, b"b", b"1"), (3, T0 + 3, b"a", b"2")]
    assert r.decode_batch(result.data)[0].headers == (("h", b"x"), ("n", None))
    assert (header.base_offset, header.last_offset, header.records_count, header.partition_leader_epoch) == (0, 2, 1, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 2, 40, 42)
    assert header.max_timestamp == T0 + 1
    assert result.data[untouched.position :] == data[len(first) :]
    assert result.batches == [(untouched.position, 2, T0 + 1), (untouched.size_bytes, 3, T0 + 3)]
    assert (result.size_bytes, result.records_read, result.records_kept) == (len(data), 4, 2)


@both
@pytest.mark.parametrize("codec", list(r.Codec))
def test_codecs_stay_and_untouched_batches_keep_every_byte(module: Any, codec: r.Codec) -> None:
    if codec not in {r.Codec.NONE, r.Codec.GZIP}:
        pytest.importorskip("cramjam", reason="the extra replog[compression] is not installed")
    pairs: list[Given] = [(b"k%d" % i, b"value" * 20) for i in range(10)]
    kept, cut = batch(0, *pairs, codec=codec), batch(10, (b"x", b"1"), (b"y", b"2" * 200), codec=codec)
    result = compacted(module, kept + cut + batch(12, (b"x", b"2"), codec=codec))
    assert result.data.startswith(kept)
    assert [h.codec for h in r.scan(result.data)] == [codec] * 3
    assert rows(result.data)[10:] == [(11, T0 + 11, b"y", b"2" * 200), (12, T0 + 12, b"x", b"2")]


@both
def test_records_from_the_clean_end_on_stay_and_superseded_ones_below_do_not(module: Any) -> None:
    data = batch(0, (b"a", b"1"), (b"b", b"1")) + batch(2, (b"a", b"2"), (None, b"x"), (b"a", b"3"))
    result = compacted(module, data, clean_end_offset=3)
    assert [row[0] for row in rows(result.data)] == [1, 3, 4]


@both
def test_a_tombstone_stays_until_its_horizon_and_its_batch_then_disappears(module: Any) -> None:
    data = batch(0, (b"a", b"1"), (b"b", b"1")) + batch(2, (b"a", None), (b"c", b"1"))
    first = compacted(module, data)
    _, header = r.scan(first.data)
    assert (header.has_delete_horizon, header.base_timestamp) == (True, T0 + 1000)
    assert rows(first.data) == [(1, T0 + 1, b"b", b"1"), (2, T0 + 2, b"a", None), (3, T0 + 3, b"c", b"1")]
    assert compacted(module, first.data, now_ms=T0 + 999).data == first.data
    last = compacted(module, first.data, now_ms=T0 + 1000)
    assert rows(last.data) == [(1, T0 + 1, b"b", b"1"), (3, T0 + 3, b"c", b"1")]
    assert [h.has_delete_horizon for h in r.scan(last.data)] == [False, True]
    only = batch(5, (b"a", None))
    assert compacted(module, compacted(module, only).data, now_ms=LATER).data == b""


@both
def test_the_horizon_waits_while_a_batch_reaches_above_the_clean_end(module: Any) -> None:
    data = batch(0, (b"a", None), (b"b", None))
    assert compacted(module, data, clean_end_offset=1).data == data
    assert compacted(module, data, clean_end_offset=2).data != data


@both
def test_append_time_survives_a_new_base(module: Any) -> None:
    data = batch(0, (b"a", None), (b"b", b"1"), timestamp_type=r.TimestampType.LOG_APPEND_TIME)
    result = compacted(module, data)
    assert rows(result.data) == rows(data)
    assert next(r.scan(result.data)).max_timestamp == next(r.scan(data)).max_timestamp


@both
def test_the_last_batch_of_a_producer_stays_empty(module: Any) -> None:
    fields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 4, "codec": r.Codec.GZIP}
    data = batch(0, (b"a", b"1"), (b"a", b"2"), **fields) + batch(2, (b"a", b"3"))
    result = compacted(module, data, last_data_offsets=frozenset({1}))
    header = next(r.scan(result.data))
    assert (header.records_count, header.size_bytes, header.base_timestamp) == (0, 61, -1)
    assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) == (0, 1, 4, 5)
    assert (header.codec, header.max_timestamp, header.partition_leader_epoch) == (r.Codec.NONE, T0 + 1, 3)
    again = compacted(module, result.data, last_data_offsets=frozenset({1}))
    assert again.data == result.data
    assert rows(compacted(module, result.data).data) == [(2, T0 + 2, b"a", b"3")]


@both
def test_the_batch_that_ends_the_buffer_stays_where_asked(module: Any) -> None:
    data = batch(0, (None, b"1")) + batch(1, (None, b"2"))
    assert compacted(module, data).data == b""
    assert [h.base_offset for h in r.scan(compacted(module, data, keeps_last=True).data)] == [1]
    assert compacted(module, data + data[:65], keeps_last=True).data == b""


def marker(offset: int, *, is_commit: bool = True) -> bytes:
    return r.encode_end_transaction_marker(
        base_offset=offset, leader_epoch=3, timestamp_ms=T0, producer_id=7, producer_epoch=2, coordinator_epoch=1,
        is_commit=is_commit,
    )  # fmt: skip


@both
def test_a_marker_that_decides_nothing_goes_in_two_phases(module: Any) -> None:
    first = compacted(module, marker(4), transactions=EverythingAborted())
    header = next(r.scan(first.data))
    assert (header.has_delete_horizon, header.base_timestamp, header.records_count) == (True, T0 + 1000, 1)
    assert rows(first.data) == rows(marker(4))
    assert compacted(module, first.data, now_ms=T0 + 999, transactions=EverythingAborted()).data == first.data
    assert compacted(module, first.data, now_ms=LATER).data == first.data
    assert compacted(module, first.data, now_ms=LATER, transactions=EverythingAborted()).data == b""
    last = compacted(module, first.data, now_ms=LATER, transactions=EverythingAborted(), marker_epochs={7: 2})
    header = next(r.scan(last.data))
    assert (header.is_control, header.records_count, header.producer_id, header.producer_epoch) == (True, 0, 7, 2)


@both
def test_aborted_data_goes(module: Any) -> None:
    fields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 0, "is_transactional": True}
    data = batch(0, (b"a", b"1"), **fields) + batch(1, (b"b", b"1"))
    assert [row[0] for row in rows(compacted(module, data, transactions=EverythingAborted()).data)] == [1]


# Damage


@both
@pytest.mark.parametrize("position", [17, 40, 65])
def test_damage_is_refused_with_its_place(module: Any, position: int) -> None:
    good = batch(0, (b"a", b"1"))
    bad = bytearray(batch(1, (b"b", b"1")))
    bad[position] ^= 1
    with pytest.raises(CorruptRecordError) as caught:
        compacted(module, good + bytes(bad))
    assert caught.value.position == len(good)


def resealed(data: bytearray) -> bytes:
    from crc32c import crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@needs_compiled
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_nonsense_under_a_right_checksum_is_judged_alike(seed: int) -> None:
    """Both take it with equal results, or both refuse it."""
    rng = random.Random(seed)
    data = bytearray(batch(0, *[(b"k%d" % (i % 3), bytes(5) if i % 2 else None) for i in range(6)]))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(61, len(data))] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
    outcomes = []
    for module in (_compaction_py, compiled):
        try:
            outcomes.append(compacted(module, resealed(data), now_ms=LATER))
        except CorruptRecordError as error:
            outcomes.append(error.position)
    assert outcomes[0] == outcomes[1]


@needs_compiled
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_twin_and_compiled_make_the_same_bytes(seed: int) -> None:
    rng = random.Random(seed)
    data, offset = b"", 0
    for _ in range(rng.randrange(1, 12)):
        pairs: list[Given] = [
            (rng.choice((None, b"a", b"b", b"c", b"long key" * 9)), rng.choice((None, b"", b"v" * rng.randrange(300))))
            for _ in range(rng.randrange(1, 9))
        ]
        fields: dict[str, Any] = {}
        if rng.random() < 0.5:
            fields = {"producer_id": rng.randrange(3), "producer_epoch": 1, "base_sequence": offset}
            fields["is_transactional"] = rng.random() < 0.5
        if rng.random() < 0.3:
            fields["timestamp_type"] = r.TimestampType.LOG_APPEND_TIME
        data += batch(offset, *pairs, codec=rng.choice((r.Codec.NONE, r.Codec.NONE, r.Codec.GZIP)), **fields)
        offset += len(pairs)
        if rng.random() < 0.2:
            data += marker(offset)
            offset += 1
    options = {
        "clean_end_offset": rng.randrange(offset + 1),
        "keeps_last": rng.random() < 0.5,
        "last_data_offsets": frozenset(rng.sample(range(offset), k=min(offset, 3))),
        "marker_epochs": {7: 2} if rng.random() < 0.5 else {},
        "transactions": EverythingAborted() if rng.random() < 0.3 else NoTransactions(),
    }
    one, other = (compacted(module, data, **options) for module in (_compaction_py, compiled))
    assert one == other
    again = [compacted(module, one.data, now_ms=LATER, **options) for module in (_compaction_py, compiled)]
    assert again[0] == again[1]
    assert map_of(_compaction_py, data, size_bytes=24 * 4)[1] == map_of(compiled, data, size_bytes=24 * 4)[1]


@both
def test_what_compaction_leaves_can_be_decoded(module: Any) -> None:
    """The incompressible half goes, and what stays would shrink more than readers allow."""
    pytest.importorskip("cramjam")
    value = bytes(33 << 20)
    data = batch(0, (b"old", os.urandom(64 << 10)), (b"kept", value), codec=r.Codec.ZSTD)
    assert r.parse_header(data).codec is r.Codec.ZSTD
    offset_map, _ = map_of(module, batch(2, (b"old", b"new")))
    rules = RewriteRules(3, T0, 0, frozenset(), {})
    rewritten = module.rewrite_batches(data, offset_map, rules, NoTransactions(), 0, r.DECOMPRESSED_BYTES_MAX)
    (record,) = r.decode_batch(rewritten.data)
    assert (record.key, record.value) == (b"kept", value)
