"""Every file, name, key, metric and test that docs/TERMS.md names exists.

Its commands are looked at with those of all pages, in `tests/unit/cli/test_cli_pages.py`.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from replog.config.server_keys import KEYS
from replog.metadata.config_keys import BROKER_KEYS
from tests.lint.documents import ROOT, TESTS

TABLES, _, LEFT_OUT = (ROOT / "docs" / "TERMS.md").read_text(encoding="utf-8").partition("## Left out on purpose")
CELLS = 6
CODE = re.compile(r"`([^`]+)`")
METRICS = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "replog" / "broker" / "metrics").glob("*.py"))
SCENARIOS = {path.name for path in (ROOT / "tests" / "data").rglob("*.txt")}


def rows() -> list[list[str]]:
    """The cells of each term: term, meaning, places, keys, what shows it, test."""
    lines = [line for line in TABLES.splitlines() if line.startswith("| ") and not line.startswith("| term |")]
    return [[cell.strip() for cell in line[1:].rstrip("|").split("|")] for line in lines]


@cache
def names_in(path: Path) -> set[str]:
    """Whatever a module defines at its top, and `Class.name` of what its classes define."""
    found = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = node.body if isinstance(node, ast.ClassDef) else ()
            members = (each.name for each in inside if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {node.name, *(f"{node.name}.{member}" for member in members)}
    return found


def missing(cell: str) -> list[str]:
    """Whatever a cell of files, each followed by names in it, names wrongly."""
    wrong, path = [], None
    for word in CODE.findall(cell):
        if word.endswith(".py"):
            places = (ROOT / "replog" / word, ROOT / word, TESTS.get(word, ROOT / word))
            path = next((place for place in places if place.is_file()), None)
            wrong += [] if path else [word]
        elif word.endswith(".txt"):
            wrong += [] if word in SCENARIOS else [word]
        elif path is None or word not in names_in(path):
            wrong.append(word)
    return wrong


def test_every_term_has_its_cells_a_place_and_a_test() -> None:
    assert len(rows()) > 60
    assert [row for row in rows() if len(row) != CELLS or not all((*row[:3], row[5]))] == []


def test_every_place_and_every_test_exists() -> None:
    assert [(row[0], wrong) for row in rows() for cell in (row[2], row[5]) if (wrong := missing(cell))] == []
    assert [wrong for cell in re.findall(r"\((`test_[^)]*)\)", LEFT_OUT) for wrong in missing(cell)] == []


def test_every_key_exists() -> None:
    known = {*KEYS, *(key.name for key in BROKER_KEYS)}
    assert [(row[0], key) for row in rows() for key in CODE.findall(row[3]) if key not in known] == []


def test_every_metric_exists() -> None:
    named = [word for row in rows() for word in CODE.findall(row[4]) if word.startswith("replog_")]
    assert len(named) > 20
    assert [name for name in named if f'"{name.removesuffix("_total")}"' not in METRICS] == []
