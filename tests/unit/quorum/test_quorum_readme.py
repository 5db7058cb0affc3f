"""The role table in the README is generated from the transition table."""

from __future__ import annotations

import os
import re
from pathlib import Path

from replog_quorum.transitions import TRANSITIONS

README = Path(__file__).parents[3] / "quorum" / "README.md"


def table() -> str:
    rows = [
        f"| {old.value} | {new.value} | {rule.value} |"
        for old, ways in TRANSITIONS.items()
        for new, rule in ways.items()
    ]
    return "\n".join(["| from | to | epoch |", "|---|---|---|", *rows])


def test_readme_shows_the_transition_table() -> None:
    """REPLOG_REWRITE=1 updates it."""
    text = README.read_text()
    if os.environ.get("REPLOG_REWRITE"):
        text = re.sub(r"\| from \| to \| epoch \|\n(\|.*\n|TABLE\n)*", table() + "\n", text)
        README.write_text(text)
    assert table() in text
