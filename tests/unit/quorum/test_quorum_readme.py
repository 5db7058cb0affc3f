"""The diagram that `tools/quorum_roles.py` writes has every transition; `make lint` compares the documents with it."""

from __future__ import annotations

import runpy
from pathlib import Path

from replog_quorum.transitions import TRANSITIONS

ROOT = Path(__file__).parents[3]
ROLES = runpy.run_path(str(ROOT / "tools" / "quorum_roles.py"))


def test_every_transition_is_drawn() -> None:
    drawn = ROLES["diagram"]()
    for old, row in TRANSITIONS.items():
        for new in row:
            assert f"{old.value} --> {new.value}: " in drawn
