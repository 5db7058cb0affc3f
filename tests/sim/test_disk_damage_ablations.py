"""What keeps damage between a stop and a start from being believed is taken out: the simulation must notice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from replog.broker.quorum import metadata_log
from replog.broker.replicas import image_steps
from replog.broker.replicas.disk_trouble import DiskTrouble
from replog.broker.replicas.image_steps import fate_of
from replog.log.recovery import loader, offset_witness
from replog.log.recovery.plausibility import lost_segments
from replog.log.repair.repair import repair_log
from replog.metadata.delta import LocalPartition
from replog.testing.simulated_cluster import LOG_DIRECTORY
from replog.testing.simulated_filesystem import SimulatedFileSystem
from tests.sim.disk_damage import Damage
from tests.sim.disk_damage_simulation import WrongError, check
from tests.sim.stopped_cluster import StoppedCluster, stopped_cluster

pytestmark = pytest.mark.campaign


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def expect_harm(seed: int, damage: str, what: str, patch: Any) -> None:
    stopped = stopped_cluster(seed)
    with patch, pytest.raises(WrongError, match=what):
        check(stopped, Damage.parse(damage))


def test_the_folder_of_a_former_topic_makes_way_for_one_that_the_node_knew() -> None:
    def of_a_later_one(*args: Any, **told: Any) -> object:
        return fate_of(*args, **told | {"is_later": True})

    patch = mock.patch.object(image_steps, "fate_of", of_a_later_one)
    expect_harm(4, "folder-older 2 /data/again-0/ 0", "acknowledged records are missing", patch)


def test_a_voter_whose_last_epoch_is_damaged_is_taken_at_its_word() -> None:
    patch = mock.patch.object(metadata_log, "require_epoch_after")
    expect_harm(1, "flip 2 /data/__cluster_metadata-0/00000000000000000081.log 439 2", "does not settle", patch)


def test_log_starts_that_are_gone_show_what_was_deleted() -> None:
    patch = mock.patch.object(offset_witness, "_instead", return_value={})
    expect_harm(1, "missing 1 /data/log-start-offset-checkpoint", "it begins at 0 instead of 9", patch)


def test_a_segment_that_is_gone_is_taken_for_one_that_was_being_deleted() -> None:
    def without_indexes(names: list[str], log_start_offset: int, *, was_clean: bool) -> list[int]:
        assert was_clean in {False, True}
        kept = [name for name in names if not name.endswith("index.deleted")]
        return lost_segments(kept, log_start_offset, was_clean=False)

    patch = mock.patch.object(loader, "lost_segments", without_indexes)
    expect_harm(102, "missing 1 /data/single-latest-0/00000000000000000000.log", "it begins at 20 instead of 0", patch)


def test_what_a_repair_has_left_follows_with_its_hole() -> None:
    def forgets(self: DiskTrouble, local: LocalPartition) -> None:
        self._logs.forget_given_up(local.topic_name, local.partition_id)

    def damaged_and_repaired(self: Damage, stopped: StoppedCluster, disks: dict[int, SimulatedFileSystem]) -> None:
        apply(self, stopped, disks)
        assert repair_log(disks[self.node], f"{LOG_DIRECTORY}/again-0", accept_loss=True, now_ms=0).offsets_given_up

    apply = Damage.apply
    patch = mock.patch.object(DiskTrouble, "_settle_repaired", forgets)
    with mock.patch.object(Damage, "apply", damaged_and_repaired):
        expect_harm(4, "missing 3 /data/again-0/00000000000000000010.log", "acknowledged records are missing", patch)
