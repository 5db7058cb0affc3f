"""Who changes a partition while it is used: elections, drained brokers, another `min.insync.replicas`, deleted records,
replicas that move to another log directory.

What is asked for while everything fails may not happen, or happen late; the checks look at what has committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

from replog.controller.requests import (
    AlterPartitionReassignments,
    ClientChange,
    DrainBroker,
    ElectLeaders,
    NamedPartition,
    Reassignment,
)
from replog.errors import ReplogError
from replog.metadata.records import NO_LEADER, ElectionType
from replog.metadata.registrations import PartitionRegistration
from replog.rpc.messages import DeleteRecordsPartition, DeleteRecordsRequest
from replog.rpc.node_messages import MoveReplicaRequest
from replog.testing.simulated_cluster import SimulatedCluster
from replog_checkpoints import parent_of
from tests.sim.event_log import EventLog
from tests.sim.fault_schedule import FOLLOWER, LEADER, Fault, FaultKind
from tests.sim.metadata_cluster_clients import alter_topic
from tests.sim.replication_checks import ReplicationChecks

TIMEOUT_MS = 1_000
ATTEMPTS = 3
RETRY_S = 0.2
MIN_ISR = "min.insync.replicas"


class Administrator:
    """Administers the partition that is watched.

    Args:
        topic: of the partition.
        checks: knows what has committed, and is told below which offset records are to be deleted.
        seed: of what it draws: which node it asks.
        min_isr: of the topic, before and after.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        topic: str,
        checks: ReplicationChecks,
        events: EventLog,
        *,
        seed: int,
        min_isr: int,
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client("administrator")
        self._topic = topic
        self._checks = checks
        self._events = events
        self._rng = random.Random(f"administers {seed}")
        self._min_isr = min_isr
        self._tasks: set[asyncio.Task[None]] = set()
        self._drained: set[int] = set()
        self._has_altered_min_isr = False

    def node_of(self, role: int) -> int | None:
        """The broker that has this role in what has committed last; None: nobody."""
        partition = self._checks.metadata.partition
        if partition is None or partition.leader == NO_LEADER:
            return None
        if role == LEADER:
            return partition.leader
        followers = [member for member in partition.isr if member != partition.leader]
        return followers[-1] if role == FOLLOWER and followers else None

    def directory_on(self, node_id: int) -> str | None:
        """The log directory with the node's replica of the partition, when it was seen last; None: it has none."""
        watched = self._checks.replica_on(node_id)
        return None if watched is None else parent_of(watched.log.directory)

    def administer(self, fault: Fault) -> bool:
        """Begins with it; whether there was something to do."""
        partition = self._checks.metadata.partition
        if partition is None:
            return False
        match fault.kind:
            case FaultKind.ELECT if fault.node in partition.replicas and not partition.is_reassigning:
                self._begin(self._elect(fault.node, partition))
            case FaultKind.DRAIN:
                self._begin(self._drain(fault.node, fault.for_ms))
            case FaultKind.MIN_ISR:
                self._has_altered_min_isr = True
                self._begin(self._ask(alter_topic(self._topic, MIN_ISR, str(fault.amount))))
            case FaultKind.DELETE_RECORDS if partition.leader != NO_LEADER:
                self._begin(self._delete_records(fault.amount, partition))
            case FaultKind.MOVE_REPLICA if fault.node in partition.replicas:
                self._begin(self._move_replicas(fault.node, fault.amount))
            case _:
                return False
        return True

    async def elect(self, broker_id: int) -> None:
        """Asks once that the broker leads."""
        partition = self._checks.metadata.partition
        if partition is not None:
            await self._elect(broker_id, partition)

    async def restore(self, is_restored: Callable[[], bool]) -> None:
        """Asks until no broker is drained and the minimum of replicas is what it was."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not is_restored():
            for broker_id in sorted(self._drained):
                await self._ask(DrainBroker(broker_id, drained=False))
            if self._has_altered_min_isr:
                await self._ask(alter_topic(self._topic, MIN_ISR, str(self._min_isr)))
            await asyncio.sleep(RETRY_S)

    # ---- one change ------------------------------------------------------------------------------------------------------

    def _begin(self, change: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(change)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _elect(self, broker_id: int, partition: PartitionRegistration) -> None:
        """The broker becomes the preferred leader, and the leader."""
        replicas = (broker_id, *(replica for replica in partition.replicas if replica != broker_id))
        if replicas != partition.replicas:
            await self._ask(AlterPartitionReassignments((Reassignment(self._topic, 0, replicas),)))
        await self._ask(ElectLeaders(ElectionType.PREFERRED, (NamedPartition(self._topic, 0),)))

    async def _drain(self, broker_id: int, for_ms: int) -> None:
        self._drained.add(broker_id)
        await self._ask(DrainBroker(broker_id, drained=True))
        await asyncio.sleep(for_ms / 1000)
        await self._ask(DrainBroker(broker_id, drained=False))

    async def _delete_records(self, percent: int, partition: PartitionRegistration) -> None:
        """Up to any offset that is committed: in the middle of a batch too."""
        start_offset, end_offset = self._checks.deletable_end, self._checks.committed_end
        offset = start_offset + (end_offset - start_offset) * percent // 100
        topic_id = self._checks.metadata.topic_id
        if topic_id is None or offset == start_offset:
            return
        self._checks.may_delete(offset)
        request = DeleteRecordsRequest((DeleteRecordsPartition(topic_id, 0, offset),))
        self._events.note("client", f"deletes what is below {offset}")
        try:
            await self._client.connection(partition.leader).call(request, timeout_ms=TIMEOUT_MS)
        except ReplogError as error:
            self._events.note("client", f"does not know whether it is deleted: {error}")

    async def _move_replicas(self, broker_id: int, directory: int) -> None:
        """All that the broker has, of other topics too, to one of its log directories."""
        node = self._cluster.nodes[broker_id]
        path = str(node.config.log_dirs[directory])
        topics = [] if node.node is None else sorted(node.node.image.topics_by_name)
        for topic in topics:
            try:
                request = MoveReplicaRequest(topic, 0, path)
                await self._client.connection(broker_id).call(request, timeout_ms=TIMEOUT_MS)
            except ReplogError as error:
                self._events.note("client", f"{topic}-0 on node {broker_id} is not moved to {path}: {error}")
            else:
                self._events.note("client", f"moves {topic}-0 on node {broker_id} to {path}")

    async def _ask(self, request: ClientChange) -> None:
        """Some node, and after a failure another."""
        for _ in range(ATTEMPTS):
            node_id = self._rng.choice(list(self._cluster.nodes))
            try:
                response = await self._client.ask(node_id, request, timeout_ms=TIMEOUT_MS)
            except ReplogError as error:
                self._events.note("client", f"{request}: {error}")
            else:
                self._events.note("client", f"{request}: {response}")
                return
