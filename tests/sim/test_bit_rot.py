"""What rots in the data simulation is under a checksum, of one replica at a time, and only where nothing can be lost by it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from replog.errors import CorruptRecordError
from replog.metadata.registrations import PartitionRegistration
from replog.records import check_crc, parse_header
from tests.sim.bit_rot import BitRot, DamagedBatch
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.fault_schedule import Fault

SEEDS = 3


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Rotting(DataSimulation):
    """Replicas rot as often as they may, and nothing else happens to them."""

    fixed = {"bit_rot": 1.0, "flush_policy": "always", "min_isr": 2, "faults_s": 3.0}  # noqa: RUF012 -- as the base class says


def test_what_rots_looks_whole_and_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who looks at headers alone sees it; two replicas never have damage at once."""
    damaged: list[DamagedBatch] = []
    damage = BitRot.damage

    def watched(self: BitRot, fault: Fault) -> bool:
        was_on_a_disk, has_rotted = self.is_on_a_disk, damage(self, fault)
        if has_rotted:
            assert not was_on_a_disk
            damaged.append(self.damaged[-1])
        return has_rotted

    monkeypatch.setattr(BitRot, "damage", watched)
    for seed in range(SEEDS):
        Rotting(seed).run()
    assert damaged
    for batch in damaged:
        header = parse_header(batch.content)
        assert (header.size_bytes, header.next_offset) == (len(batch.content), batch.next_offset)
        with pytest.raises(CorruptRecordError, match="checksum"):
            check_crc(batch.content, header)


def may_rot(
    isr: tuple[int, ...], elr: tuple[int, ...] = (), *, wiped: int | None = None, is_unheard: bool = False, **fixed: Any
) -> bool:
    """Whether node 1 may rot; `wiped` has lost its disk, and if `is_unheard` nobody knows it yet."""

    class Fixed(DataSimulation):
        pass

    Fixed.fixed = {**Rotting.fixed, **fixed}
    simulation = Fixed(1)
    simulation.discard()
    metadata = simulation.checker.replication.metadata
    metadata.partition = PartitionRegistration(
        replicas=(1, 2, 3), isr=isr, leader=isr[0], leader_epoch=0, partition_epoch=0, elr=elr
    )
    simulation._wiped = wiped
    if wiped is not None and is_unheard:
        metadata.lost_disks[wiped] = ()
    return simulation.may_rot(1)


def test_another_member_must_have_everything() -> None:
    assert may_rot((1, 2))
    assert may_rot((1,), (2,))
    assert not may_rot((1,))
    assert may_rot((2, 3)), "nobody counts on it"
    assert not may_rot((1, 2), min_isr=1), "it may be the only member before it is read"
    assert not may_rot((1, 2), flush_policy="auto"), "the other one may lose what is not flushed"


def test_a_disk_that_was_lost_must_have_been_filled_again() -> None:
    assert may_rot((1, 2), wiped=2)
    assert not may_rot((1, 2), wiped=3)
    assert not may_rot((1, 2), wiped=2, is_unheard=True)
