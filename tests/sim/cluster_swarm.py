"""What one run of a cluster simulation is like: the cluster, which faults it has at all, and how often."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from replog.testing.simulated_network import NetworkConditions

FAULTS_S = 6.0
SEND_INTERVAL_S = 0.02
PATIENT_MS = 120_000
"""The delivery time-out that a producer has by default."""

COMBINED = ((1, 2, 3), (1, 2, 3))
SHAPES = (
    COMBINED,
    COMBINED,
    COMBINED,
    ((1,), (2, 3, 4)),
    ((1, 2, 3), (4, 5, 6)),
    ((1, 2, 3), (2, 3, 4, 5)),
    ((1, 2, 3), (1, 2, 3, 4, 5)),
)
"""(controllers, brokers) of clusters with data."""

AUTO = 0.4
"""Of the clusters with data, those that acknowledge without an fsync."""

ONE_MACHINE: dict[str, Any] = {"flush_policy": "auto", "min_isr": 2, "mains": 0.0, "wipe": 0.0, "bit_rot": 0.0}
"""What replication must protect against then: any process is killed, and one machine, always the same, loses power."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """Sizes and rates; several rates are exactly zero in most runs.

    The last ones, from `client_cut` on, are for clusters with data.

    Attributes:
        faults_s: how long faults happen, in seconds of virtual time.
        send_interval_s: between two records of one producer.
        has_unclean_topic: there is a topic that may lose records to an unclean election.
        has_recreated_topic: there is one that is deleted and created again all the time.
        is_reassigned: the partition is moved to other brokers.
        elect, drain, alter_min_isr, delete_records, cut_pair, cut_metadata, usurp: of the partition that is watched.
        flush_policy: "always", or "auto" as `ONE_MACHINE` says.
        machine: that may lose power then.
        burst_max: so many records are sent at once at most; they share a batch.
        bit_rot: of a replica of that partition.
        directories: log directories of each node, on disks of their own.
        move_replica: that partition's replica moves to another of them.
        directory_error: one of them fails until its node starts again.
        late: of the streams that break, those whose bytes arrive all the same, later.
        delivery_timeout_ms: of the producer: with a short one, batches fail while others go on.
    """

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]
    delay_max_ms: float
    straggler: float
    loss: float
    stream_break: float
    slow_thread: float
    crash: float
    power_cut: float
    cut_in_write: float
    mains: float
    stop: float
    pause: float
    cut: float
    wall_jump: float
    stall: float
    client_pause_s: float
    snapshot_bytes: int
    segment_bytes: int
    changes_voters: bool
    faults_s: float = FAULTS_S
    client_cut: float = 0.0
    disk_error: float = 0.0
    disk_full: float = 0.0
    wipe: float = 0.0
    send_interval_s: float = SEND_INTERVAL_S
    min_isr: int = 2
    has_unclean_topic: bool = False
    has_recreated_topic: bool = False
    is_reassigned: bool = False
    elect: float = 0.0
    drain: float = 0.0
    alter_min_isr: float = 0.0
    delete_records: float = 0.0
    cut_pair: float = 0.0
    cut_metadata: float = 0.0
    usurp: float = 0.0
    flush_policy: str = "always"
    machine: int = 0
    burst_max: int = 1
    bit_rot: float = 0.0
    directories: int = 1
    move_replica: float = 0.0
    directory_error: float = 0.0
    late: float = 0.0
    delivery_timeout_ms: int = PATIENT_MS

    @classmethod
    def draw(cls, rng: random.Random) -> Swarm:
        """For a cluster without data."""
        controllers = rng.choice(((1,), (1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2, 3, 6, 7)))
        return cls(
            controllers=controllers,
            brokers=rng.choice(((), (4,), (4, 5), controllers, (controllers[-1], 4))),
            delay_max_ms=rng.choice((1.0, 3.0, 20.0)),
            straggler=rng.choice((0.0, 0.01, 0.05)),
            loss=rng.choice((0.0, 0.0, 0.05)),
            stream_break=rng.choice((0.0, 0.0, 0.003, 0.02)),
            slow_thread=rng.choice((0.0, 0.0, 0.05, 0.2)),
            crash=rng.choice((0.0, 0.2, 0.6)),
            power_cut=rng.choice((0.0, 0.5, 1.0)),
            cut_in_write=rng.choice((0.0, 0.0, 0.2, 0.5)),
            mains=rng.choice((0.0, 0.0, 0.1)),
            stop=rng.choice((0.0, 0.0, 0.1)),
            pause=rng.choice((0.0, 0.0, 0.2)),
            cut=rng.choice((0.0, 0.3, 0.6)),
            wall_jump=rng.choice((0.0, 0.0, 0.2)),
            stall=rng.choice((0.0, 0.0, 0.1)),
            client_pause_s=rng.choice((0.02, 0.1, 0.3)),
            snapshot_bytes=rng.choice((150, 1_000, 1_000_000)),
            segment_bytes=rng.choice((16_000, 48_000, 1_000_000)),
            changes_voters=len(controllers) > 1 and rng.random() < 0.4,
        )

    @classmethod
    def draw_with_data(cls, rng: random.Random) -> Swarm:
        """For a cluster with data: three replicas of everything."""
        drawn = cls.draw(rng)
        controllers, brokers = rng.choice(SHAPES)
        with_data = replace(
            drawn,
            controllers=controllers,
            brokers=brokers,
            changes_voters=False,
            client_cut=rng.choice((0.0, 0.0, 0.2)),
            disk_error=rng.choice((0.0, 0.0, 0.1)),
            disk_full=rng.choice((0.0, 0.0, 0.1)),
            wipe=rng.choice((0.0, 0.1)),
            min_isr=rng.choice((1, 2, 2)),
            has_unclean_topic=rng.random() < 0.25,
            has_recreated_topic=rng.random() < 0.25,
            is_reassigned=len(brokers) > 3 and rng.random() < 0.7,
            faults_s=rng.choice((FAULTS_S / 3, FAULTS_S / 2, FAULTS_S)),
            send_interval_s=rng.choice((SEND_INTERVAL_S, 0.05, 0.1)),
            elect=rng.choice((0.0, 0.0, 0.15)),
            drain=rng.choice((0.0, 0.0, 0.1)),
            alter_min_isr=rng.choice((0.0, 0.0, 0.15)),
            delete_records=rng.choice((0.0, 0.0, 0.15)),
            cut_pair=rng.choice((0.0, 0.0, 0.1)),
            cut_metadata=rng.choice((0.0, 0.0, 0.15)),
            usurp=rng.choice((0.0, 0.0, 0.0, 0.15)),
            burst_max=rng.choice((1, 3, 10)),
            machine=rng.choice((*controllers, *brokers)),
        )
        is_auto = rng.random() < AUTO
        with_data = replace(with_data, bit_rot=rng.choice((0.0, 0.2, 0.5)))
        directories, *rates = rng.choice((1, 1, 2, 3)), rng.choice((0.2, 0.5)), rng.choice((0.0, 0.1))
        if directories > 1:
            move_replica, directory_error = rates
            with_data = replace(
                with_data, directories=directories, move_replica=move_replica, directory_error=directory_error
            )
        late, delivery_timeout_ms = rng.choice((0.0, 0.0, 0.5)), rng.choice((300, 1_000, PATIENT_MS))
        if late:
            with_data = replace(with_data, late=late, delivery_timeout_ms=delivery_timeout_ms)
        return replace(with_data, **ONE_MACHINE) if is_auto else with_data

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Swarm:
        """What `as_json` gave.

        Raises:
            ValueError: a field is unknown or missing.
        """
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        try:
            return cls(**{**values, **lists})
        except TypeError as error:
            raise ValueError(f"this is no swarm: {error}") from None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def min_isr_values(self) -> tuple[int, ...]:
        """What `min.insync.replicas` may be: where a disk may be lost, or rot, another one must have everything."""
        may_be_alone = self.flush_policy == "always" and not self.wipe and not self.bit_rot
        return (1, 2, 3) if may_be_alone else (2, 3)

    @property
    def frail(self) -> tuple[int, ...] | None:
        """The machines that may lose what was not flushed; None: all."""
        return None if self.flush_policy == "always" else (self.machine,)

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.controllers, *self.brokers}))

    def conditions(self) -> NetworkConditions:
        return NetworkConditions(
            delay_max_ms=self.delay_max_ms,
            straggler=self.straggler,
            loss=self.loss,
            stream_break=self.stream_break,
            late=self.late,
        )
