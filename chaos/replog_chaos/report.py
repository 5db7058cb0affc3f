"""The report: JSON for programs, and one HTML page without anything from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import log10
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from replog_chaos.faults import FAULTS
from replog_chaos.outcome import FaultOutcome, Injected, percentile

WIDTH, HEIGHT, LEFT, BOTTOM = 1100, 360, 60, 30
BUCKET_S = 0.1
LATENCY_MS_MIN, DECADES = 1.0, 5
"""The axis of latencies: 1 ms to 100 s, logarithmic."""


class Row(Struct, frozen=True):
    """One kind of fault: how often it happened, what became of records, and its unavailability in seconds."""

    name: str
    count: int
    acknowledged: int
    lost: int
    duplicated: int
    unavailable_s: Mapping[str, float]


def rows(outcome: FaultOutcome) -> list[Row]:
    """Returns a row for each kind of fault, in the order in which they first happened."""
    by_name: dict[str, list[Injected]] = {}
    for one in outcome.injected:
        by_name.setdefault(one.name, []).append(one)
    return [_row(outcome, name, injected) for name, injected in by_name.items()]


def _row(outcome: FaultOutcome, name: str, injected: Sequence[Injected]) -> Row:
    times = sorted(one.unavailable_s for one in injected)
    return Row(
        name,
        len(injected),
        sum(map(outcome.acknowledged_during, injected)),
        sum(one.lost_count for one in injected),
        sum(one.duplicated_count for one in injected),
        {"p50": percentile(times, 50), "p99": percentile(times, 99), "max": times[-1]},
    )


def as_json(outcome: FaultOutcome) -> str:
    """Returns the outcome as JSON; times of events are in seconds since the load began."""
    return json.dumps(
        {
            "sent": outcome.sent_count,
            "acknowledged": len(outcome.acknowledged),
            "acknowledged_by_client": dict(outcome.by_client),
            "acknowledged_without_offset": outcome.stored_count,
            "unknown": outcome.unknown_count,
            "unknown_because": dict(outcome.unknown_because),
            "lost": outcome.lost_count,
            "duplicated": outcome.duplicated_count,
            "other_anomalies": dict(outcome.other_anomalies),
            "anomalies": [str(anomaly) for anomaly in outcome.anomalies],
            "faults": [asdict(row) for row in rows(outcome)],
            "skipped": dict(outcome.skipped),
            "links": outcome.links,
            "transport": outcome.transport,
            "events": [_event(outcome, one) for one in outcome.injected],
            "latency": [
                {"at_s": round(at_s, 3), "max_ms": round(latency_ms, 3)} for at_s, latency_ms in _buckets(outcome)
            ],
        },
        indent=1,
    )


def write(outcome: FaultOutcome, path: Path) -> tuple[Path, Path]:
    """Writes `path` (HTML) and the same with `.json`; returns both."""
    json_path = path.with_suffix(".json")
    path.write_text(as_html(outcome), encoding="utf-8")
    json_path.write_text(as_json(outcome), encoding="utf-8")
    return path, json_path


def as_html(outcome: FaultOutcome) -> str:
    """Returns the outcome as one HTML page."""
    table = "".join(
        f"<tr><td>{escape(row.name)}</td><td>{escape(FAULTS[row.name].text)}</td><td>{row.count}</td>"
        f"<td>{row.acknowledged:,}</td><td>{row.lost:,}</td><td>{row.duplicated:,}</td>"
        + "".join(f"<td>{seconds:.2f}</td>" for seconds in row.unavailable_s.values())
        + "</tr>"
        for row in rows(outcome)
    )
    skipped = "".join(f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in outcome.skipped.items())
    anomalies = "".join(f"<li>{escape(str(anomaly))}</li>" for anomaly in outcome.anomalies[:100])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>replog chaos</title>
<style>body{{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:{WIDTH}px}}
table{{border-collapse:collapse}}td,th{{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}}
td:first-child,td:nth-child(2),th:first-child,th:nth-child(2){{text-align:left}}
svg text{{font:11px system-ui,sans-serif}}</style></head><body>
<h1>{escape(sentence(outcome))}</h1>
<p>{outcome.sent_count:,} records sent, {len(outcome.acknowledged):,} acknowledged, {outcome.stored_count:,} acknowledged
without an offset, {outcome.unknown_count:,} without a certain outcome; {outcome.lost_count:,} lost,
{outcome.duplicated_count:,} duplicated.</p>
<table><tr><th>fault</th><th></th><th>times</th><th>acknowledged</th><th>lost</th><th>duplicated</th>
<th>p50 s</th><th>p99 s</th><th>max s</th></tr>{table}</table>
<p>Acknowledged from a fault until all replicas were in sync again; what is lost or there twice counts for the first fault that
was not over when it was acknowledged. Then the longest time without an acknowledgement in any one partition, for each time that
the fault happened.
Nodes met over {escape(outcome.transport)}. Where links were cut, it was by {escape(outcome.links)}.</p>
{_chart(outcome)}
<p>The slowest acknowledgement of each tenth of a second, from when its record was due. Red: from a fault until every
partition took records again; grey: until all replicas were in sync again.</p>
{f"<h2>Skipped</h2><ul>{skipped}</ul>" if skipped else ""}
{f"<h2>Anomalies</h2><ul>{anomalies}</ul>" if anomalies else ""}
</body></html>
"""


def sentence(outcome: FaultOutcome) -> str:
    """Says in a sentence what came of the faults."""
    if outcome.anomalies:
        return f"{len(outcome.anomalies)} anomalies, {outcome.lost_count} of them lost records."
    count = len(outcome.injected)
    skipped = f", {len(outcome.skipped)} skipped" if outcome.skipped else ""
    return f"{count} fault{'' if count == 1 else 's'}{skipped}, no acknowledged record lost, none twice."


def _event(outcome: FaultOutcome, one: Injected) -> dict[str, object]:
    event: dict[str, object] = asdict(one)
    for name in ("began_s", "flowing_s", "settled_s"):
        event[name] = round(getattr(one, name) - outcome.start_s, 3)
    event["unavailable_s"] = round(one.unavailable_s, 3)
    event["acknowledged"] = outcome.acknowledged_during(one)
    return event


def _buckets(outcome: FaultOutcome) -> list[tuple[float, float]]:
    """Returns (seconds since the start, slowest acknowledgement in ms) for each tenth of a second with any."""
    slowest: dict[int, float] = {}
    for one in outcome.acknowledged:
        bucket = int((one.acked_s - outcome.start_s) / BUCKET_S)
        slowest[bucket] = max(slowest.get(bucket, 0.0), (one.acked_s - one.due_s) * 1000)
    return [(bucket * BUCKET_S, latency_ms) for bucket, latency_ms in sorted(slowest.items())]


def _chart(outcome: FaultOutcome) -> str:
    buckets = _buckets(outcome)
    if not buckets:
        return ""
    end_s = max(buckets[-1][0], 1.0, *(one.settled_s - outcome.start_s for one in outcome.injected))

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT) * at_s / end_s

    def y(latency_ms: float) -> float:
        height = HEIGHT - BOTTOM
        return height - height * max(0.0, log10(max(latency_ms, LATENCY_MS_MIN) / LATENCY_MS_MIN)) / DECADES

    bars = "".join(_bar(one, outcome.start_s, x) for one in outcome.injected)
    points = "".join(f'<circle cx="{x(at_s):.1f}" cy="{y(ms):.1f}" r="1.6" fill="#1565c0"/>' for at_s, ms in buckets)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="latency over time">{bars}'
        f"{_axes(x, y, end_s)}{points}</svg>"
    )


def _bar(one: Injected, start_s: float, x: Callable[[float], float]) -> str:
    began, flowing, settled = (x(at_s - start_s) for at_s in (one.began_s, one.flowing_s, one.settled_s))
    height = HEIGHT - BOTTOM
    return (
        f'<rect x="{flowing:.1f}" y="0" width="{max(0.5, settled - flowing):.1f}" height="{height}" fill="#e0e0e0"/>'
        f'<rect x="{began:.1f}" y="0" width="{max(1.0, flowing - began):.1f}" height="{height}" fill="#ffcdd2"/>'
        f'<text x="{began + 2:.1f}" y="12">{escape(one.name)}</text>'
    )


def _axes(x: Callable[[float], float], y: Callable[[float], float], end_s: float) -> str:
    lines = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y(10**decade):.1f}" y2="{y(10**decade):.1f}" stroke="#ccc"/>'
        f'<text x="{LEFT - 6}" y="{y(10**decade) + 4:.1f}" text-anchor="end">{_duration(10**decade)}</text>'
        for decade in range(DECADES + 1)
    )
    ticks = "".join(
        f'<text x="{x(end_s * tick / 10):.1f}" y="{HEIGHT - 10}" text-anchor="middle">{end_s * tick / 10:.0f} s</text>'
        for tick in range(11)
    )
    return lines + ticks


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1000 else f"{ms // 1000} s"
