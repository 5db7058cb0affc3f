"""Each safeguard of transactions is taken out in turn: their simulation must notice."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from tests.sim.ablation_table import TellStale
from tests.sim.transaction_ablations import ABLATIONS, TABLE, TransactionAblation, find

pytestmark = pytest.mark.campaign

FOUND = [ablation for ablation in ABLATIONS if not ablation.unfound_because]
UNFOUND = [ablation for ablation in ABLATIONS if ablation.unfound_because]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("ablation", FOUND, ids=lambda ablation: ablation.safeguard)
def test_a_missing_safeguard_is_found(ablation: TransactionAblation, tell_stale: TellStale) -> None:
    found = TABLE.find_again(ablation, tell_stale)
    assert found is not None
    assert re.match(ablation.finding, found[1], re.DOTALL)
    assert "--seed" in found[1]  # the message says how to repeat it


@pytest.mark.parametrize("ablation", UNFOUND, ids=lambda ablation: ablation.safeguard)
def test_a_safeguard_that_is_said_not_to_be_missed_can_still_be_taken_out(ablation: TransactionAblation) -> None:
    """A substitute that no longer fits what it stands for ends a node, and would say nothing about the safeguard."""
    assert find(ablation, 0, 1) is None
