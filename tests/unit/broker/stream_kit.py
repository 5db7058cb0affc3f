"""A follower's stream of incremental fetches, asked by hand."""

from __future__ import annotations

from uuid import UUID

from broker_kit import KEY, TOPIC_ID, Rig, batch, registered, topic

from replog.broker.replicas.replica import ReplicaKey
from replog.metadata.records import ConfigRecord, PartitionChangeRecord, ResourceType
from replog.records import scan
from replog.replication.messages import Appended
from replog.rpc.messages import FetchPartition, FetchRequest, FetchResponse, ForgottenPartition

BROKERS = (registered(1), registered(2), registered(3))
WAIT_MS = 500
RATE = 1_000
"""Bytes a second."""

OTHER: ReplicaKey = (UUID(int=101), 0)


class Stream:
    """Broker 2's stream to the leader under test."""

    def __init__(self, it: Rig) -> None:
        self.it = it
        self.answers: list[FetchResponse] = []
        self.merged_count = 0
        self.fetch = it.fetch_path.incremental.open(self.answers.append, self._merged)
        self._last_id = 0

    def _merged(self) -> None:
        self.merged_count += 1

    async def ask(
        self, *positions: FetchPartition, forgotten: tuple[ReplicaKey, ...] = (), max_bytes: int = 1 << 20
    ) -> int:
        self._last_id += 1
        request = FetchRequest(
            self._last_id, 1000, 2, 102, WAIT_MS, 1, max_bytes, positions, incremental=True,
            forgotten=tuple(ForgottenPartition(*key) for key in forgotten),
        )  # fmt: skip
        self.it.fetch_path.submit_incremental(self.fetch, request)
        await self.it.settle()
        return self._last_id

    def take(self) -> FetchResponse:
        (answer,) = self.answers
        self.answers.clear()
        return answer


def at(offset: int, key: ReplicaKey = KEY, *, leader_epoch: int = 0, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(*key, offset, offset, 0, leader_epoch, -1, max_bytes)


def data_of(answer: FetchResponse) -> dict[UUID, list[int]]:
    return {
        result.topic_id: [header.base_offset for header in scan(bytes(batches))]
        for result, batches in zip(answer.results, answer.batches, strict=True)
    }


async def two_topics(it: Rig) -> None:
    await it.apply(*BROKERS, *topic((1, 2)), *topic((1, 2), name="other", topic_id=OTHER[0]))


async def append(it: Rig, key: ReplicaKey, *values: bytes) -> None:
    """Records of the leader itself, so that nothing is committed by it."""
    replica = it.stepper.replicas[key]

    def run() -> None:
        replica.log.append_as_leader(batch(*values), leader_epoch=0, now_ms=1)
        it.stepper.step_leader(replica, Appended(replica.log.log_end_offset))
        it.stepper.fetches.progressed(key)

    await it.stepper.driver.call(run)
    await it.settle()


def throttled(broker: str = "") -> ConfigRecord:
    """What is given to replicas that are being added, at `RATE`."""
    return ConfigRecord(ResourceType.BROKER, broker, "leader.replication.throttled.rate", str(RATE))


def adding(*isr: int) -> PartitionChangeRecord:
    """Brokers 2 and 3 get replicas of the first partition."""
    return PartitionChangeRecord(0, TOPIC_ID, replicas=(1, 2, 3), isr=isr, adding_replicas=(2, 3))
