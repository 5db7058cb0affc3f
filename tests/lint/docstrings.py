"""Docstrings as a stranger would write them: a function says what it does, an argument is a whole noun phrase.

Lines of `Raises:` and `Attributes:` stand for themselves, too: whole sentences or noun phrases.

Properties, classes and modules are things, so a noun phrase is right for them; commands of the command line are told in
the imperative, as help texts are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "replog",
    "timeline/replog_timeline",
    "quorum/replog_quorum",
    "checkpoints/replog_checkpoints",
    "pyspark_replog",
    "chaos/replog_chaos",
    "examples/demo",
)
NOT_VERBS = frozenset(
    [
        "This",
        "As",
        "Its",
        "Is",
        "Has",
        "Does",
        "Bytes",
        "Replicas",
        "Names",
        "Batches",
        "Records",
        "Logs",
        "Partitions",
        "Offsets",
        "Brokers",
        "Segments",
        "Files",
        "Always",
        "Less",
        "Others",
        "Those",
        "Fields",
        "Us",
        "Options",
        "Headers",
        "Values",
        "Topics",
        "Keys",
        "Leaders",
        "Followers",
        "Voters",
        "Epochs",
        "Producers",
        "Entries",
        "Images",
        "Snapshots",
        "Positions",
        "Nodes",
        "Lines",
        "Things",
        "Members",
        "Effects",
        "Messages",
        "Numbers",
        "Sizes",
        "Times",
        "Words",
        "Whereas",
        "Settings",
        "Bounds",
        "Deadlines",
        "Settings",
        "Results",
        "Errors",
        "Sometimes",
        "Perhaps",
        "Besides",
        "Unless",
        "Timers",
        "Timeouts",
        "Leaderships",
        "Events",
        "Scrapes",
        "Rows",
        "Pages",
        "Progress",
        "Addresses",
        "Chunks",
        "Ports",
        "Bits",
        "Facts",
        "Kafka's",
        "Indexes",
        "Slices",
        "Ranges",
        "Folders",
        "Checksums",
        "Milliseconds",
    ]
)
"""Words at the beginning of a docstring that end like a verb and are none, or say nothing about what a function does."""

_NAMES = re.compile(r"^\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*: ")
_LINE = re.compile(r"^    (?! )(.*)$")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def rooms() -> list[str]:
    """Every folder of product code that holds modules, but for generated code."""
    found = {path.parent.relative_to(ROOT).as_posix() for top in PRODUCT for path in (ROOT / top).rglob("*.py")}
    return sorted(room for room in found if "/pb" not in room and room != "replog/wire/messages")


def described(room: str) -> Iterator[tuple[str, ast.stmt, str]]:
    """Yields each definition in the modules of a room that has a docstring: where, the node, the text."""
    for path in sorted((ROOT / room).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, _DEFINITIONS) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node, text


def is_thing(node: ast.stmt) -> bool:
    """Whether a noun phrase, or an imperative, describes the definition: a class, a property, a command."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return True
    marks = {ast.unparse(mark).split("(")[0].rpartition(".")[2] for mark in node.decorator_list}
    arguments = ast.unparse(node.args)
    is_command = "typer." in arguments or "common.BootstrapServers" in arguments  # registered without a mark
    return is_command or bool(marks & {"property", "cached_property", "command", "callback"})


def begins_with_a_verb(text: str) -> bool:
    """Whether the first word is "Whether", or a verb in the third person as far as its end tells."""
    word = text.split(maxsplit=1)[0].strip(".,:;")
    return word == "Whether" or (word[:1].isupper() and word.endswith("s") and word not in NOT_VERBS)


def lines_of(section: str, text: str) -> list[str]:
    """Returns the first line of each entry in a section, without the names that it is about."""
    found = re.search(rf"(?:^|\. +){section}:(.*)$", text, re.MULTILINE)
    if found is None:
        return []
    below = text[found.end() + 1 :].splitlines()
    indented = takewhile(lambda line: not line or line.startswith("    "), below)
    entries = [found[1].strip(), *(entry[1] for entry in map(_LINE.match, indented) if entry)]
    return [_NAMES.sub("", entry) for entry in entries if entry]


def stands_alone(text: str) -> bool:
    """Whether a line is a whole noun phrase or sentence: not the rest of one that its name began."""
    return bool(re.match(r"[A-Z`(0-9\"'-]", text)) and not re.match(r"(Of|As of|As in|For|In) ", text)


def violations() -> Iterator[str]:
    """Yields each docstring that does not begin with a verb, and each line of a section that is no whole phrase."""
    for room in rooms():
        for place, node, text in described(room):
            if not is_thing(node) and not begins_with_a_verb(text):
                yield f"{place}: begins with {text.split()[0]!r}, not with a verb"
            for section in ("Args", "Raises", "Attributes"):
                lines = lines_of(section, text)
                yield from (
                    f"{place}: {section} {line!r} is no whole phrase" for line in lines if not stands_alone(line)
                )
