"""An error that a page names is imported from `replog.errors`, or is Python's."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from pathlib import Path

from replog import errors

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/*.md")
NO_ERRORS = {"ReplyError": "an effect of the controller"}


def unknown_in(text: str) -> list[str]:
    """Returns the errors that a text names and nobody can import."""
    named = sorted(set(re.findall(r"`(\w+Error)\b", text)) - NO_ERRORS.keys())
    return [name for name in named if not hasattr(builtins, name) and not _is_ours(name)]


def _is_ours(name: str) -> bool:
    found = getattr(errors, name, None)
    return isinstance(found, type) and issubclass(found, errors.ReplogError)


def violations() -> Iterator[str]:
    """Yields each error that a page names and nobody can import."""
    for page in (path for pattern in PAGES for path in sorted(ROOT.glob(pattern))):
        for name in unknown_in(page.read_text(encoding="utf-8")):
            yield f"{page.relative_to(ROOT)}: replog.errors has no {name}"
