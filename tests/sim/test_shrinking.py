"""A failing run made small: the same check fails with a few faults, and the file repeats it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from replog.controller.managers.replication import ReplicationControl
from tests.sim.fault_schedule import Fault, FaultKind
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.one_machine_simulation import OneMachineSimulation
from tests.sim.replication_substitutes import as_if_clean
from tests.sim.shrinking import Case, Shrinker, check_name, minimized


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def faults(count: int) -> list[Fault]:
    return [Fault(at_ms, FaultKind.KILL, 1) for at_ms in range(count)]


@pytest.mark.parametrize("needed", [set(), {7}, {0, 29}, {3, 4, 17}])
def test_what_is_not_needed_goes(needed: set[int]) -> None:
    def still_fails(schedule: Sequence[Fault]) -> bool:
        return needed <= {fault.at_ms for fault in schedule}

    assert {fault.at_ms for fault in minimized(faults(30), still_fails)} == needed


def test_without_any_single_one_it_does_not_fail() -> None:
    """Either of two reasons is enough; one of them stays."""

    def still_fails(schedule: Sequence[Fault]) -> bool:
        found = {fault.at_ms for fault in schedule}
        return {2, 5} <= found or {5, 11} <= found

    small = minimized(faults(12), still_fails)
    assert still_fails(small)
    assert not any(still_fails([*small[:at], *small[at + 1 :]]) for at in range(len(small)))


@pytest.mark.parametrize(
    ("violation", "name"),
    [
        ("R3 leader 6 of ISR [6]", "R3"),
        ("43 anomalies:\n  duplicate: flights-0 offset 1", "duplicate"),
        ("stuck: not settled after 30 s", "stuck"),
        ("node 1 ended by itself: CorruptRecordError: /data", "ended: CorruptRecordError"),
    ],
)
def test_a_check_has_a_name(violation: str, name: str) -> None:
    assert check_name(violation) == name


def test_a_missing_safeguard_needs_few_faults(tmp_path: Path) -> None:
    """A broker that restarts uncleanly stays eligible: one that loses power, or is killed, and starts again shows it."""
    with mock.patch.object(ReplicationControl, "changes_without", as_if_clean):
        case = Case.of_seed(11, OneMachineSimulation)  # few faults to begin with, so that it does not take long
        shrunk = Shrinker(OneMachineSimulation).shrink(case)
        assert shrunk is not None
        assert 1 <= len(shrunk.case.schedule) <= 3 < len(case.schedule)
        shrunk.case.write(tmp_path / "small.json")
        with pytest.raises(Violation, match=r"^R10 "):
            Case.read(tmp_path / "small.json").simulation(OneMachineSimulation).run()
        without = replace(shrunk.case, schedule=())
        without.simulation(OneMachineSimulation).run()
    shrunk.case.simulation(OneMachineSimulation).run()  # with the safeguard


def test_a_run_that_does_not_fail_is_not_shrunk() -> None:
    case = Case.of_seed(0, OneMachineSimulation)
    assert Shrinker(OneMachineSimulation).shrink(replace(case, schedule=())) is None
