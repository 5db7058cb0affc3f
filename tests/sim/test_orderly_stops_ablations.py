"""What stopping all nodes in order rests on is taken out: the simulation must notice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from replog.controller.managers.replication import ReplicationControl
from replog.errors import LogTruncatedError
from replog.log import LogDirectory
from replog.metadata.records import PartitionChangeRecord
from replog.replication.leader import Leader
from replog.replication.remote_replicas import RemoteReplicas
from replog.testing.history import AnomaliesFoundError
from tests.sim.orderly_stops_simulation import OrderlyStops

pytestmark = pytest.mark.campaign

ABLATION_SEEDS = 30


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes of a hundred clusters log is kept by pytest otherwise; `--log` of the command shows it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_until_it_shows() -> None:
    for seed in range(ABLATION_SEEDS):
        OrderlyStops(seed).run()


def test_without_the_elr_a_damaged_copy_leaves_nobody() -> None:
    changes_without = ReplicationControl.changes_without

    def leaves(self: ReplicationControl, broker_id: int, **how: Any) -> Iterator[PartitionChangeRecord]:
        return changes_without(self, broker_id, **how | {"leaves_in_order": False})

    with mock.patch.object(ReplicationControl, "changes_without", leaves), pytest.raises(TimeoutError):
        run_until_it_shows()


def test_a_leader_that_commits_without_the_elr_loses_records() -> None:
    counting = RemoteReplicas.counting

    def of_the_isr(self: RemoteReplicas, waited_for: tuple[int, ...], end_offset: int, now_ms: int) -> Iterator[Any]:
        isr = tuple(member for member in waited_for if member not in self._metadata.elr)
        return counting(self, isr, end_offset, now_ms)

    patches = (
        mock.patch.object(RemoteReplicas, "counting", of_the_isr),
        mock.patch.object(Leader, "_maybe_release", return_value=()),
    )
    with patches[0], patches[1], pytest.raises((AnomaliesFoundError, LogTruncatedError)):
        run_until_it_shows()


def test_a_folder_that_is_gone_makes_a_leader_of_nothing_where_its_line_is_dropped() -> None:
    patches = (
        mock.patch("replog.log.directories.log_directory.lost_replicas", return_value=[]),
        mock.patch.object(LogDirectory, "_changed_since_clean_stop", return_value=None),
    )
    with patches[0], patches[1], pytest.raises((AnomaliesFoundError, LogTruncatedError)):
        run_until_it_shows()


def test_a_repaired_copy_leads_where_the_controller_is_not_told() -> None:
    patch = mock.patch.object(LogDirectory, "gave_up", return_value=False)
    with patch, pytest.raises((AnomaliesFoundError, LogTruncatedError)):
        run_until_it_shows()
