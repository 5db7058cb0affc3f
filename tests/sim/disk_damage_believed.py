"""What no file on a disk contradicts: damage to one file of a stopped cluster that a start may believe (docs/RECOVERY.md).

Each case is a rule that looks at the damage alone, and an example that is believed; `test_disk_damage.py` shows each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replog.records import scan
from tests.sim.disk_damage import Damage
from tests.sim.stopped_cluster import COMPACTED, StoppedCluster

BASE_OFFSET = range(8)
"""Bytes of a batch that are under no checksum."""


@dataclass(frozen=True, slots=True)
class Believed:
    """One case.

    Attributes:
        reason: why nothing tells.
        applies: whether damage is one.
        example: seed and damage.
    """

    reason: str
    applies: Callable[[StoppedCluster, Damage], bool]
    example: tuple[int, str]


def _is_an_offset_of_a_compacted_log(stopped: StoppedCluster, damage: Damage) -> bool:
    is_compacted = any(f"/{topic}-" in damage.path for topic in COMPACTED)
    if damage.kind != "flip" or not is_compacted or not damage.path.endswith(".log"):
        return False
    batches = scan(stopped.disks[damage.node].image()[damage.path])
    return any(damage.numbers[0] - batch.position in BASE_OFFSET for batch in batches)


def _is_a_segment_of_the_same_offsets(stopped: StoppedCluster, damage: Damage) -> bool:
    if damage.other is None or not damage.path.endswith(".log"):
        return False
    node, path = damage.other
    here = list(scan(stopped.disks[damage.node].image()[damage.path]))
    there = list(scan(stopped.disks[node].image()[path]))
    return bool(here and there) and here[-1].next_offset == there[-1].next_offset


BELIEVED = (
    Believed(
        "no checksum covers the base offset of a batch: in a compacted log a higher one leaves a gap, as compaction does",
        _is_an_offset_of_a_compacted_log,
        (703, "flip 2 /data/single-latest-1/00000000000000000029.log 727 3"),
    ),
    Believed(
        "a segment does not say which partition it is of: one of the same offsets fits",
        _is_a_segment_of_the_same_offsets,
        (102, "swap 1 /data/flights-0/00000000000000000011.log 1 /data/flights-1/00000000000000000011.log"),
    ),
)


def why_believed(stopped: StoppedCluster, damage: Damage) -> str | None:
    """Returns why damage may be believed; None: it may not."""
    return next((case.reason for case in BELIEVED if case.applies(stopped, damage)), None)
