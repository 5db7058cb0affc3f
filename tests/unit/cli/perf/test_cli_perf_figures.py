"""What `replog perf` tells: latencies of a bounded histogram, rates, errors of a bounded number of kinds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replog.cli.perf.load import ERRORS_MAX, Figures, Latencies


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=100), st.sampled_from([0.5, 0.99, 1.0]))
def test_a_quantile_is_at_most_three_percent_above_that_of_the_sorted_latencies(
    seen: list[float], share: float
) -> None:
    latencies = Latencies()
    for latency_s in seen:
        latencies.add(latency_s)
    place = next(place for place in range(len(seen)) if place + 1 >= share * len(seen) - 1e-9)
    exact_us = int(sorted(seen)[place] * 1e6)
    found_ms = latencies.quantile_ms(share)
    assert found_ms is not None
    assert exact_us <= round(found_ms * 1000) <= exact_us * 1.032


def test_without_latencies_there_is_no_quantile_and_a_clock_that_was_set_does_no_harm() -> None:
    latencies = Latencies()
    assert latencies.quantile_ms(0.5) is None
    latencies.add(-5)
    latencies.add(1e12)
    assert (latencies.quantile_ms(0.5), len(latencies._counts)) == (0.0, 2)


def test_the_kinds_of_errors_are_bounded() -> None:
    figures = Figures("after")
    figures.begin()
    for number in range(ERRORS_MAX + 5):
        figures.fail(f"reason {number}", 2)
    figures.add(3, 3_000_000)
    assert len(figures.errors) == ERRORS_MAX + 1
    assert figures.errors["other errors"] == 10
    assert figures.live().endswith(f"after: p50 -, p99 -, {2 * (ERRORS_MAX + 5)} failed")
    assert ("MB", "3.00") in figures.rows()
