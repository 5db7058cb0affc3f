"""``python -m bench list``, ``run NAME``, ``guard COMMIT``, ``profile NAME`` and ``page FILES``."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import environment, harness, profile, report
from bench.guard import command
from bench.model import Scenario, WrongResultError
from bench.page import document, results
from bench.registry import scenarios
from replog.errors import ReplogError
from replog.host.process_memory import tune_process

REPEAT = 5


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit code: 0 done, 1 a wrong result, 2 wrong usage."""
    options = parser().parse_args(arguments)
    if options.command == "list":
        return list_scenarios()
    if options.command == "guard":
        return command.main(options)
    if options.command == "page":
        return write_page(options.files, options.output)
    known = scenarios()
    if options.command == "profile":
        if options.case >= len(known[options.name].cases()):
            Console(stderr=True).print(f"error: {options.name} has cases 0 to {len(known[options.name].cases()) - 1}")
            return 2
        profile.run(type(known[options.name]), case=options.case, top=options.top)
        return 0
    if options.name not in known:
        Console(stderr=True).print(f"error: no scenario {options.name}; there are {', '.join(known)}", markup=False)
        return 2
    scenario = known[options.name]
    names = [system.name for system in scenario.systems()]
    chosen = names if options.systems is None else options.systems.split(",")
    if unknown := [name for name in chosen if name not in names]:
        text = f"error: {scenario.name} has no system {', '.join(unknown)}; there are {', '.join(names)}"
        Console(stderr=True).print(text, markup=False)
        return 2
    if not harness.cases_with(scenario, options.only):
        cases = "; ".join(map(harness.show_params, scenario.cases()))
        Console(stderr=True).print(f"error: no case of {scenario.name} is such; there are {cases}", markup=False)
        return 2
    return run(scenario, options, chosen)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench", description="Measures replog, and others beside it.")
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="show the scenarios")
    runs = commands.add_parser("run", help="run one scenario")
    runs.add_argument("name", help="as `list` shows it")
    runs.add_argument("--repeat", type=positive, default=REPEAT, metavar="N", help=f"repetitions (default {REPEAT})")
    runs.add_argument("--systems", metavar="A,B", help="only these of its systems (default: all)")
    runs.add_argument(
        "--only",
        type=parameter,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only cases with this parameter (again: for another value of it, or a further parameter)",
    )
    runs.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    runs.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where the systems write; the disk under it is what is measured (default %(default)s)",
    )
    command.add_options(commands.add_parser("guard", help="show which figures are better or worse than at a commit"))
    profiles = commands.add_parser("profile", help="show where the CPU time of a broker scenario goes")
    profiles.add_argument("name", choices=("ack-latency", "consume", "produce"))
    profiles.add_argument("--case", type=natural, default=0, metavar="N", help="which of its cases, from 0 (default 0)")
    profiles.add_argument("--top", type=positive, default=25, metavar="N", help="lines of a table (default 25)")
    pages = commands.add_parser("page", help="make one page of HTML with charts out of results")
    pages.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what `run --json` wrote")
    pages.add_argument(
        "-o", "--output", type=Path, default=Path("page.html"), metavar="FILE", help="the page (default %(default)s)"
    )
    return top


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as in record_bytes=100")
    return name, value


def natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def list_scenarios() -> int:
    table = Table("name", "question", "systems", box=None)
    for name, scenario in scenarios().items():
        table.add_row(name, scenario.question, ", ".join(system.name for system in scenario.systems()))
    Console().print(table)
    return 0


def write_page(files: Sequence[Path], output: Path) -> int:
    """Writes the page; returns the exit code."""
    try:
        runs = [results.read(file) for file in files]
        questions = {name: scenario.question for name, scenario in scenarios().items()}
        output.write_text(document.page(runs, questions), encoding="utf-8")
    except (results.ResultsFileError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False)
        return 2
    return 0


def run(scenario: Scenario[Any], options: argparse.Namespace, chosen: Sequence[str]) -> int:
    """Measures with a progress bar on stderr, prints the table on stdout."""
    facts = environment.describe(options.directory) | {"malloc": "freed memory kept" if tune_process() else "unchanged"}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    only = options.only
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(
            scenario.name, total=harness.steps_count(scenario, options.repeat, chosen, only), completed=-1
        )

        def on_step(text: str) -> None:
            progress.update(task, description=text, advance=1)

        try:
            result = harness.run(
                scenario,
                repeat=options.repeat,
                directory=options.directory,
                on_step=on_step,
                chosen=chosen,
                only=only,
            )
        except (WrongResultError, ReplogError, OSError) as error:
            progress.console.print(f"error: {scenario.name}: {error}", markup=False)
            return 1
    report.print_tables(Console(), scenario, result, facts)
    if options.json is not None:
        report.write_json(options.json, result, facts)
    return 0
