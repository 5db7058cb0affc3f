"""The worked examples of `tests/data/controller`."""

from __future__ import annotations

from pathlib import Path

import pytest
from controller_scenario import Scenario

from tests import datadriven

FILES = sorted((Path(__file__).parents[2] / "data" / "controller").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario = Scenario()
    datadriven.run(path, lambda command: "\n".join(scenario.execute(command)))


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 10
