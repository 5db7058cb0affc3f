"""A failing run of a cluster simulation made small: as few faults, clients, records and seconds as show the same.

Faults are taken out by delta debugging (ddmin, Zeller and Hildebrandt 2002): parts of the schedule, halves first, then ever
smaller ones down to single faults, as long as a run without them fails by the same check.  Then everything else that a
run may do without is tried, and the faults once more.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sim.cluster_swarm import PATIENT_MS, Swarm
from tests.sim.fault_schedule import Fault
from tests.sim.metadata_cluster_checks import Violation

if TYPE_CHECKING:
    from tests.sim.metadata_cluster_simulation import Simulation

RUNS_MAX = 400
SIMPLER: tuple[dict[str, Any], ...] = (
    {"has_unclean_topic": False},
    {"has_recreated_topic": False},
    {"is_reassigned": False},
    {"changes_voters": False},
    {"straggler": 0.0},
    {"loss": 0.0},
    {"late": 0.0, "delivery_timeout_ms": PATIENT_MS},
    {"stream_break": 0.0},
    {"slow_thread": 0.0},
    {"delay_max_ms": 1.0},
    {"send_interval_s": 0.2},
    {"client_pause_s": 0.3},
)
"""What a run may do without, one after the other; a value that it has already is not tried."""


@dataclass(frozen=True, slots=True)
class Case:
    """All that one run is made of."""

    seed: int
    swarm: Swarm
    schedule: tuple[Fault, ...]

    @classmethod
    def of_seed(cls, seed: int, make: type[Simulation]) -> Case:
        simulation = make(seed)
        simulation.discard()
        return cls(seed, simulation.swarm, simulation.planned())

    @classmethod
    def read(cls, path: Path) -> Case:
        """What `write` has written.

        Raises:
            ValueError: the file holds something else.
        """
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.keys() != {"seed", "swarm", "schedule"}:
            raise ValueError(f"{path}: not a run with seed, swarm and schedule")
        schedule = tuple(Fault.from_json(fault) for fault in values["schedule"])
        return cls(int(values["seed"]), Swarm.from_json(values["swarm"]), schedule)

    def write(self, path: Path) -> None:
        faults = [fault.as_json() for fault in self.schedule]
        values = {"seed": self.seed, "swarm": self.swarm.as_json(), "schedule": faults}
        path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    def simulation(self, make: type[Simulation]) -> Simulation:
        """The run itself, which has not begun."""
        simulation = make(self.seed, self.swarm)
        simulation.schedule = self.schedule
        return simulation


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest run found, and what it violates."""

    case: Case
    violation: str


class Shrinker:
    """Looks for a smaller run that fails alike.

    Args:
        make: which simulation it is.
        tell: told what was achieved.
    """

    def __init__(self, make: type[Simulation], tell: Callable[[str], None] = lambda _: None) -> None:
        self.runs = 0
        self._make = make
        self._tell = tell
        self._check = ""
        self._violation = ""

    def shrink(self, case: Case) -> Shrunk | None:
        """None: it does not fail."""
        violation = self._violation_of(case)
        if violation is None:
            return None
        self._check, self._violation = check_name(violation), violation
        self._tell(f"{len(case.schedule)} faults: {violation}")
        case = self._with_fewer_faults(case)
        simpler = self._simplified(case)
        if simpler != case:
            simpler = self._with_fewer_faults(simpler)
        return Shrunk(simpler, self._violation)

    def _with_fewer_faults(self, case: Case) -> Case:
        """Ddmin over the schedule."""

        def still_fails(schedule: Sequence[Fault]) -> bool:
            return self._fails_alike(replace(case, schedule=tuple(schedule)))

        schedule = tuple(minimized(case.schedule, still_fails))
        self._tell(f"{len(schedule)} faults of {len(case.schedule)}, after {self.runs} runs")
        return replace(case, schedule=schedule)

    def _simplified(self, case: Case) -> Case:
        for change in (*SIMPLER, {"faults_s": case.swarm.faults_s / 2}, {"faults_s": case.swarm.faults_s / 4}):
            swarm = replace(case.swarm, **change)
            last_s = max((fault.at_ms for fault in case.schedule), default=0) / 1000
            simpler = replace(case, swarm=swarm)
            if swarm != case.swarm and last_s < swarm.faults_s and self._fails_alike(simpler):
                self._tell(f"also with {change}")
                case = simpler
        return case

    def _fails_alike(self, case: Case) -> bool:
        if self.runs >= RUNS_MAX:
            return False
        violation = self._violation_of(case)
        if violation is None or check_name(violation) != self._check:
            return False
        self._violation = violation
        return True

    def _violation_of(self, case: Case) -> str | None:
        self.runs += 1
        try:
            case.simulation(self._make).run()
        except Violation as violation:
            return str(violation)
        finally:
            gc.collect()
        return None


def minimized(items: Sequence[Fault], still_fails: Callable[[Sequence[Fault]], bool]) -> Sequence[Fault]:
    """Ddmin: a part of `items`, in their order, that still fails, and does not without any single one of its items."""
    if still_fails(()):
        return ()
    parts = 2
    while len(items) >= 2:
        size = -(-len(items) // parts)
        starts = range(0, len(items), size)
        smaller = next(
            (rest for at in starts if still_fails(rest := (*items[:at], *items[at + size :]))),
            None,
        )
        if smaller is not None:
            items, parts = smaller, max(2, parts - 1)
        elif size == 1:
            break
        else:
            parts = min(len(items), 2 * parts)
    return items


def check_name(violation: str) -> str:
    """Which check has failed: the name that the violation begins with, or the error that a node has ended with."""
    ended = re.match(r"node \d+ ended by itself: (\w+)", violation)
    if ended:
        return f"ended: {ended[1]}"
    named = re.match(r"(?:\d+ anomalies:\s+)?(\w+)", violation)
    return named[1] if named else violation
