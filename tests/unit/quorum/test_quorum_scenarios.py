"""Every file in `tests/data/quorum` is one scenario."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorum_world import QuorumWorld

from tests import datadriven

SCENARIOS = sorted((Path(__file__).parents[2] / "data" / "quorum").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    datadriven.run(path, QuorumWorld().execute)
