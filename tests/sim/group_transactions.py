"""Deterministic simulation of offsets that are committed in transactions, on the clusters of `group_simulation`.

Beside a group of consumers, producers commit offsets of a group of their own, one transaction after the other, and end each as its
coordinator would: the marker is sent until somebody has it, also twice.  Late markers and late commits of what has ended come in
between, of earlier epochs and of earlier coordinators.  Plain commits come in the middle of a transaction.

===== ==============================================================================================================
G11   what a group is told is what was committed last, plainly or with a transaction; nothing of one that was aborted,
      whoever coordinates by now
G12   no offset is unstable once its marker is acknowledged
G13   whoever comes too late is refused: an earlier epoch of a producer, and an earlier coordinator of its transactions
===== ==============================================================================================================

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.group_transactions --seeds 1000 --processes 2
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar

from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    FetchOffsets,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
)
from replog.coordinator.offsets.transactions import CommitTransactionalOffsets, CompleteTransaction, GetCommitPermit
from replog.coordinator.runtime.transactions import TransactionWriter
from replog.errors import (
    InvalidProducerEpochError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    TransactionCoordinatorFencedError,
)
from tests.sim.campaign import main
from tests.sim.group_members import Member
from tests.sim.group_simulation import GroupSimulation

GROUP = "transactions"
ASK_MS = 1_000
ANSWER_WITHIN_S = 60.0
BACKOFF_S = 0.1
PRODUCERS = 2
PARTITIONS_EACH = 2

_COMES_TOO_LATE = (InvalidProducerEpochError, TransactionCoordinatorFencedError)


class Committer:
    """A producer that commits offsets of its own partitions, and whoever ends its transactions.

    Args:
        simulation: the run.
        number: among all producers.

    Attributes:
        is_stopping: it ends with the transaction that goes on.
    """

    def __init__(self, simulation: GroupTransactionSimulation, number: int) -> None:
        self.is_stopping = False
        self._simulation = simulation
        self._rng = Random(f"producer {number} of {simulation.seed}")
        self._partitions = range(number * PARTITIONS_EACH, (number + 1) * PARTITIONS_EACH)
        self._writer = TransactionWriter(1000 + number, 0)
        self._coordinator_epoch = 0
        self._has_ended = False  # a transaction: the log knows the epochs
        self._last = 0
        self._expected = dict.fromkeys(self._partitions, -1)

    async def live(self) -> None:
        """One transaction after the other, until the faults are over, and then one more."""
        while not self._simulation.is_healed:
            await self._transaction()
            await asyncio.sleep(self._rng.choice((0.0, 0.3)))
        await self._transaction()

    async def end(self) -> None:
        """What has been committed is told in the end, too."""
        await self._check()

    async def _transaction(self) -> None:
        pending: dict[int, int] = {}
        is_sure = True
        for partition in self._partitions:
            if self._rng.random() < 0.7:
                value = self._next()
                if await self._commit(self._writer, partition, value):
                    pending[partition] = value
                else:
                    is_sure = False  # it may have been kept: so it must not count
            if self._rng.random() < 0.2:
                await self._commit_plainly(partition)
                pending.pop(partition, None)
            if self._has_ended and self._rng.random() < 0.2:
                await self._come_late(partition)
        is_commit = is_sure and self._rng.random() < 0.7
        await self._end(is_commit=is_commit)
        if is_commit:
            self._expected |= pending
        self._simulation.seen["transaction " + ("committed" if is_commit else "aborted")] += 1
        await self._check()

    def _next(self) -> int:
        self._last += 1
        return self._last

    async def _commit(self, writer: TransactionWriter, partition: int, value: int) -> bool:
        """Whether an offset is known to be kept until the end of the transaction."""
        try:
            permit = await self._once(GetCommitPermit(GROUP, writer))
            await self._once(CommitTransactionalOffsets(GROUP, _topics(partition, value), writer, permit.number))
        except RetriableError:
            return False
        return True

    async def _commit_plainly(self, partition: int) -> None:
        value = self._next()
        await self._until_answered(CommitOffsets(GROUP, _topics(partition, value)))
        self._expected[partition] = value
        self._simulation.seen["plain commit beside a transaction"] += 1

    async def _end(self, *, is_commit: bool) -> None:
        """The end bumps the epoch (`transaction.version` 2); its coordinator may be another one each time."""
        self._coordinator_epoch += self._rng.choice((0, 1))
        self._writer = TransactionWriter(self._writer.producer_id, self._writer.producer_epoch + 1)
        marker = self._marker(self._writer.producer_epoch, self._coordinator_epoch, is_commit=is_commit)
        await self._until_answered(marker)
        if self._rng.random() < 0.3:
            await self._until_answered(marker)
        self._has_ended = True

    def _marker(self, epoch: int, coordinator_epoch: int, *, is_commit: bool) -> CompleteTransaction:
        return CompleteTransaction(self._writer.producer_id, epoch, coordinator_epoch, is_commit, bumps_epochs=True)

    async def _come_late(self, partition: int) -> None:
        epoch = self._writer.producer_epoch
        requests = (
            self._marker(epoch - 1, self._coordinator_epoch, is_commit=self._rng.random() < 0.5),
            self._marker(epoch, self._coordinator_epoch - 1, is_commit=self._rng.random() < 0.5),
            GetCommitPermit(GROUP, TransactionWriter(self._writer.producer_id, epoch - 1)),
        )
        request = self._rng.choice(requests)
        try:
            await self._once(request)
        except _COMES_TOO_LATE:
            self._simulation.seen["refused, for it comes too late"] += 1
        except RetriableError:
            pass
        else:
            self._simulation.checker.report(f"G13 {request} is taken, and the producer is {self._writer}")

    # ---- questions -------------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        asked = TopicToFetch("t", NO_TOPIC_ID, tuple(self._partitions))
        told = await self._until_answered(FetchOffsets(GROUP, (asked,), wants_stable=True))
        partitions = told.topics[0].partitions
        unstable = [each.partition for each in partitions if each.is_unstable]
        if unstable:
            self._simulation.checker.report(
                f"G12 partitions {unstable} are unstable behind the marker of {self._writer}"
            )
        found = {each.partition: each.offset for each in partitions}
        if not unstable and found != self._expected:
            self._simulation.checker.report(f"G11 {found} is told, and {self._expected} was committed last")

    async def _until_answered(self, request: Any) -> Any:
        async with asyncio.timeout(ANSWER_WITHIN_S + self._simulation.swarm.faults_s):
            while True:
                try:
                    return await self._once(request)
                except RetriableError:
                    await asyncio.sleep(BACKOFF_S)

    async def _once(self, request: Any) -> Any:
        """The answer of whoever coordinates.  Raises RetriableError: nobody answers now; it may be done all the same."""
        last: ReplogError = RequestTimedOutError("nobody runs")
        for node in self._rng.sample(self._simulation.cluster.running, len(self._simulation.cluster.running)):
            try:
                async with asyncio.timeout(2 * ASK_MS / 1000):
                    return await node.parts.requests.coordinators.submit(GROUP, request, ASK_MS)
            except TimeoutError:
                last = RequestTimedOutError(f"node {node.config.node_id} says nothing")
            except _COMES_TOO_LATE:
                raise
            except ReplogError as error:
                last = error
        raise RetriableError(str(last))


def _topics(partition: int, value: int) -> tuple[TopicToCommit, ...]:
    return (TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(partition, value),)),)


class GroupTransactionSimulation(GroupSimulation):
    """One run."""

    shaped: ClassVar[Mapping[str, Any]] = {"groups": (("consumer", 1),), "forgets": False, "grows": 0.0}
    command = "tests.sim.group_transactions"

    def _make_members(self) -> list[Member]:
        self.groups.log.ignored = GROUP
        committers: list[Any] = [Committer(self, number) for number in range(PRODUCERS)]
        return [*super()._make_members(), *committers]


if __name__ == "__main__":
    sys.exit(main(GroupTransactionSimulation))
