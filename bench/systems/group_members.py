"""Members of a consumer group of KIP-848 that do nothing but belong to it, in Kafka's protocol: the same at all brokers."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from uuid import UUID

from bench.model import WrongResultError
from bench.systems.kafka.protocol import ProtocolConnection
from replog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

HEARTBEAT_VERSION = 1
LEAVING_EPOCH = -1
NOT_YET = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR: it has been elected just now, and may not have
heard of that itself."""

NOT_YET_S = 0.05
NOT_YET_MAX_S = 20.0
"""After so long the coordinator is another broker, or cannot be read: members here do not look for it again."""
REBALANCE_TIMEOUT_MS = 60_000

Partition = tuple[UUID, int]


class GroupMember:
    """Speaks as often as it is told to, and at once when it has been given other partitions, as Kafka's clients do.

    Args:
        connection: The way to the coordinator; several members may share it.
        group_id: The group.
        topic: The topic that it reads.
        on_change: The function that is called when its partitions have changed.
        pause_min_s: The seconds that it stays silent at least while nothing changes.

    Attributes:
        epoch: The epoch that it has been told last.
        owned: The partitions that it has.
        failure: What ended it, None while it runs.
        asked_at_s: The monotonic time at which it spoke last; None: it has been answered.
    """

    def __init__(
        self,
        connection: ProtocolConnection,
        group_id: str,
        topic: str,
        on_change: Callable[[], None],
        pause_min_s: float = 0.0,
    ) -> None:
        self.epoch = 0
        self.owned: frozenset[Partition] = frozenset()
        self.failure: BaseException | None = None
        self.asked_at_s: float | None = None
        self._connection = connection
        self._group_id = group_id
        self._topic = topic
        self._on_change = on_change
        self._pause_min_s = pause_min_s
        self._refused_since_s: float | None = None
        self._member_id = str(uuid.uuid4())
        self._task = asyncio.ensure_future(self._run())

    async def leave(self) -> None:
        """Says that it goes."""
        await self.vanish()
        self.owned = frozenset()
        await self._beat(LEAVING_EPOCH)
        self._on_change()

    async def vanish(self) -> None:
        """Says nothing more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                pause_s = await self._beat(self.epoch)
                await asyncio.sleep(pause_s)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.failure = error
            self._on_change()
            raise

    async def _beat(self, epoch: int) -> float:
        """Speaks once; returns after how many seconds it is to speak again."""
        says_all = epoch == 0 or self._refused_since_s is not None  # what was refused may have been kept all the same
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if says_all else -1,
            subscribed_topic_names=[self._topic] if says_all else None,
            topic_partitions=None if epoch == LEAVING_EPOCH else _written(self.owned),
        )
        self.asked_at_s = time.monotonic()
        answer = await self._connection.ask(request, HEARTBEAT_VERSION, ConsumerGroupHeartbeatResponse)
        self.asked_at_s = None
        if answer.error_code in NOT_YET and self._may_wait():
            return NOT_YET_S
        if answer.error_code:
            raise WrongResultError(f"a heartbeat was refused with {answer.error_code}: {answer.error_message}")
        self._refused_since_s = None
        self.epoch = answer.member_epoch
        pause_s = float(answer.heartbeat_interval_ms) / 1000
        if epoch == LEAVING_EPOCH or answer.assignment is None:
            return max(pause_s, self._pause_min_s) if self.owned else pause_s
        given = _read(answer.assignment.topic_partitions)
        if given == self.owned:
            return pause_s
        self.owned = given
        self._on_change()
        return 0.0

    def _may_wait(self) -> bool:
        """Whether it has not been told to wait for too long."""
        now_s = asyncio.get_running_loop().time()
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        return now_s - self._refused_since_s < NOT_YET_MAX_S


def _read(topics: Iterable[ConsumerGroupHeartbeatResponse.TopicPartitions]) -> frozenset[Partition]:
    return frozenset((each.topic_id, partition) for each in topics for partition in each.partitions)


def _written(owned: frozenset[Partition]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(owned):
        by_topic.setdefault(topic_id, []).append(partition)
    return [ConsumerGroupHeartbeatRequest.TopicPartitions(*each) for each in by_topic.items()]
