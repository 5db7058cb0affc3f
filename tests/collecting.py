"""Collects the tests of a unit when it is its turn, in the process that runs it (`pytest -n`; units: `tests/side_by_side.py`).

A process of pytest-xdist collects all tests, says which they are, and is told by their numbers which to run: seven seconds of
CPU in each process, twenty in a new copy, and half a gigabyte of tests that others run.  Here it says which units there are.
Each is two items: one that collects the tests and runs them, and its end.  The end is there because pytest-xdist has a process
begin with an item only once it knows the next one; without it each would be bound to two units, and at the end of a run some
would wait for one that still has both.

Where the command line names single tests, or asks for those that failed last, all is collected first, as pytest does.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.run_costs import Costs
from tests.side_by_side import END, TESTS, unit_of

NEED_ALL = ("lf", "failedfirst", "newfirst", "stepwise")
"""Options that choose among all tests."""


def collects_in_turn(config: pytest.Config) -> bool:
    """Tells whether a process of this run collects units in their turn."""
    names_tests = any("::" in argument for argument in config.args)
    return not names_tests and not any(config.getoption(option, None) for option in NEED_ALL)


class FileInTurn(pytest.File):
    """A file that is not looked into yet."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yields what stands for all of its tests."""
        yield UnitInTurn.from_parent(self, name=TESTS)


class StandIn(pytest.Item):
    """Stands for tests; `CollectsInTurn` runs it."""

    def runtest(self) -> None:
        """Runs nothing: not called."""


class UnitInTurn(StandIn):
    """Stands for the tests of a unit until they are collected."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.files = [self.parent]


class EndOfUnit(StandIn):
    """Comes after the tests of a unit."""


class CollectsInTurn:
    """A plugin of each process that runs tests for another."""

    def __init__(self, costs: Costs) -> None:
        """Prepares it.

        Args:
            costs: Is told what it costs to collect a unit.
        """
        self._costs = costs

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Any, parent: Any) -> FileInTurn:
        """Puts off to look into a file."""
        return FileInTurn.from_parent(parent, path=module_path)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Makes units of the files; to choose among tests is for later, when there are some."""
        files = [item for item in items if isinstance(item, UnitInTurn)]
        if not files:
            return (yield)
        items.clear()
        yield
        units: dict[str, UnitInTurn] = {}
        for item in files:
            unit = units.setdefault(unit_of(item.nodeid), item)
            if unit is not item:
                unit.files += item.files
        for unit in units.values():
            items += [unit, EndOfUnit.from_parent(unit.parent, name=END)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Runs a unit, or ends it, in place of a test."""
        if isinstance(item, UnitInTurn):
            assert nextitem is not None
            self._run(item, nextitem)
            return True
        if isinstance(item, EndOfUnit):
            _end(item, nextitem)
            return True
        return None

    def _run(self, unit: UnitInTurn, end: pytest.Item) -> None:
        session = unit.session
        with self._costs.collecting():
            tests = _collected(unit)
        place = session.items.index(unit)
        for test, after in itertools.pairwise([*tests, end]):
            session.items[place] = test  # pytest-xdist looks there for what a report is about
            unit.config.hook.pytest_runtest_protocol(item=test, nextitem=after)
            if session.shouldfail or session.shouldstop:
                break
        session.items[place] = unit


def _collected(unit: UnitInTurn) -> list[pytest.Item]:
    """Returns the tests of a unit that the command line asks for; what cannot be imported is reported as an error."""
    session = unit.session
    gc.disable()  # what is collected stays
    try:
        modules = [pytest.Module.from_parent(file.parent, path=file.path) for file in unit.files]
        tests = [test for module in modules for test in session.genitems(module)]
    finally:
        gc.freeze()  # each look for garbage in a test would walk over the modules that these were the first to load
        gc.enable()
        session._collection_cache.clear()
    unit.config.hook.pytest_collection_modifyitems(session=session, config=unit.config, items=tests)
    return tests


def _end(item: EndOfUnit, nextitem: pytest.Item | None) -> None:
    """Ends what the next unit does not share; if there is none, all that the tests of this process did."""
    end = pytest.CallInfo.from_call(
        lambda: item.session._setupstate.teardown_exact(nextitem),
        "teardown",
        (KeyboardInterrupt, pytest.exit.Exception),
    )
    report = item.ihook.pytest_runtest_makereport(item=item, call=end)
    if report.failed:
        item.ihook.pytest_runtest_logreport(report=report)
