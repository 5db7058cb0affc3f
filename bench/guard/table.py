"""Judges what was measured, and shows it: a Markdown table for people, JSON for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import MARKDOWN
from rich.table import Table

from bench.guard import verdict
from bench.guard.lines import LINES, Line
from bench.guard.turns import Samples
from bench.guard.verdict import Ratio
from bench.report import show_number

CANNOT_RUN = "cannot run"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a line in both trees.

    Attributes:
        metric: The name of the metric.
        unit: Its unit.
        base: The samples of the base.
        candidate: The samples of the candidate.
        ratio: The candidate's over the base's.
        verdict: What the ratio says.
    """

    metric: str
    unit: str
    base: Sequence[float]
    candidate: Sequence[float]
    ratio: Ratio
    verdict: verdict.Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """What came out of a line.

    Attributes:
        name: Its name.
        verdict: `same`, `better`, `worse`, `cannot tell`; or `cannot run`, where a tree failed.
        figures: The rate or time, and CPU a unit; none where it cannot run.
        failures: Why a tree cannot run it, by the tree's name.
    """

    name: str
    verdict: str
    figures: Sequence[Figure]
    failures: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; what is not a number is None."""
        found = asdict(self)
        for figure in found["figures"]:
            figure["ratio"] = {name: value if math.isfinite(value) else None for name, value in figure["ratio"].items()}
        return found


def judge(name: str, samples: Samples) -> Judged:
    """Returns what the samples of a line say."""
    if samples.failures:
        return Judged(name, CANNOT_RUN, (), samples.failures)
    line = LINES[name]
    figures = [
        _figure(metric, unit, *both, lower_is_better=lower_is_better)
        for metric, unit, both, lower_is_better in _measured(line, samples)
    ]
    rate, cpu = (figure.verdict for figure in figures)
    return Judged(name, verdict.of_line(rate, cpu, waits_for_cpu_only=line.waits_for_cpu_only), figures, {})


def _measured(line: Line, samples: Samples) -> list[tuple[str, str, tuple[list[float], list[float]], bool]]:
    return [
        (line.figure, samples.units[0], samples.figure, line.lower_is_better),
        (line.cpu, samples.units[1], samples.cpu, True),
    ]


def _figure(
    metric: str, unit: str, base: Sequence[float], candidate: Sequence[float], *, lower_is_better: bool
) -> Figure:
    ratio = verdict.ratio_of(base, candidate)
    return Figure(metric, unit, base, candidate, ratio, ratio.verdict(lower_is_better=lower_is_better))


def table(judged: Sequence[Judged], base: str, candidate: str) -> Table:
    """Returns two rows for each line: its rate or time, and CPU a unit; medians with the lowest and the highest sample."""
    shown = Table(box=MARKDOWN)
    for column in ("line", "figure", base, candidate, "ratio", "99 %", "verdict"):
        shown.add_column(column, no_wrap=True)
    for line in judged:
        for number, each in enumerate(line.figures):
            name, said = (line.name, line.verdict) if number == 0 else ("", "")
            shown.add_row(
                name,
                f"{each.metric}, {each.unit}",
                _spread(each.base),
                _spread(each.candidate),
                f"{each.ratio.middle:.3f}",
                f"{each.ratio.low:.2f} to {each.ratio.high:.2f}" if math.isfinite(each.ratio.high) else "",
                said,
            )
        if not line.figures:
            shown.add_row(line.name, "", "", "", "", "", line.verdict)
    return shown


def _spread(values: Sequence[float]) -> str:
    return f"{show_number(statistics.median(values))} ({show_number(min(values))} to {show_number(max(values))})"
