"""Fuzz: mutated batches of every codec never crash, hang or take unbounded memory, and both codecs say the same.

Mutations are of the header, of the compressed bytes and of the records before they are compressed again, with the
checksum made right, because a wrong one hides everything behind it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog import records as r
from replog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedCompressionError,
)
from replog.records import _codec_py
from replog.records.compression import compress, with_section
from replog.records.model import Wanted
from tests.random_examples import seeds
from tests.records_codecs import compiled, needs_compiled

REFUSALS = (CorruptRecordError, InvalidRecordError, UnsupportedCompressionError)
CLIENT_REFUSALS = (*REFUSALS, InvalidTimestampError, RecordTooLargeError)
PROJECTIONS = (*range(0, 32, 3), Wanted.OFFSETS, Wanted.HEADERS, 31)
LIMIT = 1 << 20
NUMBERS = (0, 1, -1, 2, 61, 2**31 - 1, -(2**31), 0x7FFF_FFF0, 7)
FIELDS = ((">i", 8), (">i", 23), (">i", 57), (">h", 21), (">i", 53))
SAMPLES = [
    [(1000 + i, b"k" * i, None if i % 3 else b"v" * 70, [("h", None)] * (i % 3)) for i in range(5)],
    [(2**62, b"", b"", ()), (-1, None, b"x" * 300, [("a", b"b"), ("ü", b"")])],
    [(7, b"same", b"same", ())] * 60,
]


def sealed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def codecs() -> list[r.Codec]:
    try:
        import cramjam  # noqa: F401 - asks whether it is there
    except ImportError:
        return [r.Codec.NONE, r.Codec.GZIP]
    return list(r.Codec)


def mutate_bytes(batch: bytearray, chance: random.Random, start: int) -> bytearray:
    for _ in range(chance.randint(1, 4)):
        batch[chance.randrange(start, len(batch))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return batch


def mutate_section(batch: bytearray, chance: random.Random, codec: r.Codec) -> bytearray:
    return mutate_bytes(bytearray(with_section(batch, codec, compress(codec, batch[61:]))), chance, 61)


def mutate_records(batch: bytearray, chance: random.Random, codec: r.Codec) -> bytearray:
    return bytearray(with_section(batch, codec, compress(codec, mutate_bytes(batch, chance, 61)[61:])))


def mutate_field(batch: bytearray, chance: random.Random, codec: r.Codec) -> bytearray:
    out = bytearray(with_section(batch, codec, compress(codec, batch[61:])))
    layout, position = chance.choice(FIELDS)
    number = chance.choice(NUMBERS)
    struct.pack_into(layout, out, position, number if layout == ">i" else number % 2**15)
    return out


def mutate_length(batch: bytearray, chance: random.Random, codec: r.Codec) -> bytearray:
    """A section that was cut, doubled, or has something behind it."""
    section = compress(codec, batch[61:])
    cut = section[: chance.randrange(len(section) + 1)]
    return bytearray(with_section(batch, codec, chance.choice((cut, section + cut, section + b"\0", cut + section))))


MUTATIONS = (mutate_section, mutate_records, mutate_field, mutate_length)


def mutant(chance: random.Random) -> bytes:
    batch = bytearray(r.encode_batch(chance.choice(SAMPLES)))
    data = sealed(chance.choice(MUTATIONS)(batch, chance, chance.choice(codecs())))
    if chance.random() < 0.2:
        data += r.encode_batch(SAMPLES[1], base_offset=100)
    return data


def said(decode: Callable[[], object]) -> object:
    try:
        return decode()
    except REFUSALS as error:  # anything else fails the test
        return type(error)


def outcomes(codec: Any, data: bytes) -> list[object]:
    return [
        said(decode)
        for decode in (
            partial(codec.decode_batch, data, 0, LIMIT),
            partial(codec.decode_records, data, 1, 2**63 - 1, LIMIT),
            partial(codec.check_records, data, 0, LIMIT),
            partial(codec.survey_records, data, 0, LIMIT),
            partial(codec.find_record, data, 0, 2, 1, LIMIT),
            partial(codec.find_record, data, 0, 2**63 - 1, 0, LIMIT),
            partial(codec.check_records, data, 0, LIMIT, False),  # noqa: FBT003 -- as the codecs are called
            partial(codec.survey_records, data, 0, LIMIT, False),  # noqa: FBT003
            *(partial(codec.decode_columns, data, 0, 2**63 - 1, wanted, LIMIT) for wanted in PROJECTIONS),
            partial(codec.decode_columns, data, 2, 4, int(Wanted.OFFSETS), LIMIT),
        )
    ]


@needs_compiled
@pytest.mark.parametrize("seed", seeds(1))
def test_both_codecs_say_the_same_of_mutants(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for _ in range(250):
        data = mutant(chance)
        found = outcomes(compiled, data)
        assert found == outcomes(_codec_py, data), data.hex()
        accepted += isinstance(found[0], list)
    assert 5 < accepted < 200  # both the ways in and the refusals are exercised


@needs_compiled
@given(seed=st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_any_mutant(seed: int) -> None:
    data = mutant(random.Random(seed))
    assert outcomes(compiled, data) == outcomes(_codec_py, data)


def test_what_decodes_to_columns_decodes_to_the_same_records(implementation: Any) -> None:
    chance = random.Random(5)
    for _ in range(150):
        data = mutant(chance)
        records = said(partial(r.decode_records, data, max_decompressed_bytes=LIMIT))
        columns = said(partial(r.decode_columns, data, with_headers=True, max_decompressed_bytes=LIMIT))
        if isinstance(records, list):
            assert isinstance(columns, r.Columns)
            assert struct.unpack(f"<{len(records)}q", columns.offsets) == tuple(record.offset for record in records)
            assert struct.unpack(f"<{len(records)}q", columns.timestamps) == tuple(each.timestamp for each in records)
            assert bytes(columns.value_data) == b"".join(record.value or b"" for record in records)
        else:
            assert columns is records


def test_a_leader_answers_every_mutant_with_a_header_or_a_typed_error(implementation: Any) -> None:
    chance = random.Random(6)
    rules = r.RecordRules(are_keys_required=True, timestamp_before_max_ms=10_000, timestamp_after_max_ms=10_000)
    passed = 0
    for _ in range(300):
        try:
            header = r.validate_produced(mutant(chance), max_batch_bytes=LIMIT, rules=rules, now_ms=1000)
        except CLIENT_REFUSALS:
            continue
        passed += 1
        assert header.records_count == header.last_offset_delta + 1 > 0
    assert passed


@given(
    rows=st.lists(st.tuples(st.integers(-1, 2**63 - 1), st.none() | st.binary(max_size=60)), min_size=1, max_size=30)
)
@settings(max_examples=60, deadline=None)
def test_every_codec_gives_back_what_went_in(rows: list[tuple[int, bytes | None]]) -> None:
    given_rows = [(time, data, data, ()) for time, data in rows]
    for codec in codecs():
        batch = r.encode_batch(given_rows, codec=codec)
        assert [record[1:] for record in r.decode_batch(batch)] == given_rows
        survey = r.survey_records(batch)
        times = [time for time, _ in rows if time != -1]
        assert survey == (
            len(rows),
            min(times, default=-1),
            max(times, default=-1),
            sum(data is None for _, data in rows),
            tuple(place for place, (_, data) in enumerate(rows) if data is None),
        )
