"""Measures some lines once in this process, for the tree that it was started in: ``python -m bench.guard.worker``.

What was found is written line by line, so that a process that ends early has told the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness
from bench.guard.lines import LINES, Line, Setting
from bench.model import Scenario

if TYPE_CHECKING:
    from bench.systems.replog_brokers import ReplogBrokers


def main(arguments: list[str]) -> int:
    """Measures, and returns 0; a line that cannot be measured is told in the file."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard.worker")
    parser.add_argument("names", nargs="+", choices=LINES)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args(arguments)
    _tune_memory()
    with _setting(options.scale, options.directory) as setting, options.output.open("a", encoding="utf-8") as output:
        made = cache(lambda make: make(setting))
        for name in options.names:
            try:
                found: dict[str, Any] = {"values": measure(LINES[name], made(LINES[name].make), options.directory)}
            except Exception as error:  # noqa: BLE001 -- whatever goes wrong in a tree is its result, and the other lines go on
                found = {"error": _why(error)}
            output.write(json.dumps({"line": name} | found) + "\n")
            output.flush()
    return 0


def measure(line: Line, scenario: Scenario[Any], directory: Path) -> dict[str, tuple[float, str]]:
    """Returns the median and the unit of the line's figure and of its CPU."""
    result = harness.run(
        scenario, repeat=line.repeat, directory=directory, chosen=[line.system], only=tuple(line.only.items())
    )
    if result.missing:
        raise RuntimeError("; ".join(result.missing.values()))
    found = {row.metric: (row.median, row.unit) for row in result.rows}
    return {"figure": found[line.figure], "cpu": found[line.cpu]}


def _why(error: BaseException) -> str:
    """Returns what went wrong; of several tasks that failed together, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _tune_memory() -> None:
    """Keeps freed memory, as `bench run` does."""
    with contextlib.suppress(
        ImportError
    ):  # a tree of before that can still run the lines that need no memory to speak of
        from replog.host.process_memory import tune_process

        tune_process()


@contextlib.contextmanager
def _setting(scale: float, directory: Path) -> Iterator[Setting]:
    """Stops the nodes at the end, if a line has asked for some."""
    with contextlib.ExitStack() as stack:

        @cache
        def started_brokers() -> ReplogBrokers:
            from bench.systems.replog_brokers import ReplogBrokers

            brokers = ReplogBrokers()
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="replog-bench-", dir=directory))
            stack.callback(brokers.stop)
            brokers.start(Path(folder))
            return brokers

        yield Setting(scale, started_brokers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
