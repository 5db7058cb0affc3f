"""A fresh seed that fails tells how to repeat it, and the command does."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from tests.sim.fresh_seeds import FIRST, fresh_seeds
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.simulations import SIMULATIONS


def test_a_find_says_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Violation) as raised, fresh_seeds("quorum_simulation", 5) as seeds:
        raise Violation(f"R1 seed {seeds[2]}")
    (note,) = raised.value.__notes__
    command = f"python -m tests.sim.quorum_simulation --first {seeds[0]} --seeds 5\n"
    assert command in note
    assert command in capsys.readouterr().out
    assert "This is a find and no flakiness" in note


def test_each_run_has_other_seeds_and_never_the_fixed_ones() -> None:
    drawn = set()
    for _ in range(20):
        with fresh_seeds("quorum_simulation", 3) as seeds:
            assert min(seeds) >= FIRST
            drawn.add(seeds[0])
    assert len(drawn) > 1


@pytest.mark.parametrize("name", [simulation.name for simulation in SIMULATIONS])
def test_the_command_is_there(name: str) -> None:
    module = importlib.import_module(f"tests.sim.{name}")
    source = inspect.getsource(module) + inspect.getsource(importlib.import_module("tests.sim.campaign"))
    assert re.search(r'"--first"', source)
    assert re.search(r'"--seeds"', source)
