"""Faults that have once led to a bug, as files: the cluster survives them, and does not without the safeguard.

A file is what `--shrink` writes; `python -m tests.sim.data_cluster_simulation --schedule FILE --log` shows the run.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.ablation_table import taken_out
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.replication_ablations import ABLATIONS
from tests.sim.replication_checks import ReplicationChecks
from tests.sim.shrinking import Case

FOLDER = Path(__file__).parent / "scenarios"
SAFEGUARDS = {
    "leader_misses_an_epoch": "a leader forgets its followers after an epoch it missed",
    "min_isr_is_raised_while_the_isr_shrinks": "a shrinking ISR counts when the metadata says so",
    "an_empty_replica_after_a_deletion_inside_of_a_batch": "an empty log begins inside of a batch",
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_file_has_its_safeguard() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == SAFEGUARDS.keys()


@pytest.mark.parametrize("name", SAFEGUARDS)
def test_it_is_survived(name: str) -> None:
    case = Case.read(FOLDER / f"{name}.json")
    simulation = case.simulation(DataSimulation)
    simulation.run()
    assert {fault.kind for fault in case.schedule} <= simulation.seen.keys(), "a fault has found nothing to do"


def test_a_deletion_that_nobody_has_asked_for_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicationChecks, "may_delete", lambda *_: None)
    with pytest.raises(Violation, match=r"^S10 node . starts at "):
        Case.read(FOLDER / "an_empty_replica_after_a_deletion_inside_of_a_batch.json").simulation(DataSimulation).run()


@pytest.mark.parametrize("name", SAFEGUARDS)
def test_without_the_safeguard_it_is_not(name: str) -> None:
    (ablation,) = [ablation for ablation in ABLATIONS if ablation.safeguard == SAFEGUARDS[name]]
    with taken_out(ablation.patches), pytest.raises(Violation) as raised:
        Case.read(FOLDER / f"{name}.json").simulation(DataSimulation).run()
    assert re.match(ablation.finding, str(raised.value), re.DOTALL)
