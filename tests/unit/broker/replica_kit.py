"""What a replica is told: by the metadata, who leads; by a leader, what there is."""

from __future__ import annotations

from broker_kit import TOPIC_ID, Rig, registered

from replog.errors import ErrorCode
from replog.metadata.records import PartitionChangeRecord
from replog.records import encode_batch
from replog.replication.follower import Follower
from replog.replication.messages import FetchAnswered

BROKERS = (registered(1), registered(2), registered(3))


def stored(base_offset: int, *, epoch: int = 0, count: int = 1) -> bytes:
    """As a leader stored it."""
    return encode_batch([(1, None, b"v", ())] * count, base_offset=base_offset, partition_leader_epoch=epoch)


def answer(it: Rig, data: bytes, *, high_watermark: int = 0, leader_end_offset: int = 10) -> None:
    """The leader's answer to what the follower asks now."""
    role = it.replica.role
    assert isinstance(role, Follower)
    position = role.fetch_position(it.clock.now_ms())
    assert position is not None
    it.stepper.step_follower(
        it.replica,
        FetchAnswered(
            position.fetch_offset,
            position.leader_epoch,
            ErrorCode.NONE,
            high_watermark,
            0,
            leader_end_offset,
            len(data),
        ),
        data,
    )


async def on_driver(it: Rig, data: bytes, **known: int) -> None:
    await it.stepper.driver.call(lambda: answer(it, data, **known))


async def lead(it: Rig) -> None:
    await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))


async def follow(it: Rig) -> None:
    await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
