"""Producer ids for an idempotent producer, asked of the cluster when the first batch needs one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from replog.client.backoff import Backoff
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS, ClusterView
from replog.client.producer.batch import ProducerIdentity
from replog.client.producer.partition_queue import PartitionQueue
from replog.errors import AuthenticationError, ReplogError
from replog.rpc.messages import InitProducerIdRequest, ProducedTransaction
from replog.waiting.task_ends import end_tasks

_log = logging.getLogger(__name__)


class Identities(Protocol):
    """What gives partitions the producer id that their batches need.

    Attributes:
        transaction: The transaction that batches belong to; None: the producer has none.
        on_arrived: A function that gets the partitions that waited, once they may go on.
    """

    on_arrived: Callable[[list[PartitionQueue]], None]

    @property
    def transaction(self) -> ProducedTransaction | None: ...

    def give(self, queue: PartitionQueue) -> None:
        """Sets the queue's identity, now or when one has arrived."""
        ...

    async def close(self) -> None:
        """Gives no more."""
        ...


class IdentitySource:
    """Gives each partition the newest producer id that the partition has not used up.

    Epochs and sequences are per partition: a partition raises its epoch by itself (`partition_queue`), and may hold
    another id than others once it has used up all epochs of one.

    Args:
        view: An open cluster view.
    """

    transaction: Final = None

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.on_arrived: Callable[[list[PartitionQueue]], None] = no_queues
        self._newest: ProducerIdentity | None = None
        self._waiting: dict[PartitionQueue, None] = {}
        self._task: asyncio.Task[None] | None = None

    def give(self, queue: PartitionQueue) -> None:
        """Sets the queue's identity, now or when one has arrived."""
        spent = queue.spent_identity
        if self._newest is not None and (spent is None or self._newest.producer_id != spent.producer_id):
            queue.set_identity(self._newest)
            return
        self._waiting[queue] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._fetch(), name="replog-producer-id")

    async def close(self) -> None:
        await end_tasks(self._task)

    async def _fetch(self) -> None:
        """Asks until there is an answer; batches that wait for it end at their delivery time-out."""
        backoff = Backoff(self._view.rng)
        while self._waiting:
            try:
                response = await self._view.call_any(
                    InitProducerIdRequest(), timeout_ms=ATTEMPT_TIMEOUT_MS, what="get a producer id"
                )
            except AuthenticationError as error:
                refused, self._waiting = self._waiting, {}
                for queue in refused:
                    queue.refuse(error)
            except ReplogError as error:
                self._note(error.with_traceback(None))
                await asyncio.sleep(backoff.next_s())
            except Exception as bug:  # noqa: BLE001 - logged, told with the time-out, and tried again
                _log.exception("asking for a producer id failed, and is tried again")
                self._note(ReplogError(f"asking for a producer id failed unexpectedly: {bug!r}"))
                await asyncio.sleep(backoff.next_s())
            else:
                self._arrived(ProducerIdentity(response.producer_id, response.producer_epoch))

    def _note(self, error: ReplogError) -> None:
        """Keeps the cause for the time-out of what waits."""
        for queue in self._waiting:
            queue.last_error = error

    def _arrived(self, identity: ProducerIdentity) -> None:
        self._newest = identity
        served = list(self._waiting)
        self._waiting.clear()
        for queue in served:
            if queue.identity is None:
                queue.set_identity(identity)
        self.on_arrived(served)


def no_queues(_queues: list[PartitionQueue]) -> None:
    """Ignores partitions: no router has been made yet that would send their batches."""
