"""Which tests run in one process, and in which order the processes get them (`pytest -n`).

A file is run by one process: what its tests share is started once.  Kafka and the Spark session take seconds to start, so
that their folders are run by one process each.  Files come in the order in which they are collected: clusters, which mostly
wait, then campaigns, and at the end the many short files of tests/unit, so that no process is left with a long one.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARE_ONE_FIXTURE = ("tests/kafka/", "tests/spark/")


def unit_of(nodeid: str) -> str:
    """What is run by the same process as this test: its file, or its folder."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in SHARE_ONE_FIXTURE if file.startswith(folder)), file)


class Scheduler(LoadScopeScheduling):
    """Gives whole units to the processes, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # the number of tests says little about how long they take
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
