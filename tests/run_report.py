"""Says at the end of a run where its time went, and which tests cost more than their folder's budget without a reason.

CPU counts, that of a test's processes included: how long a test takes depends on what else the machine does.  CPU depends
on it too, if less, so that nothing here makes a run fail: who adds a test that is named writes its reason into
`tests/budgets.toml`, or makes it cheaper.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.run_costs import WORKER_OUTPUT, Costs

BUDGETS = Path(__file__).with_name("budgets.toml")
SHORT_S = 10.0
"""A run of less CPU says nothing but which tests are over their budget."""

SHOWN = 10
FIXTURE_MIN_S = 0.1
PHASES = ("setup", "call", "teardown")


@dataclass(frozen=True)
class Budgets:
    """What tests may cost: `tests/budgets.toml`."""

    test_cpu_s: Mapping[str, float]
    folder_cpu_s: Mapping[str, float]
    reasons: Mapping[str, str]

    @classmethod
    def read(cls) -> Budgets:
        """Reads the file."""
        return cls(**tomllib.loads(BUDGETS.read_text(encoding="utf-8")))

    def allows(self, nodeid: str, cpu_s: float) -> bool:
        """Whether a test is within the budget for one test of its folder, or has a reason: its own, or its file's."""
        function = nodeid.partition("[")[0]
        has_reason = function in self.reasons or nodeid.partition("::")[0] in self.reasons
        return has_reason or cpu_s <= self.test_cpu_s.get(folder_of(nodeid), float("inf"))


@dataclass
class Cost:
    """What one test, or all of a folder, cost."""

    tests: int = 0
    elapsed_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @property
    def sum_s(self) -> float:
        """The CPU of all phases."""
        return sum(self.cpu_s.values())

    def add(self, report: pytest.TestReport) -> None:
        """Adds one phase of a test."""
        self.tests += report.when == "call"
        self.elapsed_s += report.duration
        if report.when in PHASES:  # of a process that died nobody knows the phase, nor what the test cost
            self.cpu_s[report.when] += getattr(report, "cpu_s", 0.0)


def folder_of(nodeid: str) -> str:
    """Returns the folder of tests that a test belongs to: "unit", "cluster"."""
    return nodeid.removeprefix("tests/").partition("/")[0]


class RunReport:
    """A plugin of the process that people look at: gathers what all processes have measured, and prints it."""

    def __init__(self, costs: Costs | None) -> None:
        """Prepares the report.

        Args:
            costs: What this process measures, if it runs tests itself.
        """
        self._costs = costs
        self._budgets = Budgets.read()
        self._folders: defaultdict[str, Cost] = defaultdict(Cost)
        self._tests: defaultdict[str, Cost] = defaultdict(Cost)
        self._workers: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._folders[folder_of(report.nodeid)].add(report)
        self._tests[report.nodeid].add(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        costs = getattr(node, "workeroutput", {}).get(WORKER_OUTPUT)
        if costs is not None:
            self._workers[node.gateway.id] = costs

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._costs is not None:
            self._workers["this process"] = self._costs.found()
        is_long = sum(worker["cpu_s"] for worker in self._workers.values()) >= SHORT_S
        lines = [*(self._where_it_went() if is_long else []), *self._over_budget()]
        if lines:
            terminalreporter.section("where the time went")
            for line in lines:
                terminalreporter.write_line(line)

    def _where_it_went(self) -> Iterator[str]:
        yield "CPU with all processes below a test, in seconds; elapsed time is added up over processes side by side"
        yield from self._by_folder()
        yield "slowest tests, by CPU (and elapsed)"
        slowest = sorted(self._tests.items(), key=lambda item: -item[1].sum_s)[:SHOWN]
        yield from (f"  {cost.sum_s:7.1f} ({cost.elapsed_s:.1f})  {name}" for name, cost in slowest)
        yield "slowest fixtures, by the CPU of their setup"
        yield from self._fixtures()
        yield from self._processes()
        yield from self._by_worker()

    def _by_folder(self) -> Iterator[str]:
        yield f"  {'tests/':<10}{'tests':>7}{'CPU':>9}{'setup':>9}{'call':>9}{'teardown':>9}{'elapsed':>9}"
        for name, cost in sorted(self._folders.items(), key=lambda item: -item[1].sum_s):
            phases = "".join(f"{cost.cpu_s[phase]:9.1f}" for phase in PHASES)
            yield f"  {name:<10}{cost.tests:7}{cost.sum_s:9.1f}{phases}{cost.elapsed_s:9.1f}"

    def _fixtures(self) -> Iterator[str]:
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        for worker in self._workers.values():
            for name, (count, cpu_s) in worker["fixtures"].items():
                sums[name][0] += count
                sums[name][1] += cpu_s
        slowest = sorted(sums.items(), key=lambda item: -item[1][1])[:SHOWN]
        for name, (count, cpu_s) in ((name, cost) for name, cost in slowest if cost[1] >= FIXTURE_MIN_S):
            yield f"  {cpu_s:7.1f}  {name}, {count:.0f} times"

    def _processes(self) -> Iterator[str]:
        started = sum((Counter(worker["processes"]) for worker in self._workers.values()), Counter[str]())
        most = ", ".join(f"{count} {name}" for name, count in started.most_common(5))
        java_count = sum(worker["java_count"] for worker in self._workers.values())
        yield f"processes started by tests: {started.total()}{f' ({most})' if most else ''}; JVMs below them: {java_count}"

    def _by_worker(self) -> Iterator[str]:
        ended_at = max((worker["last_test_at"] for worker in self._workers.values()), default=0.0)
        for name, worker in sorted(self._workers.items()):
            idle_s = worker["idle_s"] + ended_at - worker["last_test_at"]
            collected = f"{worker['collected_cpu_s']:.1f} of it to start and collect"
            yield f"{name}: {worker['cpu_s']:.1f} of CPU, {collected}; {idle_s:.1f} without a test to run"

    def _over_budget(self) -> Iterator[str]:
        over = [(name, cost.cpu_s["call"]) for name, cost in self._tests.items()]
        over = [(name, cpu_s) for name, cpu_s in over if not self._budgets.allows(name, cpu_s)]
        if over:
            yield f"over the budget of a test, and {BUDGETS.name} has no reason why"
            yield from (f"  {cpu_s:7.1f}  {name}" for name, cpu_s in sorted(over, key=lambda item: -item[1]))
        for folder, most_s in self._budgets.folder_cpu_s.items():
            if self._folders.get(folder, Cost()).sum_s > most_s:
                yield f"tests/{folder} cost {self._folders[folder].sum_s:.0f} s of CPU, its budget is {most_s:.0f} s"
