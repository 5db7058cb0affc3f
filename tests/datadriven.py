"""Data-driven tests: files that read like worked examples.

A file is a sequence of blocks, separated by blank lines::

    # why this matters (any number of comment lines)
    command
    command
    ----
    expected output of the commands, together

`run` executes the commands of each block in order on one object and compares.  After an intended change
``REPLOG_REWRITE=1 pytest ...`` writes what came out into the file; read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Block:
    """Comments, commands and expected output; `line` is where its first line stands (from 1)."""

    line: int
    comments: tuple[str, ...]
    commands: tuple[str, ...]
    expected: tuple[str, ...] | None  # None: no `----`, nothing may come out

    def text(self) -> str:
        """The block as it stands in a file."""
        lines = [*self.comments, *self.commands]
        if self.expected is not None:
            lines += ["----", *self.expected]
        return "\n".join(lines)


def parse(text: str) -> list[Block]:
    """Split a file into blocks."""
    blocks: list[Block] = []
    chunk: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip():
            chunk.append(line.rstrip())
        elif chunk:
            blocks.append(_block(number - len(chunk), chunk))
            chunk = []
    return blocks


def run(path: Path, execute: Callable[[str], str]) -> None:
    """Run a file; every block that differs is reported with its line.

    Args:
        path: the file.
        execute: takes one command, returns its output (may be empty, may be several lines).
    """
    blocks = parse(path.read_text())
    actual = [_execute(path, block, execute) for block in blocks]
    if os.environ.get("REPLOG_REWRITE"):
        path.write_text("\n\n".join(block.text() for block in actual) + "\n")
        return
    for block, seen in zip(blocks, actual, strict=True):
        assert seen.text() == block.text(), f"{path}:{block.line}"


def _block(line: int, chunk: list[str]) -> Block:
    split = chunk.index("----") if "----" in chunk else None
    head = chunk[:split]
    comments = tuple(text for text in head if text.startswith("#"))
    commands = tuple(text for text in head if not text.startswith("#"))
    return Block(line, comments, commands, None if split is None else tuple(chunk[split + 1 :]))


def _execute(path: Path, block: Block, execute: Callable[[str], str]) -> Block:
    output: list[str] = []
    for command in block.commands:
        try:
            output += execute(command).splitlines()
        except Exception as error:
            error.add_note(f"{path}:{block.line}: {command}")
            raise
    return Block(block.line, block.comments, block.commands, tuple(output) if output else None)
