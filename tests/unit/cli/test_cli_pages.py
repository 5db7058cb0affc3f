"""Every command that the pages name exists, with the options that they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from replog.cli.app import app
from replog.cli.errors import FAILED, INTERRUPTED, READER_GONE, WRONG_USAGE

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_in(text: str) -> Iterator[str]:
    """Lines of code blocks, and inline code, that begin with the command's name."""
    for block in re.findall(r"```(?:\w*)\n(.*?)```", text, flags=re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith("replog "))
    yield from re.findall(r"(?<!`)`(replog [^`]+)`(?!`)", text)


NAMED = [(page.name, line) for page in PAGES for line in commands_in(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "line"), NAMED)
def test_a_named_command_exists(page: str, line: str) -> None:
    words = re.split(r"[|>]", " ".join(shlex.split(line.replace("...", ""), comments=True)))[0].split()[1:]
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "list_commands"):
        assert words[0] in command.list_commands(None), f"{page}: {line}"
        command = command.get_command(None, words.pop(0))
    known = {"--help", "-h"} | {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-") and len(word) > 1} <= known, f"{page}: {line}"


def test_the_page_has_every_exit_status() -> None:
    _, _, rest = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8").partition("## Commands in scripts")
    statuses = [int(number) for number in re.findall(r"^\| (\d+) \|", rest.partition("\n## ")[0], flags=re.MULTILINE)]
    assert statuses == [0, FAILED, WRONG_USAGE, INTERRUPTED, READER_GONE] == [0, 1, 2, 130, 141]


def test_the_pages_name_commands() -> None:
    assert len(NAMED) > 50
