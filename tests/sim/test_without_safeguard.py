"""Safeguards of groups and transactions that no simulation misses: the test that is named for each misses it."""

from __future__ import annotations

import pytest

from tests.sim import group_ablations, transaction_ablations
from tests.sim.without_safeguard import does_fail

pytestmark = pytest.mark.campaign

UNFOUND = [
    pytest.param(module.__name__, ablation, id=ablation.safeguard)
    for module in (group_ablations, transaction_ablations)
    for ablation in module.ABLATIONS
    if ablation.unfound_because
]


@pytest.mark.parametrize(("module", "ablation"), UNFOUND)
def test_the_test_that_is_named_fails_without_it(module: str, ablation: group_ablations.GroupAblation) -> None:
    file, _, _ = ablation.shown_by.partition("::")
    assert file.rpartition("/")[2] in ablation.unfound_because
    assert does_fail(ablation.shown_by, module, ablation.safeguard)
