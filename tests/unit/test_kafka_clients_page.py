"""docs/KAFKA_CLIENTS.md is written from results only where all tests behind its cells passed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from xml.sax.saxutils import quoteattr

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "kafka_clients.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """The tool, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("kafka_clients_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def results(folder: Path, outcome: str = "") -> Path:
    """A JUnit file: one test of a client, and one of a tool with an outcome."""
    kcat, topics = (
        f"<properties><property name='served' value={quoteattr(json.dumps(cell))}/></properties>"
        for cell in (
            ["kcat", "transactions: a producer takes over its id", "NO"],
            ["tools", "kafka-topics: list", None],
        )
    )
    file = folder / "results.xml"
    file.write_text(
        f"<testsuites><testsuite><testcase name='one'>{kcat}</testcase><testcase name='other'>{topics}{outcome}</testcase>"
        "<testcase name='of no cell'><failure message='wrong'/></testcase></testsuite></testsuites>"
    )
    return file


def test_cells_of_tests_that_passed(tool: ModuleType, tmp_path: Path) -> None:
    cells = list(tool.passed(results(tmp_path)))
    assert [tuple(cell) for cell in cells] == [
        ("kcat", "transactions: a producer takes over its id", "NO"),
        ("tools", "kafka-topics: list", None),
    ]
    row = next(line for line in tool.clients_table(cells).splitlines() if line.startswith("| transactions"))
    assert row.count("refused") == 1
    assert tool.tools_table(cells).splitlines()[-1] == "| `kafka-topics` | list |  |"


@pytest.mark.parametrize(
    "outcome", ["<skipped message='no Java'/>", "<failure message='no'/>", "<error message='no'/>"]
)
def test_nothing_is_written_where_a_test_did_not_pass(tool: ModuleType, tmp_path: Path, outcome: str) -> None:
    with pytest.raises(SystemExit, match="other"):
        tool.passed(results(tmp_path, outcome))


def test_a_cell_without_a_place_is_told(tool: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"no place for.*juggling"):
        tool.clients_table([tool.Cell("kcat", "juggling", None)])


def test_the_parts_between_the_marks_are_made_anew(tool: ModuleType, tmp_path: Path) -> None:
    cells, page = list(tool.passed(results(tmp_path))), tool.PAGE.read_text(encoding="utf-8")
    once = tool.rewritten(page, cells)
    assert once != page
    assert tool.rewritten(once, cells) == once
    assert once.partition("<!-- clients")[0] == page.partition("<!-- clients")[0]
