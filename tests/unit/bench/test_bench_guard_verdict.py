"""The rule of the guard: when one tree is better, worse, the same, and when nobody can tell."""

from __future__ import annotations

import math
import random

import pytest

from bench.guard import verdict
from bench.guard.verdict import Ratio, ratio_of

BASE = [100.0, 104.0, 97.0, 101.0, 99.0, 103.0, 98.0, 102.0]
NOISE = [1.01, 0.99, 1.0, 1.02, 0.98, 1.005, 0.995, 1.0]


def candidate(factor: float, noise: list[float] = NOISE) -> list[float]:
    return [value * factor * each for value, each in zip(BASE, noise, strict=True)]


@pytest.mark.parametrize(
    ("factor", "rate", "time"),
    [
        (1.0, "same", "same"),
        (1.02, "same", "same"),
        (0.78, "worse", "better"),
        (1.3, "better", "worse"),
        (0.957, "cannot tell", "cannot tell"),  # surely slower, and nobody knows whether by 5 %
    ],
)
def test_a_rate_and_a_time_are_judged_by_the_ratio(factor: float, rate: str, time: str) -> None:
    ratio = ratio_of(BASE, candidate(factor))
    assert ratio.middle == pytest.approx(factor, rel=0.01)
    assert ratio.verdict(lower_is_better=False) == rate
    assert ratio.verdict(lower_is_better=True) == time


def test_nobody_can_tell_where_the_spread_is_larger_than_the_difference() -> None:
    ratio = ratio_of(BASE, candidate(0.9, [0.7, 1.4, 1.0, 1.3, 0.8, 1.2, 0.75, 1.1]))
    assert ratio.low < 0.95
    assert ratio.high > 1.05
    assert ratio.verdict(lower_is_better=False) == "cannot tell"


def test_what_both_trees_feel_in_a_round_is_no_difference() -> None:
    load = [1.0, 3.0, 0.5, 2.0, 1.0, 4.0, 1.0, 2.0]
    slowed = [value * each for value, each in zip(BASE, load, strict=True)]
    ratio = ratio_of(slowed, slowed)
    assert (ratio.low, ratio.middle, ratio.high) == pytest.approx((1, 1, 1))
    assert ratio.verdict(lower_is_better=False) == "same"


@pytest.mark.parametrize("rounds", [1, 7])
def test_seven_rounds_tell_nothing(rounds: int) -> None:
    ratio = ratio_of(BASE[:rounds], [value / 10 for value in BASE[:rounds]])
    assert ratio.middle == pytest.approx(0.1)
    assert (ratio.low, ratio.high) == (0.0, math.inf)
    assert ratio.verdict(lower_is_better=False) == "cannot tell"


def test_eight_rounds_can_tell() -> None:
    assert ratio_of(BASE, [value / 10 for value in BASE]).verdict(lower_is_better=False) == "worse"


def test_less_cpu_than_the_clock_counts_tells_nothing() -> None:
    assert ratio_of([0.0] * 7, [0.01] * 7).verdict(lower_is_better=True) == "cannot tell"
    assert ratio_of([0.01] * 7, [0.0] * 7).verdict(lower_is_better=True) == "cannot tell"


@pytest.mark.parametrize(("count", "critical"), [(8, 0), (9, 1), (10, 3), (12, 7), (15, 15), (20, 37)])
def test_the_interval_is_that_of_the_printed_tables(count: int, critical: int) -> None:
    """Wilcoxon's signed-rank test, 1 %, two-sided."""
    assert verdict._left_out(count) == critical


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    source = random.Random(1)
    held = 0
    for _ in range(1000):
        base, ours = ([source.lognormvariate(0, 0.1) for _ in range(9)] for _ in range(2))
        ratio = ratio_of(base, [value * 0.8 for value in ours])
        held += ratio.low <= 0.8 <= ratio.high
    assert held >= 985


@pytest.mark.parametrize(
    ("ratio", "rate"),
    [
        (Ratio(1.0, 0.953, 1.049), "same"),
        (Ratio(1.0, 0.953, 1.051), "cannot tell"),
        (Ratio(1.0, 0.952, 1.049), "cannot tell"),
        (Ratio(0.94, 0.90, 0.99), "worse"),
        (Ratio(0.94, 0.90, 1.00), "cannot tell"),
        (Ratio(1.06, 1.01, 1.10), "better"),
        (Ratio(1.04, 1.01, 1.10), "cannot tell"),
    ],
)
def test_where_one_verdict_ends_and_the_next_begins(ratio: Ratio, rate: str) -> None:
    assert ratio.verdict(lower_is_better=False) == rate


@pytest.mark.parametrize(
    ("rate", "cpu", "waiting", "computing"),
    [
        ("same", "same", "same", "same"),
        ("same", "worse", "worse", "worse"),
        ("worse", "better", "worse", "worse"),
        ("better", "worse", "worse", "worse"),
        ("same", "better", "better", "better"),
        ("cannot tell", "worse", "worse", "worse"),
        ("cannot tell", "better", "better", "better"),
        ("cannot tell", "same", "cannot tell", "same"),
        ("same", "cannot tell", "same", "same"),
        ("cannot tell", "cannot tell", "cannot tell", "cannot tell"),
    ],
)
def test_a_line_has_one_verdict(rate: verdict.Verdict, cpu: verdict.Verdict, waiting: str, computing: str) -> None:
    assert verdict.of_line(rate, cpu, waits_for_cpu_only=False) == waiting
    assert verdict.of_line(rate, cpu, waits_for_cpu_only=True) == computing
