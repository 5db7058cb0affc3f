"""The producer's accumulator: what fits, what is handed over, what an error leaves."""

from __future__ import annotations

from typing import Any

import pytest

from replog import records as r
from replog.errors import InvalidRecordError, UnsupportedCompressionError

pytestmark = pytest.mark.usefixtures("implementation")


def builder(max_bytes: int = 1000, attributes: int = 0) -> r.BatchBuilder:
    from replog.records import batch

    return batch.BatchBuilder(max_bytes=max_bytes, attributes=attributes)


def test_relative_offsets_count_up_and_size_is_exact() -> None:
    b = builder()
    assert (b.size_bytes, b.records_count) == (61, 0)
    assert [b.append(5, b"k", b"v"), b.append(6, None, None, [("h", None)])] == [0, 1]
    size = b.size_bytes
    batch = b.build(7, 1, 40)
    assert len(batch) == size
    header = r.validate_produced(batch, max_batch_bytes=size)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 1, 40, 41)
    assert r.decode_batch(batch) == [r.Record(0, 5, b"k", b"v", ()), r.Record(1, 6, None, None, (("h", None),))]


def test_a_record_that_does_not_fit_changes_nothing() -> None:
    b = builder(max_bytes=100)
    assert b.append(1, None, b"x" * 20) == 0
    before = b.size_bytes
    assert b.append(2, None, b"y" * 40) is None
    assert (b.size_bytes, b.records_count) == (before, 1)
    assert b.append(3, None, b"z") == 1
    assert [record.timestamp for record in r.decode_batch(b.build())] == [1, 3]


def test_the_limit_is_reached_to_the_byte() -> None:
    b = builder()
    b.append(1, b"k", b"v" * 50)
    exact = builder(max_bytes=b.size_bytes)
    assert exact.append(1, b"k", b"v" * 50) == 0
    assert builder(max_bytes=b.size_bytes - 1).append(1, b"k", b"v" * 50) is None


def test_a_builder_too_small_for_its_header_takes_nothing() -> None:
    assert builder(max_bytes=0).append(1, None, None) is None
    assert builder(max_bytes=-5).append(1, None, None) is None
    assert builder(max_bytes=0).extend([(1, None, None, ())]) == 0


def test_extend_says_how_many_went_in() -> None:
    b = builder(max_bytes=61 + 3 * 17)
    assert b.extend([(1, None, b"0123456789", ())] * 5) == 3
    assert b.records_count == 3


def test_it_is_empty_after_build_and_can_be_used_again() -> None:
    b = builder()
    b.append(1, None, b"a")
    first = b.build()
    assert (b.size_bytes, b.records_count) == (61, 0)
    b.append(9, None, b"b")
    assert r.decode_batch(b.build()) == [r.Record(0, 9, None, b"b", ())]
    assert r.decode_batch(first) == [r.Record(0, 1, None, b"a", ())]


def test_an_empty_builder_has_no_batch() -> None:
    with pytest.raises(InvalidRecordError):
        builder().build()


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((-2, None, None, ()), InvalidRecordError),
        ((2**63, None, None, ()), InvalidRecordError),
        ((-(2**70), None, None, ()), InvalidRecordError),
        ((1, None, None, [("\ud800", b"")]), InvalidRecordError),
        ((1, "text", None, ()), TypeError),
        ((1, None, 5, ()), TypeError),
        ((1, None, None, [("h", "text")]), TypeError),
        ((1, None, None, [(b"h", b"")]), TypeError),
        ((1.5, None, None, ()), TypeError),
    ],
)
def test_an_error_leaves_the_batch_as_it_was(row: Any, error: type[Exception]) -> None:
    b = builder()
    b.append(1, None, b"a")
    with pytest.raises(error):
        b.append(*row)
    assert b.records_count == 1
    assert len(r.decode_batch(b.build())) == 1


def test_growth_over_many_sizes_keeps_every_byte() -> None:
    rows = [(i, b"k" * (i % 300), bytes([i % 256]) * (i * 7 % 5000), ()) for i in range(300)]
    b = builder(max_bytes=10_000_000)
    for row in rows:
        assert b.append(*row) is not None
    assert [record[1:] for record in r.decode_batch(b.build())] == rows


def test_an_unknown_codec_is_refused_before_any_record() -> None:
    with pytest.raises(UnsupportedCompressionError):
        builder(attributes=6)


def test_the_bound_holds() -> None:
    headers = [("näme" * 10, b"x" * 200), ("", None)]
    bound = r.batch_bytes_bound(b"k" * 100, b"v" * 1000, headers)
    b = builder(max_bytes=bound)
    assert b.append(2**62, b"k" * 100, b"v" * 1000, headers) == 0
