"""Code, tests and pages name Kafka's rules by their numbers in docs/KAFKA.md; each number is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "KAFKA.md"
FOLDERS = ("replog", "checkpoints", "quorum", "timeline", "pyspark_replog", "tests", "docs", "bench", "tools", "proto")
SUFFIXES = {".py", ".pyx", ".pyi", ".md", ".txt", ".proto", ".toml", ".in", ""}

NUMBER = r"\d(?:\.\d+)?"
SPACE = r"\s+(?:# )?"  # a reference may go on in the next line of a comment
REFERENCE = re.compile(rf"KAFKA\.md`?{SPACE}({NUMBER}(?:(?:,| to| and){SPACE}{NUMBER}\b)*)")
ELSEWHERE = re.compile(
    rf"kafka[-]reference|architecture{SPACE}(?:rules?{SPACE})?\d|performance{SPACE}(?:notes|\d)", re.IGNORECASE
)
"""Notes that are not in the repository."""


OF_THIS_RULE = ROOT / "tests" / "unit" / "test_lint_rules.py"
"""Where references are examples of what is found."""


def texts() -> Iterator[tuple[Path, str]]:
    """Everything that people write: the folders, and the files beside them."""
    paths = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    for path in paths:
        if path.suffix in SUFFIXES and path.is_file() and path != OF_THIS_RULE:
            yield path, path.read_text(encoding="utf-8", errors="replace")


def numbers_in(text: str) -> list[str]:
    return [number for listed in REFERENCE.findall(text) for number in re.findall(NUMBER, listed)]


def headings() -> list[str]:
    return re.findall(rf"^#{{2,3}} ({NUMBER}) ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def violations() -> Iterator[str]:
    """Yields each number that is no heading of the page, or two, and each reference to what is not in the repository."""
    known = headings()
    yield from (f"{PAGE.name}: {number} stands twice" for number, count in Counter(known).items() if count > 1)
    for path, text in texts():
        place = path.relative_to(ROOT)
        yield from (f"{place}: {PAGE.name} has no {number}" for number in numbers_in(text) if number not in known)
        yield from (f"{place}: {match[0]!r} is not in the repository" for match in ELSEWHERE.finditer(text))
