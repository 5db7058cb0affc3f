"""Each safeguard of the metadata quorum is taken out in turn: its simulation must notice."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from tests.sim.ablation_table import TellStale
from tests.sim.quorum_ablations import ABLATIONS, TABLE, Ablation


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.safeguard)
def test_a_missing_safeguard_is_found(ablation: Ablation, tell_stale: TellStale) -> None:
    found = TABLE.find_again(ablation, tell_stale)
    assert found is not None
    assert re.search(ablation.finding, found[1])
    assert "--seed" in found[1]  # the message says how to repeat it
