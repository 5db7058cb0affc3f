"""Role diagram and table in the documents are what `tools/quorum_roles.py` writes from the transition table."""

from __future__ import annotations

import runpy
from pathlib import Path

from replog_quorum.transitions import TRANSITIONS

ROOT = Path(__file__).parents[3]
ROLES = runpy.run_path(str(ROOT / "tools" / "quorum_roles.py"))


def test_documents_show_the_transition_table() -> None:
    """`python tools/quorum_roles.py` updates them."""
    for path, kind in ROLES["DOCUMENTS"].items():
        text = path.read_text()
        assert ROLES["rewritten"](text, kind) == text


def test_every_transition_is_drawn() -> None:
    drawn = ROLES["diagram"]()
    for old, row in TRANSITIONS.items():
        for new in row:
            assert f"{old.value} --> {new.value}: " in drawn
