"""Draws docs/pictures: one SVG for each file of data there, which `tests/sim/concept_runs.py` has written from a run.

``python tools/pictures.py`` writes them, ``--check`` says which are not what would be drawn.  The same data are the same
bytes, with the same matplotlib: nothing is drawn at random, and no time is written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
BROKERS = {1: "#1f77b4", 2: "#ff7f0e", 3: "#2ca02c"}
MEMBERS = {"a": "#1f77b4", "b": "#ff7f0e", "c": "#2ca02c"}
EPOCHS = ("#c6dbef", "#fdd0a2", "#c7e9c0")
GONE = "#d62728"
STYLE: Any = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "svg.fonttype": "none",  # text stays text: small, and found by a search
    "svg.hashsalt": "replog",
}

Look: TypeAlias = dict[str, Any]
Changes: TypeAlias = Sequence[tuple[float, Look]]
"""(seconds since the beginning, what was seen from then on)."""


def spans(changes: Changes, value: Callable[[Look], Any]) -> Iterable[tuple[float, float, Any]]:
    """Yields from when to when something had which value."""
    begun = changes[0]
    for at, now in changes[1:]:
        if value(now) != value(begun[1]):
            yield begun[0], at, value(begun[1])
            begun = (at, now)
    yield begun[0], changes[-1][0], value(begun[1])


def mark(axes: Sequence[Axes], marks: Sequence[tuple[float, str]]) -> None:
    """Draws a line through all axes where something was done, with its name on top."""
    end = axes[0].get_xlim()[1]
    for at, text in marks:
        for each in axes:
            each.axvline(at, color="#888888", linewidth=0.8, linestyle=":")
        side = "right" if at > 0.8 * end else "left"
        axes[0].annotate(text, (at, 1.02), xycoords=("data", "axes fraction"), fontsize=8, ha=side, color="#555555")


def strips(axes: Axes, rows: Sequence[tuple[str, Sequence[tuple[float, float, str, str]]]]) -> None:
    """Draws a row for each name: bars from when to when, with a colour and a text in them."""
    for number, (_, bars) in enumerate(rows):
        for begin, end, colour, text in bars:
            axes.broken_barh([(begin, end - begin)], (number - 0.35, 0.7), color=colour)
            if text:
                axes.text((begin + end) / 2, number, text, ha="center", va="center", fontsize=8, color="white")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("seconds")


def high_watermark(data: Look) -> Figure:
    """Ends of three logs and the high watermark above; who is in the ISR below."""
    figure = Figure(figsize=(7.5, 4.2))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    changes: Changes = data["changes"]
    times = [at for at, _ in changes]
    for node_id, colour in BROKERS.items():
        role = "leader" if node_id == data["leader"] else "follower"
        ends = [look["ends"][str(node_id)] for _, look in changes]
        above.step(times, ends, where="post", color=colour, linewidth=1.2, label=f"end of the log of {role} {node_id}")
    marks = [look["high_watermark"] for _, look in changes]
    above.step(times, marks, where="post", color="black", linewidth=1.8, linestyle="--", label="high watermark")
    above.set_ylabel("offset")
    above.legend(frameon=False, loc="upper left")
    strips(below, [(f"ISR has {node}", isr_bars(changes, node, colour)) for node, colour in BROKERS.items()])
    mark((above, below), data["marks"])
    return figure


def isr_bars(changes: Changes, node_id: int, colour: str) -> list[tuple[float, float, str, str]]:
    """Returns when a broker was in the ISR."""
    return [
        (begin, end, colour, "") for begin, end, inside in spans(changes, lambda look: node_id in look["isr"]) if inside
    ]


def rebalance(data: Look) -> Figure:
    """A row for each partition: which member had it; two where two believe so."""
    figure = Figure(figsize=(7.5, 3.2))
    axes = figure.subplots()
    changes: Changes = data["changes"]
    for partition in range(data["partitions"]):
        for number, (member, colour) in enumerate(MEMBERS.items()):
            for begin, end, has in spans(changes, lambda look: partition in look["shares"].get(member, ())):  # noqa: B023 -- used at once
                if has:
                    low = partition - 0.4 + number * 0.05
                    axes.broken_barh([(begin, end - begin)], (low, 0.7), color=colour, alpha=0.75)
                    axes.text((begin + end) / 2, low + 0.35, member, ha="center", va="center", fontsize=8)
    axes.set_yticks(range(data["partitions"]), [f"partition {number}" for number in range(data["partitions"])])
    axes.set_ylim(data["partitions"] - 0.5, -0.5)
    axes.set_xlabel("seconds")
    mark((axes,), data["marks"])
    return figure


def elections(data: Look) -> Figure:
    """What is acknowledged above; who leads what, in which epoch, and the ISR below."""
    figure = Figure(figsize=(7.5, 4.2))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1.6))
    changes: Changes = data["changes"]
    acknowledged = [look["acknowledged"] for _, look in changes]
    above.step([at for at, _ in changes], acknowledged, where="post", color="black")
    above.set_ylabel("records acknowledged")
    led = [
        (name, leader_bars(changes, which))
        for name, which in (("quorum led by", "controller"), ("orders-0 led by", "leader"))
    ]
    strips(below, [*led, *((f"ISR has {node}", isr_bars(changes, node, colour)) for node, colour in BROKERS.items())])
    mark((above, below), data["marks"])
    return figure


def leader_bars(changes: Changes, which: str) -> list[tuple[float, float, str, str]]:
    """Returns who led, with the epoch."""
    return [
        (begin, end, BROKERS[node_id], f"{node_id}, epoch {epoch}")
        for begin, end, (node_id, epoch) in spans(changes, lambda look: (look[which], look[f"{which}_epoch"]))
        if node_id in BROKERS
    ]


def leader_epochs(data: Look) -> Figure:
    """Two columns, with the safeguard and without; a row for each moment, with the three logs."""
    rows = len(data["with"]["moments"])
    figure = Figure(figsize=(7.5, 1.5 * rows + 0.6))
    titles = {"with": "with leader epochs", "without": "instead: cut to the high watermark"}
    every = figure.subplots(rows, 2, squeeze=False)
    for column, (name, title) in enumerate(titles.items()):
        for axes, moment in zip(every[:, column], data[name]["moments"], strict=True):
            draw_logs(axes, moment)
        every[0, column].annotate(title, (0, 1.25), xycoords="axes fraction", fontweight="bold")
    return figure


def draw_logs(axes: Axes, moment: Look) -> None:
    """Draws the logs of three brokers at one moment: a box for each record, and the high watermark as each knows it."""
    axes.set_title(moment["text"], fontsize=8, loc="left")
    for row, (node_id, broker) in enumerate(moment["brokers"].items()):
        is_down = broker["role"] == "down"
        axes.text(
            -0.1,
            row,
            f"{node_id} {broker['role']}",
            ha="right",
            va="center",
            fontsize=8,
            color=GONE if is_down else "black",
        )
        for offset, (value, epoch) in enumerate(broker["log"]):
            box = Rectangle(
                (offset, row - 0.38), 0.95, 0.76, facecolor=EPOCHS[epoch], edgecolor="#555555", linewidth=0.6
            )
            box.set_alpha(0.4 if is_down else 1)
            axes.add_patch(box)
            axes.text(offset + 0.47, row, f"{value} e{epoch}", ha="center", va="center", fontsize=8)
        if broker["high_watermark"] is not None:
            at = broker["high_watermark"] - 0.025
            axes.plot([at, at], [row - 0.47, row + 0.47], color="black", linewidth=2)
    axes.set_xlim(-1.2, 3.1)
    axes.set_ylim(2.6, -0.6)
    axes.axis("off")


DRAWN: dict[str, Callable[[Look], Figure]] = {
    "high-watermark": high_watermark,
    "rebalance": rebalance,
    "elections": elections,
    "leader-epochs": leader_epochs,
}


def drawn(name: str) -> str:
    """Returns the SVG of the data that are kept under a name."""
    data = json.loads((PICTURES / f"{name}.json").read_text(encoding="utf-8"))
    with mpl.rc_context(STYLE):
        figure = DRAWN[name](data)
        figure.set_layout_engine("tight")
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes all pictures; with `--check` only says which are out of date, and returns 1 if there are some."""
    stale = []
    for name in DRAWN:
        path, text = PICTURES / f"{name}.svg", drawn(name)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    for name in stale:
        sys.stderr.write(f"docs/pictures/{name}.svg is not what its data show: python tools/pictures.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
