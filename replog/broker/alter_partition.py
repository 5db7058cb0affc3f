"""Sends ISR proposals to the controller: all that wait in one request, one request at a time (kafka-reference 4.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from replog.broker.controller_channel import ControllerChannel
from replog.broker.replica import ReplicaKey
from replog.broker.tasks import watched_task
from replog.controller.messages import (
    AlterPartition,
    AlterPartitionResponse,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
)
from replog.errors import ErrorCode, ReplogError
from replog.replication.messages import ProposeIsr
from replog.rpc.error_codes import error_code_of
from replog.rpc.task_ends import end_tasks

REQUEST_TIMEOUT_MS = 10_000


class AlterPartitionSender:
    """Collects proposals and reports the controller's answer to each.

    Args:
        broker_epoch: of the current registration.
        on_answer: called on the loop once per proposal sent, with its id.
        on_failure: told about a bug; the node stops.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        on_answer: Callable[[ReplicaKey, int, PartitionIsrResult], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._waiting: dict[ReplicaKey, ProposeIsr] = {}
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = watched_task(self._run(), name="alter-partition", on_failure=self._on_failure)

    async def stop(self) -> None:
        await end_tasks(self._task)

    def propose(self, key: ReplicaKey, proposal: ProposeIsr) -> None:
        """Queues a proposal; a newer one for the same partition replaces one that has not been sent."""
        self._waiting[key] = proposal
        self._wakeup.set()

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            batch, self._waiting = self._waiting, {}
            for result in await self._send(batch):
                key = (result.topic_id, result.partition_id)
                self._on_answer(key, batch[key].proposal_id, result)

    async def _send(self, batch: dict[ReplicaKey, ProposeIsr]) -> list[PartitionIsrResult]:
        request = AlterPartition(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            partitions=tuple(_change(key, proposal) for key, proposal in batch.items()),
        )
        answered: dict[ReplicaKey, PartitionIsrResult] = {}
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            response = await self._channel.send(request, AlterPartitionResponse, timeout_ms=REQUEST_TIMEOUT_MS)
            answered = {(result.topic_id, result.partition_id): result for result in response.partitions}
        except ReplogError as failure:
            error = error_code_of(failure)
        return [answered.get(key) or PartitionIsrResult(*key, error=error) for key in batch]


def _change(key: ReplicaKey, proposal: ProposeIsr) -> PartitionIsrChange:
    topic_id, partition_id = key
    return PartitionIsrChange(
        topic_id=topic_id,
        partition_id=partition_id,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        new_isr=tuple(IsrMember(broker_id, broker_epoch) for broker_id, broker_epoch in proposal.isr),
    )
