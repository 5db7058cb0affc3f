"""Deleting records from the front of a partition: the leader moves its log start, and waits until all live replicas have.

Runs on the replica driver.  Followers hear of the new start with their next answer and tell theirs with the fetch after
it; the low watermark is the lowest of them (docs/KAFKA.md 4.8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.replicas.topic_settings import TopicSettings
from replog.broker.requests.fetch_reader import FetchReader
from replog.broker.requests.refusals import Refusal, refused
from replog.errors import ErrorCode, StorageError, ThrottledError
from replog.metadata.config_keys import CleanupPolicy
from replog.metadata.topic_names import INTERNAL_TOPICS
from replog.replication.leader import Leader
from replog.rpc.messages import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsResult

MAX_WAITING_DELETIONS = 10_000
BEGUN_TOGETHER = 200
"""Deletions that are begun in one step of the driver, before others have their turn."""

TO_HIGH_WATERMARK = -1


class _Waiting:
    """One partition's deletion on its way to the replicas."""

    __slots__ = ("done", "offset", "partition")

    def __init__(self, partition: DeleteRecordsPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.done: asyncio.Future[DeleteRecordsResult] = asyncio.get_running_loop().create_future()


class RecordDeletions:
    """DeleteRecords requests of this broker.

    Args:
        stepper: The stepper of this broker's replicas.
        reader: The reader, which knows the partitions that are led here, and the refusals of the others.
    """

    def __init__(self, stepper: ReplicaStepper, reader: FetchReader) -> None:
        self._stepper = stepper
        self._reader = reader
        self._waiting: dict[ReplicaKey, dict[_Waiting, None]] = {}
        self._count = 0
        stepper.deletions = self

    def __len__(self) -> int:
        return self._count

    async def delete(self, request: DeleteRecordsRequest, *, timeout_ms: int) -> DeleteRecordsResponse:
        """Moves log starts and waits for the replicas; each partition has its own result.

        Args:
            request: The partitions, and where their logs shall start.
            timeout_ms: The time to wait for the replicas, in milliseconds; the deletion goes on after it.

        Raises:
            ThrottledError: Too many deletions wait already.
        """
        asked = request.partitions
        if self._count + len(asked) > MAX_WAITING_DELETIONS:
            raise ThrottledError(f"{self._count} deletions of records wait already; try again later")
        self._count += len(asked)
        begun: list[DeleteRecordsResult | _Waiting] = []
        try:
            for first in range(0, len(asked), BEGUN_TOGETHER):
                some = asked[first : first + BEGUN_TOGETHER]
                await self._stepper.driver.call(partial(self._begin_some, some, begun))
            pending = [one.done for one in begun if isinstance(one, _Waiting)]
            if pending:
                await asyncio.wait(pending, timeout=timeout_ms / 1000)
        finally:  # behind the submitted work, even if this call was cancelled meanwhile
            self._stepper.driver.submit(lambda: self._forget(begun, len(asked)))
        return DeleteRecordsResponse(tuple(map(_result_now, begun)))

    def _begin_some(
        self, partitions: Sequence[DeleteRecordsPartition], begun: list[DeleteRecordsResult | _Waiting]
    ) -> None:
        some = [self._begin(partition) for partition in partitions]
        begun += some
        for key in {(one.partition.topic_id, one.partition.partition_id) for one in some if isinstance(one, _Waiting)}:
            self.check(key)

    def _begin(self, partition: DeleteRecordsPartition) -> DeleteRecordsResult | _Waiting:
        topic = self._stepper.image.topics_by_id.get(partition.topic_id)
        if topic is not None and topic.name in INTERNAL_TOPICS:
            text = f"records of {topic.name} are not deleted: its coordinators live on them. Delete groups or offsets, or let transactional ids expire"
            return refused(DeleteRecordsResult, partition, Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, text))
        led = self._reader.leader_for(partition)
        if isinstance(led, Refusal):
            return refused(DeleteRecordsResult, partition, led)
        replica, _ = led
        offset = partition.offset if partition.offset != TO_HIGH_WATERMARK else replica.high_watermark
        refusal = self._refusal(replica, offset)
        if refusal is not None:
            return refused(DeleteRecordsResult, partition, refusal)
        try:
            if offset > replica.log.log_start_offset:
                replica.log.set_log_start_offset(offset)
                self._stepper.log_start_moved(replica)
        except StorageError as failure:
            self._stepper.trouble.storage_failed(replica, failure)
            return refused(DeleteRecordsResult, partition, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, failure.told))
        waiting = _Waiting(partition, offset)
        self._waiting.setdefault(replica.key, {})[waiting] = None
        return waiting

    def _refusal(self, replica: Replica, offset: int) -> Refusal | None:
        settings = TopicSettings(replica.topic, self._stepper.image, self._stepper.config)
        if CleanupPolicy.DELETE not in settings.cleanup_policy:
            return Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"records of {replica.topic} are not deleted, its cleanup.policy is compact",
            )
        if not 0 <= offset <= replica.high_watermark:
            return Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{replica.name}: cannot delete below {offset}, the high watermark is {replica.high_watermark}",
            )
        return None

    def check(self, key: ReplicaKey) -> None:
        """Looks at the deletions of a partition again: a replica has told its log start, or leadership has gone."""
        waiting = self._waiting.get(key)
        if not waiting:
            return
        replica = self._stepper.replicas.get(key)
        for one in waiting:
            if one.done.done():
                continue
            if replica is None or not isinstance(replica.role, Leader):
                refusal = self._reader.not_leader(one.partition)
                one.done.set_result(refused(DeleteRecordsResult, one.partition, refusal))
                continue
            low_watermark = replica.role.low_watermark(replica.log.log_start_offset)
            if low_watermark >= one.offset:
                one.done.set_result(
                    DeleteRecordsResult(
                        one.partition.topic_id,
                        one.partition.partition_id,
                        ErrorCode.NONE,
                        low_watermark,
                        replica.role.leader_epoch,
                        self._stepper.config.node_id,
                    )
                )

    def _forget(self, begun: list[DeleteRecordsResult | _Waiting], count: int) -> None:
        self._count -= count
        for one in begun:
            if isinstance(one, _Waiting):
                key = (one.partition.topic_id, one.partition.partition_id)
                del self._waiting[key][one]
                if not self._waiting[key]:
                    del self._waiting[key]


def _result_now(one: DeleteRecordsResult | _Waiting) -> DeleteRecordsResult:
    if isinstance(one, DeleteRecordsResult):
        return one
    if one.done.done():
        return one.done.result()
    text = "the log start has moved, but not all replicas have told theirs in time; they follow"
    return refused(DeleteRecordsResult, one.partition, Refusal(ErrorCode.REQUEST_TIMED_OUT, text))
