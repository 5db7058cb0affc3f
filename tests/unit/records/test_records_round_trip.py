"""Properties of the codec: what goes in comes out, the twins agree to the byte, and damage never crashes."""

from __future__ import annotations

import random
import struct
import sys
from functools import partial
from typing import Any, NamedTuple

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replog import records as r
from replog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionError
from replog.records import _codec_py
from replog.records.model import Wanted
from tests.random_examples import FIRST_SEED, examples
from tests.records_codecs import compiled, needs_compiled, use

SETTINGS = settings(
    max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the fixture only chooses the codec, which stays the same for all examples

blob = st.none() | st.binary(max_size=200)
timestamp = st.integers(-1, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_001_000)
headers = st.lists(st.tuples(st.text(max_size=8), blob), max_size=4).map(tuple)
row = st.tuples(timestamp, blob, blob, headers)
rows = st.lists(row, min_size=1, max_size=20)
options = st.fixed_dictionaries(
    {
        "base_offset": st.integers(0, 2**62),
        "partition_leader_epoch": st.integers(-1, 2**31 - 1),
        "producer_id": st.integers(-1, 2**63 - 1),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": st.integers(-1, 2**31 - 1),
        "is_transactional": st.booleans(),
        "codec": st.sampled_from([r.Codec.NONE, r.Codec.GZIP]),
    }
)
PROJECTIONS = (0, Wanted.OFFSETS, Wanted.TIMESTAMPS, Wanted.KEYS, Wanted.VALUES, Wanted.HEADERS, 31)
REFUSALS = (CorruptRecordError, InvalidRecordError, UnsupportedCompressionError)


class Placed(NamedTuple):
    """A record and where it is, as `decode_placed` makes it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: r.TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[r.Header, ...]


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (list, ("t", 0, r.TimestampType.CREATE_TIME)),
        (tuple, ("t", 0, r.TimestampType.CREATE_TIME)),
        (r.Record, ("t", 0, r.TimestampType.CREATE_TIME)),
        (Placed, ("t", 0)),
        (Placed, ()),
    ],
)
def test_what_cannot_hold_a_record_and_its_place_is_refused(implementation: Any, kind: Any, place: Any) -> None:
    """The compiled codec would write beyond its end."""
    with pytest.raises(TypeError, match="is no NamedTuple of 8 fields, or"):
        r.decode_placed(r.encode_batch([(0, None, b"v", ())]), 0, 0, kind, place)


@given(rows=rows, options=options)
@SETTINGS
def test_what_goes_in_comes_out(implementation: Any, rows: list[Any], options: dict[str, Any]) -> None:
    batch = r.encode_batch(rows, **options)
    base = options["base_offset"]
    expected = [r.Record(base + i, *row) for i, row in enumerate(rows)]
    assert r.decode_batch(batch) == expected
    assert r.decode_records(b"" + batch) == expected
    assert r.check_records(batch) == len(rows)
    placed = r.decode_placed(batch, 0, base + 1, Placed, ("flights", 3, r.TimestampType.CREATE_TIME))
    assert placed == [Placed("flights", 3, o, t, r.TimestampType.CREATE_TIME, *rest) for o, t, *rest in expected[:0:-1]]
    assert {type(each) for each in placed} <= {Placed}
    header = r.parse_header(batch)
    for name in ("base_offset", "partition_leader_epoch", "producer_id", "base_sequence", "codec"):
        assert getattr(header, name) == options[name]
    assert header.max_timestamp == max(row[0] for row in rows)
    assert header.base_timestamp == rows[0][0]


@pytest.mark.parametrize("which", ["key", "value", "both", "none"])
def test_what_is_made_of_keys_and_values_stands_in_their_places(implementation: Any, which: str) -> None:
    """Each of them once: nothing is kept beside the records, and nothing is freed that they have."""
    rows = [(9, b"k%d" % n if n % 3 else None, b"v%d" % n if n % 2 else None, ()) for n in range(50)]
    records = r.decode_placed(r.encode_batch(rows), 0, 0, Placed, ("t", 0, r.TimestampType.CREATE_TIME))
    raw = [(record.key, record.value) for record in records]
    made: list[list[bytes]] = []

    def make(data: bytes) -> list[bytes]:
        made.append([data])
        return made[-1]

    r.decode_fields(records, make if which in {"key", "both"} else None, make if which in {"value", "both"} else None)
    expected = [
        (
            [key] if key is not None and which in {"key", "both"} else key,
            [value] if value is not None and which in {"value", "both"} else value,
        )
        for key, value in raw
    ]
    assert [(record.key, record.value) for record in records] == expected
    assert {type(record) for record in records} == {Placed}
    assert all(sys.getrefcount(each) == 4 for each in made)  # `made`, its record, the loop, the call
    del records
    assert all(sys.getrefcount(each) == 3 for each in made)
    assert all(sys.getrefcount(each[0]) == 4 for each in made)  # `raw`, `expected`, what was made of it, the call


def test_an_error_of_what_makes_values_comes_through(implementation: Any) -> None:
    rows = [(9, None, b"%d" % n, ()) for n in range(5)]
    records = r.decode_placed(r.encode_batch(rows), 0, 0, Placed, ("t", 0, r.TimestampType.CREATE_TIME))
    with pytest.raises(ZeroDivisionError):
        r.decode_fields(records, None, lambda data: 1 // int(data))
    assert [record.value for record in records] == [0, 0, 0, 1, b"0"]  # the last first


@pytest.mark.parametrize("wrong", [None, [1] * 8, r.Record(0, 0, b"k", b"v", ())])
def test_values_are_made_in_records_with_their_places_only(implementation: Any, wrong: Any) -> None:
    """The compiled codec would write beyond its end."""
    with pytest.raises(TypeError, match="is no record as decode_placed makes them"):
        r.decode_fields([wrong], None, len)


def test_records_are_real_records(implementation: Any) -> None:
    (record,) = r.decode_batch(r.encode_batch([(1, b"k", b"v", ())]))
    assert type(record) is r.Record
    assert record.value == b"v"
    assert hash(record) == hash(r.Record(0, 1, b"k", b"v", ()))
    assert record._replace(offset=3).offset == 3


def test_log_append_time_overrides_every_record(implementation: Any) -> None:
    batch = r.encode_batch(
        [(1, None, None, ()), (9, None, None, ()), (4, None, None, ())], timestamp_type=r.TimestampType.LOG_APPEND_TIME
    )
    assert [record.timestamp for record in r.decode_batch(batch)] == [9, 9, 9]
    assert bytes(r.decode_columns(batch).timestamp_type) == struct.pack("<3i", 1, 1, 1)


def test_a_delta_beyond_63_bits_wraps_and_wraps_back(implementation: Any) -> None:
    """As in Java: the first record has no timestamp, the second the largest one."""
    batch = r.encode_batch([(-1, None, None, ()), (2**63 - 1, None, None, ())])
    assert [record.timestamp for record in r.decode_batch(batch)] == [-1, 2**63 - 1]
    assert struct.unpack("<2q", r.decode_columns(batch).timestamps) == (-1, 2**63 - 1)


def test_record_times_may_lie_before_a_delete_horizon(implementation: Any) -> None:
    batch = r.encode_batch([(5, b"k", None, ()), (900, b"l", None, ())], delete_horizon_ms=500)
    assert r.parse_header(batch).base_timestamp == 500
    assert [record.timestamp for record in r.decode_batch(batch)] == [5, 900]


def test_only_the_low_byte_of_the_attributes_is_looked_at(implementation: Any) -> None:
    batch = bytearray(r.encode_batch([(1, b"k", b"v", ())]))
    batch[21] = 0xFF
    assert r.decode_records(sealed(batch)) == [r.Record(0, 1, b"k", b"v", ())]
    assert r.decode_columns(sealed(batch)).count == 1


def test_a_number_uses_no_more_than_its_bytes(implementation: Any) -> None:
    """Five bytes hold an int, whatever the fifth says beyond 32 bits; ten a long."""
    long_form = b"\x80\x80\x80\x80\x70"  # 0 in five bytes, with bits beyond the 32nd
    record = b"\x00\x00" + long_form + b"\x01\x01\x00"
    assert r.decode_batch(body(bytes([2 * len(record)]) + record)) == [r.Record(0, 0, None, None, ())]
    eleven = b"\x00" + b"\x80" * 10 + b"\x00" + b"\x00\x01\x01\x00"
    with pytest.raises(InvalidRecordError):
        r.decode_batch(body(bytes([2 * len(eleven)]) + eleven))


def test_plain_and_odd_records_mix_in_one_list(implementation: Any) -> None:
    """The compiled codec writes plain records on a short way; what is not plain goes the long one, in the same order."""

    class Time(int):
        pass

    class Data(bytes):
        pass

    rows: list[Any] = [
        (1, b"k", b"v", ()),
        (Time(2), b"k", None, []),
        [3, None, b"v" * 200, ()],
        (4, Data(b"k"), Data(b"v"), ()),
        (5, b"k" * 12, b"v" * 8, [("h", b"x")]),
        (6, b"k" * 16, b"v" * 17, ()),
        (7, None, None, ()),
    ]
    batch = r.encode_batch(rows)
    expected = [(int(row[0]), row[1], row[2], tuple(row[3])) for row in rows]
    assert [tuple(record[1:]) for record in r.decode_batch(batch)] == expected
    assert batch == r.encode_batch(tuple(rows))


def test_a_list_that_shrinks_while_it_is_encoded_is_no_danger(implementation: Any) -> None:
    rows: list[Any] = []

    class Headers(list):  # type: ignore[type-arg]  # a test double
        def __bool__(self) -> bool:
            rows.clear()
            return False

    from replog.records import batch

    rows += [(1, b"k", b"v", ()), (2, b"k", b"v", Headers([])), *[(3, b"k", b"v" * 1000, ())] * 100]
    builder = batch.BatchBuilder(max_bytes=1 << 20)
    assert builder.extend(rows) == 2
    assert [record.timestamp for record in r.decode_batch(builder.build())] == [1, 2]


def test_a_batch_without_records_is_refused(implementation: Any) -> None:
    with pytest.raises(InvalidRecordError):
        r.encode_batch([])


def test_a_header_name_that_is_not_utf8_is_readable(implementation: Any) -> None:
    batch = bytearray(r.encode_batch([(1, None, None, [("ab", b"x")])]))
    batch[batch.index(b"ab")] = 0xFF
    assert r.decode_batch(sealed(batch))[0].headers == (("\ufffdb", b"x"),)


@needs_compiled
@given(rows=rows, options=options)
@SETTINGS
def test_the_twins_write_the_same_bytes(monkeypatch: pytest.MonkeyPatch, rows: list[Any], options: Any) -> None:
    written = []
    for implementation in (_codec_py, compiled):
        use(monkeypatch, implementation)
        written.append(r.encode_batch(rows, **options))
    assert written[0] == written[1]


def sealed(batch: bytearray) -> bytes:
    """Makes the checksum fit again, so that damage reaches the record parser."""
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def outcome(implementation: Any, data: bytes) -> object:
    """Everything a decoder may say about these bytes: records, columns, or the class of its refusal."""
    said: list[object] = []
    for decode in (
        lambda: implementation.decode_batch(data, 0, 1 << 20),
        lambda: implementation.decode_placed(data, 0, 1, Placed, ("t", 0, r.TimestampType.CREATE_TIME), 1 << 20),
        lambda: implementation.decode_records(data, 1, 2**63 - 1, 1 << 20),
        *(partial(implementation.decode_columns, data, 1, 2**63 - 1, wanted, 1 << 20) for wanted in PROJECTIONS),
        lambda: implementation.check_records(data, 0, 1 << 20),
        lambda: implementation.survey_records(data, 0, 1 << 20),
        *(
            partial(implementation.find_record, data, 0, wanted_ms, 1, 1 << 20)
            for wanted_ms in (-(2**63), 2, 2**63 - 1)
        ),
    ):
        try:
            said.append(decode())
        except REFUSALS as error:  # anything else fails the test
            said.append(type(error))
    return said


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    codec = draw(st.sampled_from([r.Codec.NONE, r.Codec.NONE, r.Codec.GZIP]))
    batch = bytearray(r.encode_batch(draw(rows), codec=codec))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(batch) - 1))
        batch[position] = draw(st.integers(0, 255) | st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]))
    cut = draw(st.integers(0, len(batch)) | st.just(len(batch)))
    batch = batch[:cut]
    if len(batch) >= 61 and draw(st.booleans()):
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    return sealed(batch) if len(batch) >= 21 and draw(st.booleans()) else bytes(batch)


@given(data=damaged())
@SETTINGS
def test_damage_is_refused_with_our_errors(implementation: Any, data: bytes) -> None:
    outcome(implementation, data)


@needs_compiled
def test_the_twins_agree_about_damaged_records() -> None:
    chance = random.Random(FIRST_SEED)
    alphabet = bytes(range(256)) + b"\x00\x01\x02\x7f\x80\xff" * 20
    batches = [
        r.encode_batch([(1000 + i, b"k" * i, None if i % 3 else b"v" * 70, [("h", None)] * (i % 3)) for i in range(5)]),
        r.encode_batch([(2**62, b"", b"", ()), (-1, None, b"x" * 300, [("a", b"b")])]),
    ]
    for _ in range(examples(1_000)):
        batch = bytearray(chance.choice(batches))
        for _ in range(chance.randint(1, 3)):
            batch[chance.randrange(21, len(batch))] = chance.choice(alphabet)
        data = sealed(batch)
        assert outcome(_codec_py, data) == outcome(compiled, data), data.hex()


def body(*records: bytes, count: int | None = None, last_delta: int | None = None) -> bytes:
    """A batch around hand-written record bytes."""
    shell = r.encode_batch([(0, None, None, ())])[:61]
    out = bytearray(shell + b"".join(records))
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">i", out, 23, len(records) - 1 if last_delta is None else last_delta)
    struct.pack_into(">i", out, 57, len(records) if count is None else count)
    return sealed(out)


SMALL = b"\x0c\x00\x00\x00\x01\x01\x00"


@pytest.mark.parametrize(
    ("what", "batch"),
    [
        ("more records announced than fit", body(SMALL, count=1_000_000, last_delta=2_000_000)),
        ("fewer records announced", body(SMALL, b"\x0c\x00\x00\x02\x01\x01\x00", count=1)),
        ("negative length", body(b"\x01" + SMALL)),
        ("length past the end", body(b"\x0e\x00\x00\x00\x01\x01\x00")),
        ("length 2^31 - 1", body(b"\xfe\xff\xff\xff\x0f\x00\x00\x00\x01\x01\x00")),
        ("length of six bytes", body(b"\x80\x80\x80\x80\x80\x00\x00\x00\x00\x01\x01\x00")),
        ("key past the record", body(b"\x0c\x00\x00\x00\x10\x01\x00")),
        ("key length -2", body(b"\x0c\x00\x00\x00\x03\x01\x00")),
        ("value length 2^31 - 1", body(b"\x14\x00\x00\x00\x01\xfe\xff\xff\xff\x0f\x00")),
        ("2^31 - 1 headers", body(b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f")),
        ("-1 headers", body(b"\x0c\x00\x00\x00\x01\x01\x01")),
        ("header without a name", body(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01")),
        ("byte left in the record", body(b"\x0e\x00\x00\x00\x01\x01\x00\x00")),
        ("offset delta repeated", body(SMALL, SMALL)),
        ("offset delta past the last", body(b"\x0c\x00\x00\x02\x01\x01\x00")),
        ("negative offset delta", body(b"\x0c\x00\x00\x01\x01\x01\x00")),
        ("empty record", body(b"\x00" * 7)),
    ],
)
def test_malformed_records_are_refused(implementation: Any, what: str, batch: bytes) -> None:
    for decode in (r.decode_batch, r.decode_records, r.decode_columns, r.check_records):
        with pytest.raises(InvalidRecordError):
            decode(batch)


def test_the_hand_written_batch_is_right(implementation: Any) -> None:
    assert r.decode_batch(body(SMALL)) == [r.Record(0, 0, None, None, ())]


def test_a_torn_or_damaged_batch_is_corrupt(implementation: Any) -> None:
    batch = r.encode_batch([(1, b"k", b"v", ())])
    for bad in (batch[:-1], batch[:30], b"", batch[:-1] + b"\x01"):
        with pytest.raises(CorruptRecordError):
            r.decode_batch(bad)
    with pytest.raises(CorruptRecordError):
        r.decode_records(batch[:-1] + b"\x01")
    with pytest.raises(CorruptRecordError):
        r.decode_batch(batch, -1)
