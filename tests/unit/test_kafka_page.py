"""Code, tests and pages name Kafka's rules by their numbers in docs/KAFKA.md; each number is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def texts() -> Iterator[tuple[Path, str]]:
    """Everything that people write: the folders, and the files beside them."""
    paths = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    for path in paths:
        if path.suffix in SUFFIXES and path.is_file():
            yield path, path.read_text(encoding="utf-8", errors="replace")


def numbers_in(text: str) -> list[str]:
    return [number for listed in REFERENCE.findall(text) for number in re.findall(NUMBER, listed)]


def headings() -> list[str]:
    return re.findall(rf"^#{{2,3}} ({NUMBER}) ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("KIP-101; docs/KAFKA.md 4.2 to 4.6, KIP-966", ["4.2", "4.6"]),
        ("see KAFKA.md 1.6, 1.7: an entry", ["1.6", "1.7"]),
        ("docs/KAFKA.md 1 and 3; where", ["1", "3"]),
        ("`docs/KAFKA.md` 4.10.", ["4.10"]),
        ("# as in KAFKA.md 1.5,\n# 3.2 a and b", ["1.5", "3.2"]),
        ("docs/KAFKA.md has them", []),
    ],
)
def test_references_are_found(text: str, numbers: list[str]) -> None:
    assert numbers_in(text) == numbers


def test_every_reference_is_a_heading_of_the_page() -> None:
    known = headings()
    assert len(known) == len(set(known)), "a number stands twice"
    unknown = [
        f"{path.relative_to(ROOT)}: {number}"
        for path, text in texts()
        if path != Path(__file__)
        for number in numbers_in(text)
        if number not in known
    ]
    assert not unknown


def test_nothing_points_outside_of_the_repository() -> None:
    found = [f"{path.relative_to(ROOT)}: {match[0]}" for path, text in texts() for match in ELSEWHERE.finditer(text)]
    assert not found
