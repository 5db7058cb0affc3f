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
    "tests/kafka/test_kafka_full_groups_alike.py",
    "tests/kafka/test_kafka_rights_alike.py",
)
"""Files that fit a pattern of SHARED, and whose tests start what they need: minutes that another process can use."""

SHARED: Mapping[str, str] = {
    "tests/spark/": r"tests/spark/",
    "tests/kafka/: a broker of each kind": r"tests/kafka/test_kafka_(\w+_(alike|conversions)|questions_groups|console|our_transaction_operations)\.py",
    "tests/kafka/: the life of a node of Kafka": r"tests/kafka/test_kafka_(wrote_it|serves_ours|group_folder)\.py",
    "tests/kafka/: one JVM": r"tests/kafka/test_kafka_(tools|access_lists|acl_decisions|tls|dump|group_records|reads_messages|java|questions_admin|our_clients|our_transactions|transactions|security|security_commands|logins_of_others)\.py",
}
"""The files of units that share a fixture of the session, by the name of the unit."""

LONGEST = ("tests/spark/", "tests/kafka/: a broker of each kind", "tests/kafka/test_kafka_clients.py", *SHARE_NOTHING)


WAITING = ("tests/cluster/", "tests/kafka/", "tests/spark/")

BUSY_OF = 4
"""One process of so many begins with units that do not wait."""


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
    """Gives whole units to the processes, in the order of `in_order`."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # the number of tests says little about how long they take
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        begins_waiting = self.nodes.index(node) % BUSY_OF != 0
        found = next((unit for unit in self.workqueue if waits(unit) == begins_waiting), next(iter(self.workqueue)))
        self.workqueue.move_to_end(found, last=False)
        super()._assign_work_unit(node)

    def schedule(self) -> None:
        if self.collection is None:  # a unit that has a place in the queue keeps it when its tests are put in
            self.workqueue.update({unit: {} for unit in in_order(next(iter(self.registered_collections.values())))})
        super().schedule()
        if self.collection is None:  # the processes have collected different tests: nothing is run
            self.workqueue.clear()
