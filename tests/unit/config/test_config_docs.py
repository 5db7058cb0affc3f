"""What docs/CONFIGURATION.md is made from; `tests/lint/configuration_page.py` compares it."""

from __future__ import annotations

from replog.config.docs import render


def test_differences_are_listed_with_their_reason() -> None:
    assert "| `replica.lag.time.max.ms` | `10,000` | 30,000 | a stuck follower" in render()
