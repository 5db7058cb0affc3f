"""Pages name commands that exist, with options that they have, and every exit status."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from replog.cli.app import app
from replog.cli.errors import FAILED, INTERRUPTED, READER_GONE, WRONG_USAGE

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
STATUSES = [0, FAILED, WRONG_USAGE, INTERRUPTED, READER_GONE]


def commands_in(text: str) -> Iterator[str]:
    """Yields lines of code blocks, and inline code, that begin with the command's name."""
    for block in re.findall(r"```(?:\w*)\n(.*?)```", text, flags=re.DOTALL):
        lines = (line.removeprefix("venv/bin/") for line in block.splitlines())
        yield from (line for line in lines if line.startswith("replog "))
    yield from re.findall(r"(?<!`)`(replog [^`]+)`(?!`)", text)


def wrong_in(line: str) -> list[str]:
    """Returns the words of a command that the command line does not know."""
    words = re.split(r"[|>]", " ".join(shlex.split(line.replace("...", ""), comments=True)))[0].split()[1:]
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "list_commands"):
        before = next((each for each in command.params if words[0] in each.opts), None)
        if before is not None:  # an option that stands before the command
            del words[: 1 if before.is_flag else 2]
            continue
        if words[0] not in command.list_commands(None):
            return words[:1]
        command = command.get_command(None, words.pop(0))
    known = {"--help", "-h"} | {option for parameter in command.params for option in parameter.opts}
    return [word for word in words if word.startswith("-") and len(word) > 1 and word.split("=")[0] not in known]


def statuses_in(text: str) -> list[int]:
    """Returns the exit statuses of the table in the page for operators."""
    _, _, rest = text.partition("## Commands in scripts")
    return [int(number) for number in re.findall(r"^\| (\d+) \|", rest.partition("\n## ")[0], flags=re.MULTILINE)]


def violations() -> Iterator[str]:
    """Yields each command in a page with words that the command line does not know; one, where the pages name few commands."""
    pages = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    named = [(page.name, line) for page in pages for line in commands_in(page.read_text(encoding="utf-8"))]
    if len(named) <= 50:
        yield f"the pages name {len(named)} commands: this rule does not find them"
    yield from (f"{page}: {line!r} has no {word}" for page, line in named for word in wrong_in(line))
    told = statuses_in((ROOT / "docs/OPERATIONS.md").read_text(encoding="utf-8"))
    if told != STATUSES:
        yield f"docs/OPERATIONS.md: the exit statuses are {STATUSES}, not {told}"
