"""The page: a section for each run, with its charts, what an acknowledgement meant, who was left out, and all numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from bench.harness import show_params
from bench.model import Row
from bench.page import charts
from bench.page.results import Results
from bench.report import show_number

BARS = {
    "records_per_s": "Records a second (more is better)",
    "rows_per_s": "Rows a second (more is better)",
    "topics_per_s": "Topics created a second (more is better)",
    "longest_ack_gap_ms": "Longest time without an acknowledgement (less is better)",
    "failover_ms": "Time without a controller (less is better)",
    "first_ack_ms": "From nothing to the first acknowledged record (less is better)",
    "cluster_ready_ms": "From nothing to three nodes that serve (less is better)",
    "rss_mib": "Resident memory of an idle node (less is better)",
}
"""Metrics that get a chart of bars, in this order; a run without any of them gets one of its first metric."""

LATENCIES = (
    ("ack_p50_ms", "ack_p99_ms", "ack_max_ms"),
    ("p50_ms", "p99_ms", "max_ms"),
)
LATENCIES_TITLE = "Latency: median (dot), 99th percentile (ring), maximum (bar); less is better"
TIMELINE_TITLE = "Acknowledgements around the kill, worst repetition: filled where they came"

STYLE = """
:root { --ink: #1c2330; --soft: #5c6678; --line: #dde2ea; --paper: #ffffff; --gap: #f1f3f7;
  --replog: #0f7b6c; --kafka: #d0722b; --other: #7a8599; --kill: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaf0; --soft: #9aa5b8; --line: #333c4c; --paper: #151a22;
  --gap: #222936; --replog: #3fb8a4; --kafka: #e8934f; --other: #8b96aa; --kill: #ff7b72; } }
body { margin: 2rem auto; max-width: 52rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { margin: 2.6rem 0 0.2rem; font-size: 1.25rem; } h3 { margin: 1.4rem 0 0.2rem; font-size: 1rem; }
h4 { margin: 0.8rem 0 0.1rem; font-size: 0.85rem; font-weight: 500; color: var(--soft); }
p, li { color: var(--soft); margin: 0.2rem 0; } svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg text.axis { fill: var(--soft); font-size: 11px; }
.replog { fill: var(--replog); stroke: var(--replog); } .kafka { fill: var(--kafka); stroke: var(--kafka); }
.other { fill: var(--other); stroke: var(--other); } rect { stroke: none !important; }
.hollow { fill: var(--paper); stroke-width: 2; } .span { stroke-width: 2; } .range { stroke: var(--ink); stroke-width: 1.5; }
.grid { stroke: var(--line); } .gap { fill: var(--gap); } .kill { stroke: var(--kill); stroke-width: 2; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
td, th { padding: 0.15rem 0.9rem 0.15rem 0; text-align: left; border-bottom: 1px solid var(--line); }
td.number { text-align: right; } details { margin-top: 1rem; } summary { cursor: pointer; color: var(--soft); }
"""


def page(runs: Sequence[Results], questions: Mapping[str, str]) -> str:
    """The whole document.

    Args:
        runs: The runs, in the order of the page.
        questions: The question of each scenario that is known here.
    """
    sections = [section(run, questions.get(run.scenario, "")) for run in runs]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>replog measured</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            "<h1>replog measured</h1>",
            _paragraph(
                "Bars and dots are medians; thin lines go from the lowest repetition to the highest. The systems of a run took turns "
                "on the same machine. A name says whose brokers they are and, after the dash, what else is different: the client, "
                "or how it sends."
            ),
            *sections,
            "</body>\n</html>\n",
        ]
    )


def section(run: Results, question: str) -> str:
    """One run."""
    parts = [f"<h2>{escape(run.scenario)}</h2>", _paragraph(question)]
    for case in run.cases():
        parts += [f"<h3>{escape(case)}</h3>", *case_charts(run, case)]
    parts += [_paragraph(line) for line in notes(run)]
    parts += ["<details><summary>All numbers</summary>", table(run.rows), "</details>"]
    return "\n".join(parts)


def case_charts(run: Results, case: str) -> list[str]:
    """The charts of one case, each under its title."""
    found = [
        _titled(BARS[metric], charts.bars(BARS[metric], rows)) for metric in BARS if (rows := run.of_case(case, metric))
    ]
    for names in LATENCIES:
        p50, p99, top = (run.of_case(case, name) for name in names)
        if p50 and p99:
            found.append(_titled(LATENCIES_TITLE, charts.latencies(LATENCIES_TITLE, p50, p99, top or p99)))
    if traces := [trace for trace in run.traces if show_params(trace.params) == case]:
        found.append(_titled(TIMELINE_TITLE, charts.timeline(TIMELINE_TITLE, traces)))
    if not found:
        first = next(row.metric for row in run.rows if show_params(row.params) == case)
        found.append(_titled(first, charts.bars(first, run.of_case(case, first))))
    return found


def notes(run: Results) -> list[str]:
    """What an acknowledgement meant, who was left out and why, and what it was measured on."""
    found = [
        f"Acknowledged by {', '.join(name for name, its in run.durability.items() if its == text)}: {text}."
        for text in dict.fromkeys(run.durability.values())
    ]
    found += [f"Left out: {name}: {reason}." for name, reason in run.missing.items()]
    about = run.environment
    facts = [f"commit {about.get('commit')}", str(about.get("processor")), f"{about.get('cpus')} CPUs"]
    facts += [str(about[name]) for name in ("python", "file_system", "time") if name in about]
    return [*found, f"Medians of {run.rows[0].n}; {', '.join(facts)}."]


def table(rows: Sequence[Row]) -> str:
    """Every row, the cases under each other."""
    lines = ["<table><tr><th>system</th><th>metric</th><th>median</th><th>low</th><th>high</th><th>unit</th></tr>"]
    for case, its in groupby(rows, key=lambda row: show_params(row.params)):
        lines.append(f'<tr><th colspan="6">{escape(case)}</th></tr>')
        for row in its:
            numbers = "".join(
                f'<td class="number">{show_number(each)}</td>' for each in (row.median, row.low, row.high)
            )
            lines.append(
                f"<tr><td>{escape(row.system)}</td><td>{escape(row.metric)}</td>{numbers}<td>{escape(row.unit)}</td></tr>"
            )
    return "\n".join([*lines, "</table>"])


def _titled(title: str, chart: str) -> str:
    return f"<h4>{escape(title)}</h4>\n{chart}"


def _paragraph(words: str) -> str:
    return f"<p>{escape(words)}</p>"
