"""Which tests run in one process, and in which order the processes get them (`pytest -n`).

A file is run by one process: what its tests share is started once.  Apache Kafka, its JVMs and the Spark session take seconds to
start, so files that share one of them are one unit, too; what shares nothing is not held up by them.

Units that start other processes (clusters, Kafka, Spark) mostly wait for them; the others keep a core busy.  One process of
four begins with the others, so that there is work for each core from the beginning to the end.  The units that take longest
come first, so that no process is left with one at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARE_NOTHING = (
    "tests/spark/test_spark_examples.py",
    "tests/kafka/test_kafka_controller_rights_alike.py",
    "tests/kafka/test_kafka_full_groups_alike.py",
    "tests/kafka/test_kafka_rights_alike.py",
    "tests/kafka/test_kafka_tokens_alike.py",
)
"""Files that fit a pattern of SHARED, and whose tests start what they need: minutes that another process can use."""

SHARED: Mapping[str, str] = {
    "tests/spark/": r"tests/spark/",
    "tests/kafka/: a broker of each kind": r"tests/kafka/test_kafka_(\w+_(alike|conversions)|questions_groups|console|our_transaction_operations)\.py",
    "tests/kafka/: the life of a node of Kafka": r"tests/kafka/test_kafka_(wrote_it|serves_ours|group_folder)\.py",
    "tests/kafka/: one JVM": r"tests/kafka/test_kafka_(tools|access_lists|acl_decisions|tls|dump|group_records|reads_messages|java|questions_admin|our_clients|our_transactions|transactions|security|security_commands|delegation_tokens|logins_of_others|idle_connections)\.py",
}
"""The files of units that share a fixture of the session, by the name of the unit."""

LONGEST = (
    "tests/spark/",
    "tests/kafka/: one JVM",
    "tests/kafka/test_kafka_transaction_chaos.py",
    "tests/kafka/test_kafka_clients.py",
    "tests/kafka/: a broker of each kind",
    "tests/kafka/test_kafka_our_classic_members.py",
    "tests/kafka/test_kafka_client_suites.py",
    "tests/kafka/: the life of a node of Kafka",
    "tests/spark/test_spark_examples.py",
)
"""The units that take longest by the clock, the longest first: each is more than a hundredth of what all of them are."""

WAITING = ("tests/cluster/", "tests/kafka/", "tests/spark/")

BUSY_OF = 4
"""One process of so many begins with units that do not wait."""

TESTS, END = "(tests)", "(end)"
"""Stand for the names of tests where a process does not say which tests it has, but which units (`tests/collecting.py`)."""


def unit_of(nodeid: str) -> str:
    """What is run by the same process as this test: its file, or the unit of `SHARED` that this belongs to."""
    file = nodeid.partition("::")[0]
    if file in SHARE_NOTHING:
        return file
    return next((unit for unit, files in SHARED.items() if re.match(files, file)), file)


def waits(unit: str) -> bool:
    """Whether the tests of a unit mostly wait, for other processes."""
    return unit.startswith(WAITING)


def in_order(nodeids: Iterable[str]) -> list[str]:
    """The units of these tests: those that take longest, then the others as they were collected."""
    return sorted(dict.fromkeys(map(unit_of, nodeids)), key=lambda unit: (*LONGEST, unit).index(unit))


class Scheduler(LoadScopeScheduling):
    """Gives whole units to the processes, in the order of `in_order`; a plugin of the process that people look at."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # the number of tests says little about how long they take
        super().__init__(config, log)
        self._running: dict[str, str] = {}
        self._begun = 0
        self._units_count = 0  # where the processes say units; there is no such share where they say tests
        self._ended = set[str]()

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        begins_waiting = self.nodes.index(node) % BUSY_OF != 0
        found = next((unit for unit in self.workqueue if waits(unit) == begins_waiting), next(iter(self.workqueue)))
        self.workqueue.move_to_end(found, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        """Gives a process the next unit when it has one item left, which it begins with only then."""
        if node.shutting_down or not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
            super()._reschedule(node)

    def schedule(self) -> None:
        if self.collection is None:  # a unit that has a place in the queue keeps it when its tests are put in
            self.workqueue.update({unit: {} for unit in in_order(next(iter(self.registered_collections.values())))})
        super().schedule()
        if self.collection and _stands_for_tests(self.collection[0]):
            self._units_count = len(set(map(unit_of, self.collection)))
        if self.collection is None:  # the processes have collected different tests: nothing is run
            self.workqueue.clear()

    def remove_node(self, node: Any) -> str | None:
        """Returns the test that a process died of; it is not run again, nor what was to follow it in a unit that only its process knew."""
        unfinished = {unit: tests for unit, tests in self.assigned_work[node].items() if not all(tests.values())}
        if not unfinished:
            return super().remove_node(node)
        unit, tests = next(iter(unfinished.items()))
        died_of = next(test for test, is_done in tests.items() if not is_done)
        tests.update(dict.fromkeys(tests if _stands_for_tests(died_of) else (died_of,), True))
        self.assigned_work[node] = {unit: tests for unit, tests in unfinished.items() if not all(tests.values())}
        super().remove_node(node)
        return self._running.get(unit, died_of)

    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        report.longrepr = f"{report.longrepr}: what was to come after it in {unit_of(crashitem)} may not have been run"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[unit_of(nodeid)] = nodeid
        self._begun += 1
        self._tell_progress()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        self._ended.add(unit_of(self.registered_collections[node][item_index]))
        super().mark_test_complete(node, item_index, duration)
        self._tell_progress()

    def _tell_progress(self) -> None:
        """Has the share of units that have ended be shown where pytest shows the share of tests."""
        if self._units_count:
            session: Any = self.config.pluginmanager.get_plugin("session")
            session.testscollected = self._begun * self._units_count // max(1, len(self._ended))


def _stands_for_tests(nodeid: str) -> bool:
    return nodeid.partition("::")[2] in {TESTS, END}
