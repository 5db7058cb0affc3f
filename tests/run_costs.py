"""What a run of tests costs, measured in the process that runs them: CPU with all processes below it, fixtures, idle time.

A worker of pytest-xdist has nobody to tell this to but the process that it was started by: the CPU of a test travels in its
report, everything else in `workeroutput` at the end.  `tests/run_report.py` prints it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

WORKER_OUTPUT = "costs"
"""The key of a worker's costs in what it hands to the process that started it."""

LIST_EVERY_S = 1.0
"""How old the list of processes below may be: most of them are started by others, such as a JVM or what forks nodes."""

LOOK_EVERY_S = 0.05
"""How old the CPU of those processes may be."""

FORK = "(fork)"
"""Stands for the program of a process that goes on with this one's."""


class Processes:
    """Counts the programs that this process starts, and adds up the CPU of all processes below it."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self._is_news = False
        self._ended_s = 0.0
        self._below: list[int] = []
        self._listed_at = self._living_at = 0.0
        self._living_s = 0.0
        self._listen()

    def _listen(self) -> None:
        """Has each start of a process be counted from now on.

        An audit hook would hear of all of them, and of each `id()` and attribute too: it makes those twenty times as slow, and a
        test of Hypothesis, which calls `id()` all the time, by a tenth.
        """
        os.register_at_fork(before=lambda: self._begins(FORK))
        fork_exec, posix_spawn = subprocess._fork_exec, os.posix_spawn

        def counted_fork_exec(arguments: Sequence[Any], *others: Any) -> int:
            self._begins(arguments[0])
            return fork_exec(arguments, *others)

        def counted_posix_spawn(path: Any, *others: Any, **named: Any) -> int:
            self._begins(path)
            return posix_spawn(path, *others, **named)

        subprocess._fork_exec, os.posix_spawn = counted_fork_exec, counted_posix_spawn

    def _begins(self, program: str | bytes | os.PathLike[Any]) -> None:
        self._is_news = True
        self.started[os.fsdecode(program).rpartition("/")[2]] += 1

    def cpu_s(self) -> float:
        """Returns the CPU that this process and all below it have used, also those that have ended and were waited for."""
        may_have_ended = self._is_news or self._below
        living_s = self._of_living_s()
        if may_have_ended:  # each look is a call of the system, six times a test
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            self._ended_s = ended.ru_utime + ended.ru_stime
        return time.process_time() + self._ended_s + living_s

    def _of_living_s(self) -> float:
        """Returns the CPU of processes that live, as it was a moment ago: to look takes longer than most tests."""
        now = time.monotonic()
        if self._is_news or (self._below and now - self._listed_at > LIST_EVERY_S):
            self._is_news, self._listed_at, self._living_at = False, now, 0.0
            self._below = list(descendants(os.getpid()))
        if now - self._living_at > LOOK_EVERY_S:
            self._living_at = now
            self._living_s = sum(map(cpu_of_s, self._below))
        return self._living_s


def descendants(process_id: int) -> Iterator[int]:
    """Yields the processes below this one; none where the kernel does not list them."""
    for path in Path(f"/proc/{process_id}/task").glob("*/children"):
        for child in _read(path).split():
            yield int(child)
            yield from descendants(int(child))


def cpu_of_s(process_id: int) -> float:
    """Returns the CPU of a process and of its children that it has waited for; 0 where it has ended."""
    fields = _read(Path(f"/proc/{process_id}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ends while we look
        return ""


class Costs:
    """A plugin of each process that runs tests: measures tests, fixtures, collection, and when there was nothing to do."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._read_s = 0.0
        self._inner_s = [0.0]
        self._fixtures: dict[str, tuple[int, float]] = {}
        self._collected_cpu_s = 0.0
        self._last_test_at = self._began_at = time.time()
        self._idle_s = 0.0
        self.java_count = 0

    def pytest_collection_finish(self) -> None:
        self._collected_cpu_s = self._processes.cpu_s()
        self._last_test_at = time.time()

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Counts what is done meanwhile as collection: some tests are collected after others have run."""
        self._idle_s += time.time() - self._last_test_at
        before_s = self._processes.cpu_s()
        try:
            yield
        finally:
            self._collected_cpu_s += self._processes.cpu_s() - before_s
            self._last_test_at = time.time()

    def pytest_runtest_logstart(self) -> None:
        self._idle_s += time.time() - self._last_test_at
        self._read_s = self._processes.cpu_s()

    def pytest_runtest_logfinish(self) -> None:
        self._last_test_at = time.time()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Gives each phase of a test the CPU since the phase before it."""
        before_s, self._read_s = self._read_s, self._processes.cpu_s()
        report = yield
        report.cpu_s = max(0.0, self._read_s - before_s)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Adds up the CPU in which a fixture is set up, without that of fixtures which it asks for meanwhile."""
        before_s = self._processes.cpu_s()
        self._inner_s.append(0.0)
        try:
            return (yield)
        finally:
            spent_s = self._processes.cpu_s() - before_s
            own_s = spent_s - self._inner_s.pop()
            self._inner_s[-1] += spent_s
            name = f"{fixturedef.argname} ({fixturedef.baseid or 'of a plugin'})"
            count, sum_s = self._fixtures.get(name, (0, 0.0))
            self._fixtures[name] = (count + 1, sum_s + max(0.0, own_s))

    def found(self) -> dict[str, Any]:
        """Returns all but the costs of tests, of which reports tell, in types that travel between processes."""
        return {
            "fixtures": {name: list(cost) for name, cost in self._fixtures.items()},
            "processes": dict(self._processes.started),
            "java_count": self.java_count,
            "collected_cpu_s": self._collected_cpu_s,
            "cpu_s": self._processes.cpu_s(),
            "idle_s": self._idle_s,
            "last_test_at": self._last_test_at,
        }

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[WORKER_OUTPUT] = self.found()
