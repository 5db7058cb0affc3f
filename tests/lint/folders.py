"""No folder of what users install, or run from a checkout, has more files than a stranger can take in; tests have names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("replog", "pyspark_replog", "timeline", "quorum", "checkpoints", "chaos")
FILES_MAX = 25
GENERATED = {"replog/wire/messages"}
"""Rooms of one generated module for each API of Kafka's."""


def crowded(top: Path) -> dict[str, int]:
    """Returns the folders from `top` on down with more than `FILES_MAX` modules, and how many these are."""
    counts = {folder: len(list(folder.glob("*.py"))) for folder in (top, *(p for p in top.rglob("*") if p.is_dir()))}
    crowds = {folder.relative_to(top.parent).as_posix(): count for folder, count in counts.items() if count > FILES_MAX}
    return {name: count for name, count in crowds.items() if name not in GENERATED}


def doubles(top: Path) -> list[str]:
    """Returns the names that several modules of folders that are no packages have: one of them would be imported for the other."""
    modules = (path for path in top.rglob("*.py") if path.name not in {"conftest.py", "__main__.py"})
    names = Counter(path.name for path in modules if not (path.parent / "__init__.py").exists())
    return sorted(name for name, count in names.items() if count > 1)


def violations() -> Iterator[str]:
    """Yields each folder with too many modules, and each name that two modules of the tests have."""
    for top in PRODUCT:
        if not (ROOT / top).is_dir():
            yield f"{top}: no such folder"
        for name, count in crowded(ROOT / top).items():
            yield f"{name}: {count} modules, at most {FILES_MAX}"
    yield from (f"{name}: several modules of the tests have this name" for name in doubles(ROOT / "tests"))
