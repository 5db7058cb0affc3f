"""Every document names files, and tests in them, that exist, and links to files from where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".", "docs", "docs/guides", "docs/concepts", "bench", "timeline", "quorum", "checkpoints", "chaos")
    for path in (ROOT / folder).glob("*.md")
)
FOLDERS = ("", "replog", "docs", "bench", "tests", "tests/unit", "tests/sim", "quorum", "timeline", "checkpoints")
"""Where a name in a document begins; else beside the document, or beside the file named before it in the same line."""

TESTS = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
"""Tests by their names, of which there is one each."""

OF_USERS = {"job.py", "app.py", "worker.py", "first.py", "pipeline.py", "server.toml"}
"""Files that a reader has, not this repository."""

_TEST = re.compile(r"`(test_\w+\.py)`(?: `(?=test_)|::)(test_\w+)`")
_NAME = re.compile(r"[`(]([\w./-]*\w\.(?:py|md|pyx|proto|toml))[`)#]")
_LINK = re.compile(r"\]\(([^)#\s:]+)[)#]")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def broken_links(document: Path) -> list[str]:
    """Returns each relative link in the document that leads to no file, with its line."""
    text = _CODE.sub(lambda code: "\n" * code[0].count("\n"), document.read_text(encoding="utf-8"))
    links = ((number, link) for number, line in enumerate(text.splitlines(), 1) for link in _LINK.findall(line))
    return [f"{document.name}:{number}: {link}" for number, link in links if not (document.parent / link).exists()]


def missing(document: Path) -> list[str]:
    """Returns each name of a file in the document that stands for no file, with its line."""
    found = []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        folders = [*(ROOT / folder for folder in FOLDERS), document.parent, *document.parent.glob("replog_*")]
        for name in _NAME.findall(line):
            there = next((folder / name for folder in folders if (folder / name).is_file()), TESTS.get(name))
            if there is not None:
                folders.append(there.parent)
            elif name not in OF_USERS:
                found.append(f"{document.name}:{number}: {name}")
    return found


def missing_tests(document: Path) -> list[str]:
    """Returns each test that a line of the document names behind its file, and that is not in that file."""
    return [
        f"{document.name}:{number}: {file} {test}"
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1)
        for file, test in _TEST.findall(line)
        if file in TESTS and f"def {test}(" not in TESTS[file].read_text(encoding="utf-8")
    ]


def violations() -> Iterator[str]:
    """Yields each name in a document that stands for no file, and each test in a line that is not in its file."""
    for document in DOCUMENTS:
        path = ROOT / document
        found = (*missing(path), *missing_tests(path), *broken_links(path))
        yield from (f"{line} is not there" for line in found)
