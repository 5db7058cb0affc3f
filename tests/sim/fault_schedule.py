"""The faults of one run as data: drawn from the seed before it begins, kept in a file, taken out one by one.

A fault says when it happens, where, and for how long; what it began ends by itself, so that any part of a schedule is a
schedule.  One that finds nothing to do, such as a kill of a node that is down, does nothing.

A new kind of fault: a member of `FaultKind`; a line in `Fault` on how it uses the fields; a method of `FaultDrawer` that draws
it, after all others, so that the other faults of a seed stay the same; its rate in `cluster_swarm.Swarm`; a branch in
`fault_performer`, or in `administrator` and `ADMINISTERED` for what clients ask for.  Every run of the suite must see it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from replog.testing.simulated_faults import Operation
from tests.sim.cluster_swarm import Swarm

INTERVAL_S = (0.02, 0.5)
DISK_OPERATIONS = (
    Operation.SYNC,
    Operation.SYNC,
    Operation.WRITE,
    Operation.READ,
    Operation.RENAME,
    Operation.SYNC_DIR,
)
CLIENTS = ("producer", "consumer")

LEADER, FOLLOWER = -1, -2
"""Instead of a node: who leads the partition that is watched when the fault happens, or the last member of its ISR that
does not."""


class FaultKind(StrEnum):
    """What goes wrong; `Fault` says how each uses its fields."""

    KILL = "kill"
    POWER_CUT = "power cut"
    CUT_IN_WRITE = "power cut in a write"
    MAINS = "power cut of everything"
    PAUSE = "pause"
    STOP = "orderly stop"
    CUT = "cut"
    CUT_PAIR = "cut pair"
    CUT_METADATA = "cut off from metadata"
    CLIENT_CUT = "client cut off"
    WALL_JUMP = "wall clock jump"
    STALL = "clock stall"
    DISK_ERROR = "disk error"
    DISK_FULL = "full disk"
    WIPE = "wiped disk"
    ELECT = "preferred election"
    DRAIN = "drained broker"
    MIN_ISR = "min.insync.replicas altered"
    DELETE_RECORDS = "records deleted"
    BIT_ROT = "bit rot"
    MOVE_REPLICA = "replica moved to another directory"
    DIRECTORY_ERROR = "failed directory"


KILLED, STOPPED, REPLACED = "killed", "stopped", "replaced"
"""How a process ends whose directory has failed, before it starts with one that works; the last with an empty one."""

OF_THE_REPLICA = -1
"""Instead of a directory: where the replica of the partition that is watched is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at_ms: after the faults begin.
        kind: what happens.
        node: to which node, or who is to lead; 0: to all; `LEADER`, `FOLLOWER`.
        for_ms: until what it began ends: the node starts again, wakes up, the links are mended, there is room, the broker
            may be used, somebody reads what rots, the directory works.
        amount: changing operations until the cut, operations until the error, milliseconds of a clock, bytes of room, the
            other node of a pair, a minimum of replicas, hundredths of what is committed, which bits rot, which directory,
            from 0, or `OF_THE_REPLICA`.
        detail: a cut: "in", "out" or "both"; a client: its name; a disk error: the operation; a failed directory: `KILLED`,
            `STOPPED` or `REPLACED`.
    """

    at_ms: int
    kind: FaultKind
    node: int = 0
    for_ms: int = 0
    amount: int = 0
    detail: str = ""

    def __str__(self) -> str:
        where = {0: "", LEADER: " the leader", FOLLOWER: " a follower"}.get(self.node, f" node {self.node}")
        facts = [f"{name} {value}" for name in ("detail", "amount", "for_ms") if (value := getattr(self, name))]
        return f"{self.kind}{where}{': ' if facts else ''}{', '.join(facts)}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Fault:
        """What `as_json` gave.

        Raises:
            ValueError: a field or a kind is unknown.
        """
        try:
            return cls(**{**values, "kind": FaultKind(values["kind"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"this is no fault: {dict(values)}: {error}") from None


class FaultDrawer:
    """Draws schedules.

    Args:
        rng: seeded; nobody else uses it.
        swarm: how often what happens; `for_node` may see it otherwise.
    """

    def __init__(self, rng: random.Random, swarm: Swarm) -> None:
        self._rng = rng
        self._swarm = swarm

    def draw(self, frail: Sequence[int] | None = None) -> tuple[Fault, ...]:
        """One schedule, in order of time.

        Args:
            frail: the machines that may lose what was not flushed: their power, or a write; None: all.
        """
        rng, swarm = self._rng, self._swarm
        faults: list[Fault] = []
        at_s = rng.uniform(*INTERVAL_S)
        while at_s < swarm.faults_s:
            node, at_ms = rng.choice(swarm.nodes), int(at_s * 1000)
            faults += self._of_process(at_ms, node, is_frail=frail is None or node in frail)
            faults += self._around(at_ms, node)
            faults += self._of_partition(at_ms)
            at_s += rng.uniform(*INTERVAL_S)
        faults += self._bit_rot()
        faults += self._of_directories(swarm.brokers if frail is None else [b for b in swarm.brokers if b in frail])
        return tuple(sorted(faults, key=lambda fault: fault.at_ms))

    def _of_process(self, at_ms: int, node: int, *, is_frail: bool) -> list[Fault]:
        """At most one that ends or stops a process."""
        rng, swarm = self._rng, self._swarm
        down_ms = rng.randrange(20, rng.choice((400, 1_000, 2_500)))
        if self._chance(swarm.crash):
            is_cut = self._chance(swarm.power_cut) and is_frail
            return [Fault(at_ms, FaultKind.POWER_CUT if is_cut else FaultKind.KILL, node, down_ms)]
        if self._chance(swarm.cut_in_write) and is_frail:
            return [Fault(at_ms, FaultKind.CUT_IN_WRITE, node, down_ms, amount=rng.randrange(12))]
        if self._chance(swarm.mains):
            return [Fault(at_ms, FaultKind.MAINS, for_ms=down_ms)]
        if self._chance(swarm.pause):
            return [Fault(at_ms, FaultKind.PAUSE, node, rng.randrange(50, 2_000))]
        if self._chance(swarm.stop):
            return [Fault(at_ms, FaultKind.STOP, node, down_ms)]
        if self._chance(swarm.disk_error) and is_frail:
            operation = rng.choice(DISK_OPERATIONS).value
            return [Fault(at_ms, FaultKind.DISK_ERROR, node, down_ms, rng.randrange(1, 12), operation)]
        if self._chance(swarm.disk_full):
            return [Fault(at_ms, FaultKind.DISK_FULL, node, down_ms, rng.choice((0, 100, 2_000)))]
        if self._chance(swarm.wipe) and node not in swarm.controllers:
            return [Fault(at_ms, FaultKind.WIPE, node, down_ms)]
        return []

    def _around(self, at_ms: int, node: int) -> list[Fault]:
        """What does not end a process: links and clocks."""
        rng, swarm = self._rng, self._swarm
        faults = []
        if self._chance(swarm.cut):
            direction = ("both", "out", "in")[rng.randrange(3)]
            faults.append(Fault(at_ms, FaultKind.CUT, node, rng.randrange(100, 2_000), detail=direction))
        if self._chance(swarm.client_cut):
            faults.append(
                Fault(at_ms, FaultKind.CLIENT_CUT, node, rng.randrange(100, 2_000), detail=rng.choice(CLIENTS))
            )
        if self._chance(swarm.wall_jump):
            faults.append(Fault(at_ms, FaultKind.WALL_JUMP, node, amount=rng.choice((-100_000, 100_000))))
        if self._chance(swarm.stall):
            faults.append(Fault(at_ms, FaultKind.STALL, node, amount=rng.randrange(50, 1_500)))
        return faults

    def _of_partition(self, at_ms: int) -> list[Fault]:
        """What an administrator does to the partition, and who does not hear of it."""
        rng, swarm = self._rng, self._swarm
        faults = []
        if self._chance(swarm.elect):
            faults.append(Fault(at_ms, FaultKind.ELECT, rng.choice((FOLLOWER, *swarm.brokers))))
        if self._chance(swarm.drain):
            node = rng.choice((LEADER, *swarm.brokers))
            faults.append(Fault(at_ms, FaultKind.DRAIN, node, rng.randrange(200, 2_000)))
        if self._chance(swarm.alter_min_isr):
            faults.append(Fault(at_ms, FaultKind.MIN_ISR, amount=rng.choice(swarm.min_isr_values)))
        if self._chance(swarm.delete_records):
            faults.append(Fault(at_ms, FaultKind.DELETE_RECORDS, amount=rng.randrange(1, 101)))
        if self._chance(swarm.cut_pair):
            ends = rng.choice(((LEADER, FOLLOWER), tuple(rng.sample(swarm.brokers, 2))))
            faults.append(Fault(at_ms, FaultKind.CUT_PAIR, ends[0], rng.randrange(100, 2_500), ends[1]))
        if self._chance(swarm.cut_metadata):
            faults.append(Fault(at_ms, FaultKind.CUT_METADATA, LEADER, rng.randrange(200, 2_900)))
        if self._chance(swarm.usurp):
            faults += self._usurp(at_ms)
        return faults

    def _bit_rot(self) -> list[Fault]:
        """Drawn last: the other faults are the same without it."""
        rng, swarm = self._rng, self._swarm
        faults = []
        at_s = rng.uniform(*INTERVAL_S)
        while at_s < swarm.faults_s and swarm.bit_rot:
            if self._chance(swarm.bit_rot):
                node = rng.choice((LEADER, FOLLOWER, *swarm.brokers))
                read_ms, bits = rng.randrange(1, 2_000), rng.randrange(1, 1 << 20)
                faults.append(Fault(int(at_s * 1000), FaultKind.BIT_ROT, node, read_ms, bits))
            at_s += rng.uniform(*INTERVAL_S)
        return faults

    def _of_directories(self, frail: Sequence[int]) -> list[Fault]:
        """Drawn last, as `_bit_rot`.  What was not flushed is lost with a directory that fails."""
        rng, swarm = self._rng, self._swarm
        faults = []
        at_s = rng.uniform(*INTERVAL_S)
        while at_s < swarm.faults_s and swarm.directories > 1:
            at_ms = int(at_s * 1000)
            if self._chance(swarm.move_replica):
                node = rng.choice((LEADER, FOLLOWER, *swarm.brokers))
                faults.append(Fault(at_ms, FaultKind.MOVE_REPLICA, node, amount=rng.randrange(swarm.directories)))
            if self._chance(swarm.directory_error) and frail:
                directory = rng.choice((OF_THE_REPLICA, *range(swarm.directories)))
                ends = rng.choice((KILLED, STOPPED, *((REPLACED,) if swarm.wipe else ())))
                down_ms = rng.randrange(50, 2_500)
                faults.append(
                    Fault(at_ms, FaultKind.DIRECTORY_ERROR, rng.choice(frail), down_ms, directory, detail=ends)
                )
            at_s += rng.uniform(*INTERVAL_S)
        return faults

    def _usurp(self, at_ms: int) -> list[Fault]:
        """Another leader for a moment, of which the one before and after it hears too late."""
        rng = self._rng
        elected_ms = at_ms + rng.randrange(10, 300)
        return [
            Fault(at_ms, FaultKind.CUT_PAIR, LEADER, rng.randrange(200, 1_400), FOLLOWER),
            Fault(at_ms + 1, FaultKind.CUT_METADATA, LEADER, rng.randrange(500, 2_500)),
            Fault(elected_ms, FaultKind.ELECT, FOLLOWER),
            Fault(elected_ms + rng.randrange(50, 500), FaultKind.KILL, LEADER, rng.randrange(200, 2_000)),
        ]

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability
