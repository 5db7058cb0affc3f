"""`docs/CONFIGURATION.md` is what the code gives, and each key of a node has a meaning: whole sentences under its field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from replog.config.docs import field_meanings, render
from replog.config.server_keys import KEYS

PAGE = Path(__file__).parents[2] / "docs" / "CONFIGURATION.md"


def wrong_in(meanings: Mapping[str, str]) -> Iterator[str]:
    """Yields what is wrong with the meanings of fields: one for each key, each of whole sentences."""
    fields = {key.field_name for key in KEYS.values()}
    yield from (f"{name}: has no meaning, write it under the field" for name in sorted(fields - meanings.keys()))
    yield from (f"{name}: has a meaning and is no key" for name in sorted(meanings.keys() - fields))
    yield from (f"{name}: its meaning does not end with a full stop" for name, it in meanings.items() if it[-1:] != ".")


def violations() -> Iterator[str]:
    """Yields each key without a meaning, and that the page is not current."""
    wrong = list(wrong_in(field_meanings()))
    yield from wrong
    if not wrong and PAGE.read_text(encoding="utf-8") != render():
        yield f"docs/{PAGE.name}: is not what the code gives; run `make docs`"
