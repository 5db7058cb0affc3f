"""Says of two trees that took turns whether one is faster: the only place where that is decided.

Round i measured both trees, one after the other, so that whatever else the machine did fell on both; their ratio r_i (the
candidate's figure over the base's) is one sample.  Of all rounds together we know

- the ratio: the Hodges-Lehmann estimate, the median of all means of two log ratios (each with itself too), and
- its interval: that of Wilcoxon's signed-rank test, which holds the true ratio in 99 of 100 runs or more; thirty figures are
  judged in one run, of which 95 would leave one in the wrong.  It assumes nothing about how the noise is spread but that it
  is as likely up as down.  Seven rounds or fewer have no such interval.

A figure is then

- `same`: the whole interval is within 5 % of 1;
- `better` or `worse`: the ratio is 5 % or more from 1, and the interval does not hold 1;
- `cannot tell`: anything else.  The spread is larger than the difference could be, or there were too few rounds.

A line has two figures: its rate (or time), and CPU a unit of work, which is steadier, for it does not count what others did
meanwhile.  The line is `worse` if one of them is, else `better` if one of them is, else `same` if the rate is.  Where
the work only waits for the processor, the rate says nothing that CPU does not say more exactly: then `same` CPU is enough.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["same", "better", "worse", "cannot tell"]

THRESHOLD: Final = 0.05
"""How far from 1 a ratio may be and still be called the same; 1 / 1.05 is as far below as 1.05 is above."""

DOUBT: Final = 0.01
"""How often the interval may miss the true ratio."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two trees, and what may be true instead.

    Attributes:
        middle: The estimate.
        low: Where the interval begins; 0 where there is none.
        high: Where the interval ends; infinity where there is none.
    """

    middle: float
    low: float
    high: float

    def verdict(self, *, lower_is_better: bool) -> Verdict:
        """Returns what the ratio says, by the rule at the top of this module."""
        near = 1 + THRESHOLD
        if 1 / near < self.low and self.high < near:
            return "same"
        if 1 / near < self.middle < near or self.low <= 1 <= self.high:
            return "cannot tell"
        return "better" if (self.middle < 1) == lower_is_better else "worse"


def ratio_of(base: Sequence[float], candidate: Sequence[float]) -> Ratio:
    """Returns the ratio of the candidate's samples to the base's, round by round.

    Args:
        base: The samples of the base, one or more.
        candidate: The samples of the same rounds of the candidate.

    Returns:
        The ratio; one that says nothing where a sample is 0: less CPU than the system's clock can tell.
    """
    if min(*base, *candidate) <= 0:
        return Ratio(math.nan, 0.0, math.inf)
    logs = [math.log(ours / theirs) for theirs, ours in zip(base, candidate, strict=True)]
    means = sorted((one + other) / 2 for one, other in itertools.combinations_with_replacement(logs, 2))
    middle = math.exp(statistics.median(means))
    left_out = _left_out(len(logs))
    if left_out is None:
        return Ratio(middle, 0.0, math.inf)
    return Ratio(middle, math.exp(means[left_out]), math.exp(means[-1 - left_out]))


def of_line(rate: Verdict, cpu: Verdict, *, waits_for_cpu_only: bool) -> Verdict:
    """Returns the verdict of a line.

    Args:
        rate: The verdict of its rate or time.
        cpu: The verdict of its CPU a unit.
        waits_for_cpu_only: Whether the work waits for nothing but the processor.
    """
    if "worse" in {rate, cpu}:
        return "worse"
    if "better" in {rate, cpu}:
        return "better"
    return "same" if rate == "same" or (waits_for_cpu_only and cpu == "same") else "cannot tell"


def _left_out(count: int) -> int | None:
    """Returns how many means are outside of the interval at each end; None where there is no interval.

    The signed-rank statistic of `count` differences is the sum of a random subset of 1 to `count`; `ways[n]` counts
    the subsets with the sum n.
    """
    ways = [1]
    for rank in range(1, count + 1):
        ways = [
            (ways[n] if n < len(ways) else 0) + (ways[n - rank] if n >= rank else 0) for n in range(len(ways) + rank)
        ]
    below = list(itertools.takewhile(lambda sum_: sum_ <= DOUBT / 2 * 2**count, itertools.accumulate(ways)))
    return len(below) - 1 if below else None
