"""Runs a scenario: warm-up, repetitions with the systems taking turns, medians.

Why turns (A B A B, not A A B B): whatever else the machine does then falls on all systems alike, and ratios hold even
where absolute numbers do not.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.meter import Meter
from bench.model import Measured, Metric, NotOfferedError, Params, Row, Scenario, System, SystemT, Trace

OnStep = Callable[[str], None]
"""Told what is about to be measured, before each measurement."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came out.

    Attributes:
        rows: in the order of cases, systems and metrics.
        missing: why a system was left out, by its name, or by its name and the case in which it was.
        durability: what an acknowledgement of each system means, where there is such a thing.
        traces: what happened when.
    """

    rows: Sequence[Row]
    missing: Mapping[str, str]
    durability: Mapping[str, str] = field(default_factory=dict)
    traces: Sequence[Trace] = ()


def steps_count(
    scenario: Scenario[SystemT],
    repeat: int,
    chosen: Sequence[str] | None = None,
    only: Sequence[tuple[str, str]] = (),
) -> int:
    """How many times `on_step` will be called, at most."""
    present = [system for system in _chosen(scenario, chosen) if system.missing() is None]
    return len(cases_with(scenario, only)) * len(present) * (repeat + 1)


def cases_with(scenario: Scenario[SystemT], only: Sequence[tuple[str, str]]) -> list[Params]:
    """Returns the cases whose parameters have, for each name in `only`, one of the values that stand there with it."""
    names = {name for name, _ in only}
    return [params for params in scenario.cases() if all((name, str(params.get(name))) in only for name in names)]


def run(
    scenario: Scenario[SystemT],
    *,
    repeat: int,
    directory: Path,
    on_step: OnStep = lambda _: None,
    chosen: Sequence[str] | None = None,
    only: Sequence[tuple[str, str]] = (),
) -> Result:
    """Measures every case on every system that is there, once to warm up and `repeat` times to count.

    Args:
        scenario: what to do.
        repeat: repetitions that count, from 1.
        directory: where systems may write; what they write is removed.
        on_step: for a progress display.
        chosen: names of the systems to measure; by default all.
        only: names and values of parameters, as for `cases_with`; by default all cases are measured.

    Raises:
        WrongResultError: a system gave a wrong answer.
    """
    wanted = _chosen(scenario, chosen)
    missing = {system.name: reason for system in wanted if (reason := system.missing()) is not None}
    systems = [system for system in wanted if system.name not in missing]
    with garbage_set_aside(), started(systems, directory):
        rows = [
            row
            for params in cases_with(scenario, only)
            for row in run_case(scenario, systems, params, repeat=repeat, on_step=on_step, missing=missing)
        ]
    durability = {system.name: text for system in systems if (text := system.durability())}
    return Result(rows, missing, durability, scenario.traces())


def _chosen(scenario: Scenario[SystemT], names: Sequence[str] | None) -> list[SystemT]:
    return [system for system in scenario.systems() if names is None or system.name in names]


@contextmanager
def garbage_set_aside() -> Iterator[None]:
    """The collector does not walk over what is there already: of modules alone there are so many objects that it would
    stop a loop in the measured process for 35 ms now and then, which is the 99th percentile of a latency."""
    is_ours = gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if is_ours:
            gc.unfreeze()


@contextmanager
def started(systems: Sequence[System], directory: Path) -> Iterator[None]:
    """Starts the systems, each in an empty directory of its own, and stops all of them whatever happens."""
    with ExitStack() as stack:
        for system in systems:
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="replog-bench-", dir=directory))
            stack.callback(system.stop)
            system.start(Path(own))
        yield


def run_case(
    scenario: Scenario[SystemT],
    systems: Sequence[SystemT],
    params: Params,
    *,
    repeat: int,
    on_step: OnStep,
    missing: dict[str, str] | None = None,
) -> list[Row]:
    """One case on all systems in turn; `missing` is told which do not offer it."""
    offering: list[SystemT] = []
    for system in systems:
        on_step(f"{system.name} {show_params(params)}")
        gc.collect()
        try:
            scenario.warm_up(system, params, Meter(system.process_ids(), system.client_ids()))
        except NotOfferedError as error:
            if missing is not None:
                missing[f"{system.name} ({show_params(params)})"] = str(error)
        else:
            offering.append(system)
    measured: dict[str, list[Measured]] = {system.name: [] for system in offering}
    for _ in range(repeat):
        for system in offering:
            on_step(f"{system.name} {show_params(params)}")
            gc.collect()
            meter = Meter(system.process_ids(), system.client_ids())
            measured[system.name].append(scenario.measure(system, params, meter))
    return [row for system in offering for row in summarize(scenario.name, system.name, params, measured[system.name])]


def summarize(scenario: str, system: str, params: Params, measured: Sequence[Measured]) -> list[Row]:
    """One row a metric, in the order of the first repetition."""
    return [
        _row(scenario, system, params, metric, [found[metric] for found in measured if metric in found])
        for metric in measured[0]
    ]


def _row(scenario: str, system: str, params: Params, metric: Metric, values: Sequence[float]) -> Row:
    return Row(
        scenario=scenario,
        system=system,
        metric=metric.name,
        unit=metric.unit,
        params=params,
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        n=len(values),
    )


def show_params(params: Params) -> str:
    """Parameters on one line."""
    return " ".join(f"{name}={value}" for name, value in params.items())
