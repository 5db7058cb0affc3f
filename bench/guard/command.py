"""``python -m bench guard COMMIT``: which figures are better or worse than at a commit.

Exit status, as `git bisect run` reads it: 0 nothing is worse; 1 something is, or fails where the base does not; 125 nothing
could be compared, for a tree cannot be built or its measurement fails; 128 there is no such commit; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import environment
from bench.guard import trees, turns
from bench.guard.lines import LINES
from bench.guard.table import CANNOT_RUN, Judged, judge, table
from bench.guard.trees import TreeError, UnknownCommitError
from bench.guard.turns import Plan

ROUNDS = 9
WORSE, NOTHING_COMPARED, UNKNOWN, INTERRUPTED = 1, 125, 128, 130
TABLE_COLUMNS_MAX = 250
"""The width of the table, wherever it is printed: a row that is broken into two lines is no Markdown."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("commit", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument(
        "candidate", metavar="CANDIDATE", nargs="?", help="the commit that is judged (default: the working tree)"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=LINES,
        metavar="LINE",
        help=f"only this line (again for another one): {', '.join(LINES)}",
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        default=ROUNDS,
        metavar="N",
        help="samples of each; below 8 nothing can be told (default %(default)s)",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="SHARE", help="share of the usual sizes, to try it out (default 1)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all samples there")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where the trees are built and write; the disk under it is what is measured (default %(default)s)",
    )


def main(options: argparse.Namespace) -> int:
    """Compares, prints the table, and returns the exit status."""
    errors = Console(stderr=True)
    try:
        base = trees.resolve(options.commit)
        candidate = None if options.candidate is None else trees.resolve(options.candidate)
        with (
            _interrupted_by_sigterm(),
            tempfile.TemporaryDirectory(prefix="replog-guard-", dir=options.directory) as directory,
        ):
            judged, names = _compare(base, candidate, options, Path(directory))
    except UnknownCommitError as error:
        errors.print(f"error: {error}", markup=False)
        return UNKNOWN
    except TreeError as error:
        errors.print(f"error: {error}", markup=False)
        return NOTHING_COMPARED
    except KeyboardInterrupt:
        errors.print("interrupted", markup=False)
        return INTERRUPTED
    _show(judged, names, options)
    if options.json is not None:
        _write_json(judged, names, options)
    return exit_status(judged, names[1])


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM end the block as Ctrl-C does: two trees with their modules are no small thing to leave behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def exit_status(judged: Sequence[Judged], candidate: str) -> int:
    """Returns what the verdicts come to.

    Args:
        judged: The lines.
        candidate: The name of the tree that is judged.
    """
    if all(line.verdict == CANNOT_RUN for line in judged):
        return NOTHING_COMPARED
    return WORSE if any(line.verdict == "worse" or set(line.failures) == {candidate} for line in judged) else 0


def _compare(
    base: str, candidate: str | None, options: argparse.Namespace, directory: Path
) -> tuple[list[Judged], tuple[str, str]]:
    """Returns the lines, and how the two trees are called."""
    names = (f"base {base}", candidate or environment.commit())
    plan = Plan(list(dict.fromkeys(options.only or LINES)), options.rounds, options.scale, directory)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("building", total=plan.steps_count(), completed=-1)
        base_tree = trees.make_tree(names[0], base, directory / "base")
        candidate_tree = trees.make_tree(names[1], candidate, directory / "candidate")
        found = turns.run(
            plan, base_tree, candidate_tree, lambda text: progress.update(task, description=text, advance=1)
        )
    return [judge(name, samples) for name, samples in found.items()], names


def _show(judged: Sequence[Judged], names: tuple[str, str], options: argparse.Namespace) -> None:
    """Prints the table, why what cannot run cannot, and what everything was measured on."""
    console = Console(width=TABLE_COLUMNS_MAX)
    with console.capture() as shown:
        console.print(table(judged, *names))
    console.out(shown.get().strip(), highlight=False)
    console.print()
    facts = environment.describe(options.directory)
    machine = f"{facts['processor']}, {facts['cpus']} CPUs, load {facts['load_average_1m']}"
    texts = [
        *(f"{line.name} cannot run in {name}: {reason}" for line in judged for name, reason in line.failures.items()),
        f"medians (lowest to highest) of {options.rounds} processes of each tree in turns; ratios and their 99 % intervals",
        f"{machine}; {facts['python']}; {facts['file_system']}",
    ]
    if any(line.verdict == "cannot tell" for line in judged):
        texts.append("`cannot tell`: try these again on a quieter machine, or with more --rounds")
    for text in texts:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _write_json(judged: Sequence[Judged], names: tuple[str, str], options: argparse.Namespace) -> None:
    document: dict[str, Any] = {
        "environment": environment.describe(options.directory),
        "base": names[0],
        "candidate": names[1],
        "rounds": options.rounds,
        "scale": options.scale,
        "lines": [line.to_json() for line in judged],
    }
    options.json.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number
