"""How much one batch takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replog.spark.options import Limits
from replog.spark.stream.admission import UNKNOWN_OFFSET_BYTES, admitted_ends, shared, wait_ms

counts = st.dictionaries(st.integers(0, 20), st.integers(0, 10**12), max_size=12)


def test_without_limits_everything_is_taken() -> None:
    assert admitted_ends({0: 5, 1: 7, 2: 9}, {0: 10, 1: 7, 2: 4}, Limits()) == {0: 10, 1: 7, 2: 9}


def test_a_skewed_backlog_is_shared_in_proportion() -> None:
    """Example: a million offsets in one partition, 1,000 and 1 in others: nobody starves, nobody waits for the large one."""
    ends = {0: 1_000_000, 1: 1_000, 2: 1, 3: 0}
    assert admitted_ends(dict.fromkeys(ends, 0), ends, Limits(max_offsets=1_001)) == {0: 999, 1: 1, 2: 1, 3: 0}


def test_many_small_partitions_cost_large_ones_the_same_share() -> None:
    """Example: they get one offset each; of two as large as each other, neither pays for them alone."""
    found = shared({0: 10**6, 1: 10**6} | dict.fromkeys(range(2, 602), 1), 1_000)
    assert (found[0], found[1], set(list(found.values())[2:])) == (200, 200, {1})


def test_fewer_offsets_than_partitions_is_still_one_for_each() -> None:
    assert shared({0: 100, 1: 5, 2: 1, 3: 0}, 2) == {0: 1, 1: 1, 2: 1, 3: 0}


@given(counts, st.integers(1, 10**12))
def test_parts_fit_the_limit_and_nobody_starves(found: dict[int, int], limit: int) -> None:
    parts = shared(found, limit)
    filled = sum(count > 0 for count in found.values())
    assert sum(parts.values()) == min(sum(found.values()), max(limit, filled))
    assert all(min(1, count) <= parts[key] <= count for key, count in found.items())


@given(counts, st.integers(1, 10**6), st.integers(1, 10**9), st.floats(0, 10**6))
def test_an_end_lies_between_start_and_what_there_is(
    found: dict[int, int], max_offsets: int, max_bytes: int, each: float
) -> None:
    begin = {key: key * 3 for key in found}
    limits = Limits(max_offsets=max_offsets, max_bytes=max_bytes)
    # some ends lie below the start: a target of the past
    end = {key: begin[key] + count - 2 for key, count in found.items()}
    for key, admitted in admitted_ends(begin, end, limits, dict.fromkeys(found, each)).items():
        assert begin[key] <= admitted <= max(begin[key], end[key])
        assert admitted > begin[key] or end[key] <= begin[key]


def test_bytes_are_shared_by_the_size_of_offsets() -> None:
    """Example: as many offsets in both, those of one ten times as large: it gets as many offsets, ten times the bytes."""
    ends = {0: 1_000, 1: 1_000}
    limits = Limits(max_bytes=110_000)
    assert admitted_ends({0: 0, 1: 0}, ends, limits, {0: 100.0, 1: 1_000.0}) == {0: 100, 1: 100}
    assert admitted_ends({0: 900, 1: 0}, ends, limits, {0: 100.0, 1: 10.0}) == {0: 1_000, 1: 1_000}


def test_offsets_of_unknown_size_count_as_usual_ones() -> None:
    assert admitted_ends({0: 0}, {0: 100}, Limits(max_bytes=UNKNOWN_OFFSET_BYTES * 7)) == {0: 7}
    assert admitted_ends({0: 0}, {0: 100}, Limits(max_bytes=1), {0: 0.0}) == {0: 1}


def test_offsets_of_less_than_a_byte_on_the_average_are_admitted_by_their_sum() -> None:
    """Example: a compacted log, where most offsets have no record: a batch takes as many as fit, not one of them."""
    assert admitted_ends({0: 0}, {0: 1_000}, Limits(max_bytes=10), {0: 0.1}) == {0: 100}
    assert admitted_ends({0: 0, 1: 0}, {0: 5, 1: 1_000}, Limits(max_bytes=50), {0: 0.1, 1: 0.1}) == {0: 5, 1: 490}


def test_both_limits_hold() -> None:
    limits = Limits(max_offsets=50, max_bytes=1_000)
    assert admitted_ends({0: 0}, {0: 100}, limits, {0: 10.0}) == {0: 50}
    assert admitted_ends({0: 0}, {0: 100}, limits, {0: 100.0}) == {0: 10}


def test_a_batch_is_put_off_until_there_is_enough_or_the_delay_is_over() -> None:
    limits = Limits(min_offsets=100, max_delay_ms=1_000)
    assert wait_ms(limits, 99, 999) == 1
    assert wait_ms(limits, 100, 0) == 0
    assert wait_ms(limits, 99, 1_000) == wait_ms(limits, 99, 2_000) == 0
    assert wait_ms(limits, 1, None) == 0  # the first of a run
    assert wait_ms(Limits(), 0, 0) == 0


def test_a_log_with_next_to_nothing_in_it_takes_all_its_offsets_at_once() -> None:
    ends = admitted_ends({"a": 0, "b": 0}, {"a": 2**62, "b": 9}, Limits(max_bytes=1), {"a": 5e-324, "b": 1.0})
    assert ends["b"] == 1
    assert ends["a"] == 2**62
