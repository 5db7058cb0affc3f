"""Which files of tests have shown what they show as they stand.

A test that is marked `campaign` proves something about what proves and measures: that a safeguard is missed when it is taken
out, that Apache Kafka answers as a test expects, that a measurement measures.  It runs in campaigns, and with all other tests
only when what it is made of has changed: its file, whatever that imports of tests/ and bench/, and in its folder `conftest.py`
and programs in other languages.  `proven.json` has a digest of these for each file; a file that is not in it, or with another
digest, runs.  After a change (from the root of the repository)::

    .venv/bin/python -m tests.campaign prove
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROVEN = Path(__file__).with_name("proven.json")
MARK = "mark.campaign"
OTHER_LANGUAGES = {".go", ".java", ".xml"}
"""Endings of the files that tests build programs from."""

_IMPORT = re.compile(r"^\s*(?:from|import) +([\w.]+)(?: +import +\(?([\w, ]*))?", re.MULTILINE)


def campaign_files(root: Path = ROOT) -> list[str]:
    """Returns the files with tests that are marked `campaign`, as paths from the root."""
    files = (path for path in sorted((root / "tests").rglob("test_*.py")) if MARK in path.read_text(encoding="utf-8"))
    return [path.relative_to(root).as_posix() for path in files]


def digest(file: str, root: Path = ROOT) -> str:
    """Returns a digest of a file and of all that it is made of.

    Args:
        file: The path from the root.
        root: The folder of the repository.
    """
    hashed = hashlib.sha256()
    for path in sorted(_closure(root / file, root)):
        hashed.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return hashed.hexdigest()


def _closure(first: Path, root: Path) -> set[Path]:
    found, waiting = set[Path](), [first, *first.parent.glob("conftest.py")]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path, root)
    return found | {path for path in first.parent.rglob("*") if path.suffix in OTHER_LANGUAGES}


def _imported(path: Path, root: Path) -> Sequence[Path]:
    """Returns the modules of tests/ and bench/ that a file imports: by their whole names, or as a neighbour that pytest finds."""
    changed = path.stat()
    return _imported_then(path, root, changed.st_mtime_ns, changed.st_size)


@cache  # files share most of what they are made of
def _imported_then(path: Path, root: Path, _changed_ns: int, _size_bytes: int) -> Sequence[Path]:
    found: list[Path] = []
    for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
        folder = root if module.split(".")[0] in {"tests", "bench"} else path.parent
        base = folder.joinpath(*module.split("."))
        within = (base / name.strip() for name in names.split(","))
        found += (each.with_suffix(".py") for each in (base, *within) if each.with_suffix(".py").is_file())
    return found


def is_proven(file: str, root: Path = ROOT, proven: Path = PROVEN) -> bool:
    """Tells whether a file was proven as it stands."""
    return _kept(proven).get(file) == digest(file, root)


def keep(files: Iterable[str], root: Path = ROOT, proven: Path = PROVEN) -> None:
    """Writes down that these files are proven as they stand, and forgets files that are gone."""
    kept = {**_kept(proven), **{file: digest(file, root) for file in files}}
    kept = {file: kept[file] for file in sorted(kept) if (root / file).is_file()}
    proven.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _kept(proven: Path) -> dict[str, str]:
    kept: dict[str, str] = json.loads(proven.read_text(encoding="utf-8")) if proven.exists() else {}
    return kept
