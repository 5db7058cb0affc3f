"""Tables of tests and tools name files, and tests, that are there."""

from __future__ import annotations

import runpy
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.campaign.kinds import kinds
from tests.run_report import BUDGETS, Budgets

ROOT = Path(__file__).parents[2]


def missing(names: Iterable[str]) -> Iterator[str]:
    """Yields those names of files, or of tests such as "tests/a.py::test_b", that stand for nothing."""
    for name in names:
        file, _, function = name.partition("::")
        path = ROOT / file
        if not path.is_file() or (function and f"def {function}" not in path.read_text(encoding="utf-8")):
            yield name


def in_commands(commands: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yields the files that the words of commands name, as paths or as modules of the tests."""
    for word in (word for command in commands for word in command):
        if word.startswith("tests/"):
            yield word.partition("::")[0]
        elif word.startswith("tests."):
            yield f"{word.replace('.', '/')}.py"


def violations() -> Iterator[str]:
    """Yields each file or test that a table names and that is not there, each reason that says nothing."""
    budgets, name = Budgets.read(), BUDGETS.relative_to(ROOT)
    yield from (f"{name}: {test} is not there" for test in missing(budgets.reasons))
    yield from (f"{name}: {test} has no reason" for test, reason in budgets.reasons.items() if not reason)
    for folder in sorted({*budgets.test_cpu_s, *budgets.folder_cpu_s}):
        if not (BUDGETS.parent / folder).is_dir():
            yield f"{name}: tests/{folder} is no folder"
    yield from (
        f"tests/campaign/kinds.py: {file} is not there"
        for file in missing(in_commands(kind.command for kind in kinds()))
    )
    yield from (f"tools/oldest_spark.py: {wrong}" for wrong in _wrong_for_oldest_spark())


def _wrong_for_oldest_spark() -> Iterator[str]:
    tool = runpy.run_path(str(ROOT / "tools/oldest_spark.py"))
    yield from (f"{file} is not there" for file in missing(tool["SMOKE"]))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if not tool["oldest_version"](extras["spark"]):
        yield "pyproject.toml has no lower bound of pyspark"
    if "\npyspark==" not in (ROOT / "constraints.txt").read_text(encoding="utf-8"):
        yield "constraints.txt has no version of pyspark"
