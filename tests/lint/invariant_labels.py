"""Who reads "M6" in a violation finds what it means: every label is defined, once, in the module that `docs/TESTING.md` names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTING = (ROOT / "docs" / "TESTING.md").read_text(encoding="utf-8")
LABEL = r"\b(?:[MRS]\d{1,2}|T[1-6])\b"
DEFINITIONS = re.compile(rf"^ *({LABEL}(?:, {LABEL})*)  +\S", re.MULTILINE)
USED = re.compile(rf"(?<![\w.])({LABEL})(?![\w.(=])")
SOURCES = (
    "tests/sim",
    "tests/unit/log",
    "tests/unit/quorum",
    "tests/unit/replication",
    "tests/unit/controller",
    "tests/data",
)

TABLE = TESTING.split("## Labels of what must hold")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| ([MRST].*?) \| .*? \| `(tests/\S+)` \|", TABLE, re.MULTILINE)


def defined_in(file: str) -> list[str]:
    """The labels at the beginnings of lines of a module's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8")), clean=False) or ""
    return [label for found in DEFINITIONS.findall(text) for label in found.split(", ")]


def named(text: str) -> set[str]:
    """The labels of a cell of the table, such as "R1 to R8, R14"."""
    found = set()
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        numbers = range(int(first[1:]), int((last or first)[1:]) + 1)
        found |= {f"{first[0]}{number}" for number in numbers}
    return found


def texts() -> list[str]:
    files = [file for folder in SOURCES for file in (ROOT / folder).rglob("*") if file.suffix in {".py", ".txt"}]
    return [TESTING, *(file.read_text(encoding="utf-8") for file in files)]


def violations() -> Iterator[str]:
    """Yields each label that stands in two rows of the page, is not defined where that says, or is used nowhere."""
    if len(ROWS) <= 3:
        yield "docs/TESTING.md: the table of labels is not found"
    for labels, file in ROWS:
        yield from (f"{file}: does not define {label}" for label in sorted(named(labels) - set(defined_in(file))))
    counts = Counter(label for labels, _ in ROWS for label in named(labels))
    yield from (f"docs/TESTING.md: {label} is in two rows" for label, count in counts.items() if count > 1)
    used = {label for text in texts() for label in USED.findall(text)}
    yield from (f"{label}: is used and not defined" for label in sorted(used - counts.keys()))
    yield from (f"{label}: is defined and not used" for label in sorted(counts.keys() - used))
