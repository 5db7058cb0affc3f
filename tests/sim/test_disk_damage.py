"""One file of a stopped cluster is damaged: what is served is right, or who does not serve names the file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache

import pytest

from replog.log.repair.repair import repair_log
from replog.testing.simulated_cluster import LOG_DIRECTORY
from replog.testing.simulated_filesystem import SimulatedFileSystem
from tests.sim import disk_damage_simulation
from tests.sim.disk_damage import Damage
from tests.sim.disk_damage_believed import BELIEVED, Believed
from tests.sim.disk_damage_simulation import DamagedStart, WrongError, check, run_seeds
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.stopped_cluster import StoppedCluster, stopped_cluster

stopped = cache(stopped_cluster)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("seed", "damage"),
    [
        (
            1,
            "flip 3 /data/flights-0/partition.metadata 30 0",
        ),  # led from offset 0, and the others followed it to nothing
        (1, "foreign 2 /data/single-latest-1/partition.metadata 2 /data/__cluster_metadata-0/partition.metadata"),
        (1, "flip 2 /data/meta.properties 90 3"),
        (1, "missing 1 /data/recovery-point-offset-checkpoint"),
        (1, "older 1 /data/__cluster_metadata-0/quorum-state 0"),
        (1, "flip 3 /data/single-2/00000000000000000022.log 40 2"),
        (1, "folder-swap 2 /data/flights-0/ 2 /data/latest-0/"),
        (
            4,
            "older 2 /data/again-0/partition.metadata 0",
        ),  # of the former topic: deleted, and the others followed it to nothing
        (4, "folder-older 2 /data/again-0/ 0"),
    ],
)
def test_what_one_damaged_file_leaves(seed: int, damage: str) -> None:
    assert not any(name.startswith("believed") for name in check(stopped(seed), Damage.parse(damage)))


def test_what_a_repair_leaves_with_a_hole_is_fetched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It followed, lacked nothing at its end, and led: acknowledged records were gone that the others had."""
    apply = Damage.apply

    def apply_and_repair(self: Damage, stopped: StoppedCluster, disks: dict[int, SimulatedFileSystem]) -> None:
        apply(self, stopped, disks)
        assert repair_log(disks[self.node], f"{LOG_DIRECTORY}/again-0", accept_loss=True, now_ms=0).offsets_given_up

    monkeypatch.setattr(Damage, "apply", apply_and_repair)
    check(stopped(4), Damage.parse("missing 3 /data/again-0/00000000000000000010.log"))
    check(stopped(4), Damage.parse("missing 1 /data/again-0/00000000000000000010.log"))


def test_for_fresh_seeds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_damage_simulation, "DAMAGES_A_SEED", 2)
    with fresh_seeds("disk_damage_simulation", 2) as seeds:
        run_seeds(seeds)


@pytest.mark.parametrize("case", BELIEVED, ids=lambda case: case.reason)
def test_what_is_believed_is_so(case: Believed) -> None:
    """Else its line is left over."""
    seed, text = case.example
    cluster: StoppedCluster = stopped(seed)
    damage = Damage.parse(text)
    assert case.applies(cluster, damage)
    with pytest.raises(WrongError):
        DamagedStart(cluster, damage).run()
