"""Clusters that are stopped in order lose nothing, and do not hang on one copy; what that rests on shows when it is taken out."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from unittest import mock

import pytest

from replog.controller import replication_control
from replog.controller.partition_change import ElectionRules
from replog.errors import LogTruncatedError
from replog.metadata.registrations import PartitionRegistration
from replog.replication.remote_replicas import RemoteReplicas
from replog.testing.history import AnomaliesFoundError
from tests.sim.orderly_stops_simulation import OrderlyStops

SEEDS = int(os.environ.get("REPLOG_ORDERLY_STOPS_SEEDS", "8"))
ABLATION_SEEDS = 30


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    gc.collect()  # what a run that fails leaves behind is told of in its own test, which expects it


def run_until_it_shows() -> None:
    for seed in range(ABLATION_SEEDS):
        OrderlyStops(seed).run()


def test_all_nodes_stop_in_order_and_start_again() -> None:
    for seed in range(SEEDS):
        OrderlyStops(seed).run()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # clients cut off in their `finally`
def test_without_members_that_stay_a_damaged_copy_leaves_nobody() -> None:
    def leaves(
        partition: PartitionRegistration, broker_id: int, _rules: ElectionRules, *, may_stay: bool
    ) -> tuple[int, ...]:
        del may_stay
        return tuple(member for member in partition.isr if member != broker_id)

    with mock.patch.object(replication_control, "isr_without", leaves), pytest.raises(TimeoutError):
        run_until_it_shows()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # clients cut off in their `finally`
def test_a_leader_that_commits_without_who_is_away_loses_records() -> None:
    """A member of the ISR that is away counts for the high watermark until the controller has taken it out."""
    counting = RemoteReplicas.counting

    def without_the_away(self: RemoteReplicas, isr: tuple[int, ...], end_offset: int, now_ms: int) -> Iterator[object]:
        away = self.away(isr)
        return (replica for replica in counting(self, isr, end_offset, now_ms) if replica.replica_id not in away)

    patches = (
        mock.patch.object(RemoteReplicas, "counting", without_the_away),
        mock.patch("replog.replication.leader.Leader._maybe_go_on_without", return_value=()),
    )
    with patches[0], patches[1], pytest.raises((AnomaliesFoundError, LogTruncatedError)):
        run_until_it_shows()
