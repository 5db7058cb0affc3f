"""Results for people (a table) and for programs (JSON)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.harness import Result, show_params
from bench.model import Row, Scenario, SystemT


def print_tables(
    console: Console, scenario: Scenario[SystemT], result: Result, environment: Mapping[str, object]
) -> None:
    """One table a case, who was left out, what an acknowledgement meant, and what everything was measured on."""
    console.print(f"{scenario.name}: {scenario.question}", highlight=False, markup=False)
    for case, rows in groupby(result.rows, key=lambda row: show_params(row.params)):
        console.print(case_table(case, list(rows)))
    for name, reason in result.missing.items():
        console.print(f"left out: {name}: {reason}", highlight=False, markup=False)
    for text in dict.fromkeys(result.durability.values()):
        names = ", ".join(name for name, its in result.durability.items() if its == text)
        console.print(f"acknowledged by {names}: {text}", highlight=False, markup=False)
    console.print(show_environment(result, environment), highlight=False, markup=False)


def case_table(case: str, rows: Sequence[Row]) -> Table:
    """The systems of one case under each other; a system is named on its first line."""
    table = Table(title=case, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("system", min_width=11)
    table.add_column("metric", min_width=17, no_wrap=True)
    for column in ("median", "low", "high"):
        table.add_column(column, justify="right", min_width=10, no_wrap=True)
    table.add_column("unit", no_wrap=True)
    named = ""
    for row in rows:
        numbers = (show_number(value) for value in (row.median, row.low, row.high))
        table.add_row("" if row.system == named else row.system, row.metric, *numbers, row.unit)
        named = row.system
    return table


def show_environment(result: Result, environment: Mapping[str, object]) -> str:
    """One paragraph under the table."""
    count = result.rows[0].n if result.rows else 0
    return (
        f"median, low and high of {count}; commit {environment['commit']}; {environment['processor']}, "
        f"{environment['cpus']} CPUs, load {environment['load_average_1m']}; {environment['python']}; "
        f"{environment['file_system']}"
    )


def show_number(value: float) -> str:
    """Three significant digits or more, thousands grouped."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.2e}"


def write_json(path: Path, result: Result, environment: Mapping[str, object]) -> None:
    """The environment once, then the rows."""
    document = {
        "environment": dict(environment),
        "missing": dict(result.missing),
        "durability": dict(result.durability),
        "rows": [row.to_json() for row in result.rows],
        "traces": [trace.to_json() for trace in result.traces],
    }
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
