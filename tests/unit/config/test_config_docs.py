"""docs/CONFIGURATION.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from replog.config.docs import field_meanings, render
from replog.config.server_keys import KEYS

PAGE = Path(__file__).parents[3] / "docs" / "CONFIGURATION.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_every_key_has_a_meaning() -> None:
    meanings = field_meanings()
    assert {key.field_name for key in KEYS.values()} == set(meanings)
    assert all(meaning.endswith(".") for meaning in meanings.values())


def test_differences_are_listed_with_their_reason() -> None:
    assert "| `replica.lag.time.max.ms` | `10,000` | 30,000 | a stuck follower" in render()
