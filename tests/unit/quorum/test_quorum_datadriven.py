"""The parser of data-driven test files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import datadriven

FILE = """# why
add 1
add 2
----
3

# no output, nothing expected
clear
"""


def test_a_file_is_blocks_of_commands_and_their_output() -> None:
    first, second = datadriven.parse(FILE)
    assert (first.line, first.comments, first.commands, first.expected) == (1, ("# why",), ("add 1", "add 2"), ("3",))
    assert (second.line, second.commands, second.expected) == (7, ("clear",), None)
    assert first.text() + "\n\n" + second.text() + "\n" == FILE


def test_a_difference_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "sums.txt"
    path.write_text(FILE)
    datadriven.run(path, lambda command: "3" if command == "add 2" else "")
    with pytest.raises(AssertionError, match=r"sums\.txt:1"):
        datadriven.run(path, lambda command: "")


def test_rewrite_writes_what_came_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sums.txt"
    path.write_text(FILE.replace("\n3\n", "\n4\n"))
    monkeypatch.setenv("REPLOG_REWRITE", "1")
    datadriven.run(path, lambda command: "3" if command == "add 2" else "")
    assert path.read_text() == FILE
