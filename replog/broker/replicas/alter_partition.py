"""Sends ISR proposals to the controller: all that wait in one request, one request at a time (docs/KAFKA.md 4.4).

A leader whose proposal is refused may propose again at once, and so may the leaders of all other partitions.  A controller that
refuses everything must not be kept busy with that.  So the pause before the next request doubles with every request of
which nothing was accepted.  Proposals that come in the pause share the next request.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from replog.broker.controller.channel import ControllerChannel
from replog.broker.replicas.replica import ReplicaKey
from replog.broker.tasks import watched_task
from replog.controller.requests import (
    AlterPartition,
    AlterPartitionResponse,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
)
from replog.errors import ErrorCode, ReplogError
from replog.errors.from_code import error_code_of
from replog.replication.messages import ProposeIsr
from replog.waiting.task_ends import end_tasks

REQUEST_TIMEOUT_MS = 10_000

PROPOSALS_TOGETHER = 1_000
"""The most proposals of one request: it is one step of the controller, which has other brokers to answer."""

FIRST_PAUSE_MS = 10
LONGEST_PAUSE_MS = 1_000
"""The longest pause after requests of which nothing was accepted; a later good proposal is late by so much at most."""


class AlterPartitionSender:
    """Collects proposals and reports the controller's answer to each.

    Args:
        broker_epoch: Returns the broker epoch of the current registration.
        on_answer: Called on the loop once per proposal sent, with its id.
        on_failure: Told about a bug; the node stops.
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
        self._pause_ms = 0
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
            batch = self._take()
            results = await self._send(batch)
            for result in results:
                key = (result.topic_id, result.partition_id)
                self._on_answer(key, batch[key].proposal_id, result)
            if any(result.error is ErrorCode.NONE for result in results):
                self._pause_ms = 0
            else:
                self._pause_ms = min(max(FIRST_PAUSE_MS, 2 * self._pause_ms), LONGEST_PAUSE_MS)
                await asyncio.sleep(self._pause_ms / 1000)

    def _take(self) -> dict[ReplicaKey, ProposeIsr]:
        """Takes as many of the waiting proposals as one request may carry, the oldest first."""
        keys = list(itertools.islice(self._waiting, PROPOSALS_TOGETHER))
        if len(keys) < len(self._waiting):
            self._wakeup.set()
        return {key: self._waiting.pop(key) for key in keys}

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
