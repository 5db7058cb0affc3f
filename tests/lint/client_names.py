"""The page for users of other clients names classes, methods and settings of ours that exist."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from replog import client

PAGE = Path(__file__).parents[2] / "docs" / "CLIENT_NAMES.md"
ROWS_MIN = 30
OURS = re.compile(r"`([A-Z]\w+)(?:\.(\w+)|\((\w+)=\))?`")
"""A class, one of its methods, or one of its settings."""


def named(text: str) -> list[tuple[str, str, str]]:
    """Returns (class, method, setting) for each name in the last column of the tables; those that are not said are empty."""
    rows = [line.rstrip("|").rpartition("|")[2] for line in text.splitlines() if line.startswith("|")]
    return [found for row in rows for found in OURS.findall(row)]


def is_there(name: str, method: str, setting: str) -> bool:
    """Whether the clients have that class, with that method or setting."""
    cls = getattr(client, name, None)
    if cls is None or (method and not callable(getattr(cls, method, None))):
        return False
    return not setting or setting in inspect.signature(cls).parameters


def violations() -> Iterator[str]:
    """Yields each name of ours on the page that the clients do not have; one, where the page names few."""
    found = named(PAGE.read_text(encoding="utf-8"))
    if len(found) < ROWS_MIN:
        yield f"{PAGE.name} names {len(found)} things of ours: this rule does not find them"
    yield from (f"{PAGE.name}: there is no {'.'.join(filter(None, each))}" for each in found if not is_there(*each))
