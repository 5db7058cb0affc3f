"""Charts of results: bars, latencies on a logarithmic scale, and what happened around a kill."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.model import Row, Trace
from bench.page import svg
from bench.report import show_number

WIDTH = 760.0
LABELS_WIDTH = 150.0
VALUES_WIDTH = 210.0
ROW_HEIGHT = 26.0
BAR_HEIGHT = 14.0
AXIS_HEIGHT = 24.0
TICKS_MAX = 14
PEER = "kafka"
_PLOT = WIDTH - LABELS_WIDTH - VALUES_WIDTH


def bars(title: str, rows: Sequence[Row]) -> str:
    """A bar for each system, as long as its median, with a line from the lowest to the highest repetition; and its ratio to the peer's."""
    longest = max(row.high for row in rows) or 1.0
    peer = next((row.median for row in rows if row.system == PEER), 0.0)
    parts = []
    for number, row in enumerate(rows):
        middle = (number + 0.5) * ROW_HEIGHT
        low, median, high = (LABELS_WIDTH + _PLOT * value / longest for value in (row.low, row.median, row.high))
        parts += [
            _label(row.system, middle),
            svg.rect(LABELS_WIDTH, middle - BAR_HEIGHT / 2, median - LABELS_WIDTH, BAR_HEIGHT, side(row.system)),
            svg.line(low, middle, high, middle, "range"),
            svg.text(LABELS_WIDTH + _PLOT + 10, middle + 4, _value(row, peer), "value"),
        ]
    return svg.drawing(WIDTH, len(rows) * ROW_HEIGHT, title, parts)


def latencies(title: str, middles: Sequence[Row], late: Sequence[Row], latest: Sequence[Row]) -> str:
    """For each system its median, 99th percentile and maximum, in milliseconds on a logarithmic scale.

    Args:
        title: The title for who cannot see it.
        middles: The rows of the median latency, a system each.
        late: Those of the 99th percentile, in the same order.
        latest: Those of the maximum.
    """
    values = [row.median for row in (*middles, *late, *latest) if row.median > 0]
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    last = max(last, first + 1)

    def place(value: float) -> float:
        return LABELS_WIDTH + _PLOT * (math.log10(max(value, 10.0**first)) - first) / (last - first)

    height = len(middles) * ROW_HEIGHT
    parts = []
    for power in range(first, last + 1):
        parts.append(svg.line(place(10.0**power), 0, place(10.0**power), height, "grid"))
        parts.append(svg.text(place(10.0**power), height + 16, f"{10.0**power:g} ms", "axis", "middle"))
    for number, (p50, p99, top) in enumerate(zip(middles, late, latest, strict=True)):
        middle = (number + 0.5) * ROW_HEIGHT
        shown = " · ".join(show_number(row.median) for row in (p50, p99, top))
        parts += [
            _label(p50.system, middle),
            svg.line(place(p50.median), middle, place(top.median), middle, f"span {side(p50.system)}"),
            svg.circle(place(p50.median), middle, 5, side(p50.system)),
            svg.circle(place(p99.median), middle, 4, f"hollow {side(p50.system)}"),
            svg.line(place(top.median), middle - 6, place(top.median), middle + 6, f"span {side(p50.system)}"),
            svg.text(LABELS_WIDTH + _PLOT + 10, middle + 4, f"{shown} ms", "value"),
        ]
    return svg.drawing(WIDTH, height + AXIS_HEIGHT, title, parts)


def timeline(title: str, traces: Sequence[Trace]) -> str:
    """A strip for each system, filled where acknowledgements came; a line where the node was killed."""
    first_s = min(trace.first_s for trace in traces)
    last_s = max(_end_s(trace) for trace in traces)
    plot = WIDTH - LABELS_WIDTH - 20

    def place(at_s: float) -> float:
        return LABELS_WIDTH + plot * (at_s - first_s) / (last_s - first_s)

    height = len(traces) * ROW_HEIGHT
    parts = []
    for at_s in _ticks(first_s, last_s):
        parts.append(svg.line(place(at_s), 0, place(at_s), height, "grid"))
        parts.append(svg.text(place(at_s), height + 16, f"{at_s:g} s", "axis", "middle"))
    for number, trace in enumerate(traces):
        top = number * ROW_HEIGHT + (ROW_HEIGHT - BAR_HEIGHT) / 2
        parts.append(_label(trace.system, top + BAR_HEIGHT / 2))
        parts.append(
            svg.rect(place(trace.first_s), top, place(_end_s(trace)) - place(trace.first_s), BAR_HEIGHT, "gap")
        )
        for begin, end in _filled(trace.counts):
            left = place(trace.first_s + begin * trace.bin_s)
            right = place(trace.first_s + end * trace.bin_s)
            parts.append(svg.rect(left, top, right - left, BAR_HEIGHT, side(trace.system)))
    parts.append(svg.line(place(0), 0, place(0), height, "kill"))
    return svg.drawing(WIDTH, height + AXIS_HEIGHT, title, parts)


def side(system: str) -> str:
    """Whose brokers a system has, as a class of the style."""
    return next((name for name in ("replog", "kafka") if system == name or system.startswith(f"{name}-")), "other")


def _value(row: Row, peer: float) -> str:
    ratio = f", {show_number(row.median / peer)} × {PEER}" if peer and row.system != PEER else ""
    return f"{show_number(row.median)} {row.unit}{ratio}"


def _label(system: str, middle: float) -> str:
    return svg.text(LABELS_WIDTH - 10, middle + 4, system, "label", "end")


def _end_s(trace: Trace) -> float:
    return trace.first_s + trace.bin_s * len(trace.counts)


def _filled(counts: Sequence[int]) -> list[tuple[int, int]]:
    """The stretches in which no bin is empty, half-open."""
    found: list[tuple[int, int]] = []
    for place, count in enumerate(counts):
        if not count:
            continue
        if found and found[-1][1] == place:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found


def _ticks(first_s: float, last_s: float) -> list[float]:
    """Round seconds between two times."""
    wanted = (last_s - first_s) / TICKS_MAX
    power = 10.0 ** math.floor(math.log10(wanted))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted)
    return [round(number * step, 6) for number in range(math.ceil(first_s / step), math.floor(last_s / step) + 1)]
