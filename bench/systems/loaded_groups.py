"""One node of replog whose groups have committed a great many offsets, and that is started again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import NamedTuple

import psutil

from bench.model import WrongResultError
from bench.systems.group_brokers import COMMIT_VERSION, GroupBrokers
from bench.systems.group_members import NOT_YET, NOT_YET_S
from bench.systems.kafka.protocol import ProtocolConnection
from bench.systems.replog_brokers import ReplogBrokers
from replog.broker.coordinator.internal_topic import partition_of
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

COORDINATORS = 50
"""Partitions of `__consumer_offsets`, by default."""

FETCH_VERSION = 9
COMMITS_IN_FLIGHT = 8
FETCHED_GROUPS = 100
OFFSET = 1_000_000
TIMEOUT_S = 300.0
PAUSE_S = 0.01

FetchedGroup = OffsetFetchRequest.OffsetFetchRequestGroup


class LoadReport(NamedTuple):
    """What a start took.

    Attributes:
        answering_s: Seconds from the start of the process until it answered anything.
        ready_s: Seconds until a group of each coordinator was told its offsets.
        cpu_s: CPU seconds of the process until then.
        resident_bytes: Resident memory of the process then.
    """

    answering_s: float
    ready_s: float
    cpu_s: float
    resident_bytes: int


class LoadedGroups(GroupBrokers):
    """One broker of ours, in a process of its own, with groups that are nothing but offsets in one topic."""

    def __init__(self) -> None:
        self._node = ReplogBrokers(nodes_count=1)
        super().__init__(self._node)
        self._group_ids: list[str] = []
        self._partitions = range(0)
        self._topic = ""

    def stop(self) -> None:
        super().stop()
        self._group_ids = []

    def fill(self, groups: int, offsets: int) -> None:
        """Has so many groups commit so many offsets each, unless they have.

        Raises:
            WrongResultError: A commit was refused.
        """
        if not self._group_ids:
            self._topic, self._partitions = self.create_topic(offsets), range(offsets)
            self._group_ids = [self.new_group_id() for _ in range(groups)]
            self.run(self._commit_all())

    def restart(self) -> LoadReport:
        """Stops the node in order, and starts it again.

        Raises:
            WrongResultError: An offset was lost.
        """
        (node_id,) = self._node.cluster.nodes
        self._node.run(self._node.cluster.stop(node_id))
        start_s = time.perf_counter()
        self._node.cluster.start_node(node_id)
        return self.run(self._load(start_s))

    async def _load(self, start_s: float) -> LoadReport:
        waiting = list({partition_of(each, COORDINATORS): each for each in self._group_ids}.values())
        async with asyncio.timeout(TIMEOUT_S):
            connection, answered = await self._first_answer(waiting)
            answering_s = time.perf_counter() - start_s
            while waiting := [each for each in waiting if each not in answered]:
                await asyncio.sleep(PAUSE_S)
                answered = await self._offsets(connection, waiting)
            ready_s = time.perf_counter() - start_s
            process = psutil.Process(*self.process_ids())
            times, resident_bytes = process.cpu_times(), process.memory_info().rss
            await self._check(connection)
            connection.close()
        return LoadReport(answering_s, ready_s, times.user + times.system, resident_bytes)

    async def _first_answer(self, group_ids: Collection[str]) -> tuple[ProtocolConnection, dict[str, list[int]]]:
        """Connects again and again, until the node takes requests."""
        while True:
            try:
                connection = await ProtocolConnection.connect(self._node.kafka_servers)
                return connection, await self._offsets(connection, group_ids)
            except OSError:
                await asyncio.sleep(PAUSE_S)

    async def _check(self, connection: ProtocolConnection) -> None:
        """Reads the offsets of all groups."""
        expected = [OFFSET] * len(self._partitions)
        for start in range(0, len(self._group_ids), FETCHED_GROUPS):
            asked = self._group_ids[start : start + FETCHED_GROUPS]
            if await self._offsets(connection, asked) != dict.fromkeys(asked, expected):
                raise WrongResultError(f"{self.name}: one of {asked} has lost offsets")

    async def _offsets(self, connection: ProtocolConnection, group_ids: Collection[str]) -> dict[str, list[int]]:
        """Returns the offsets of those groups that have a coordinator."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(self._topic, partition_indexes=list(self._partitions))
        request = OffsetFetchRequest(groups=[FetchedGroup(each, topics=[topic]) for each in group_ids])
        answer: OffsetFetchResponse = await connection.ask(request, FETCH_VERSION, OffsetFetchResponse)
        if wrong := {each.error_code for each in answer.groups} - NOT_YET - {0}:
            raise WrongResultError(f"{self.name}: offsets of a group were not told: {wrong}")
        return {
            group.group_id: [each.committed_offset for found in group.topics for each in found.partitions]
            for group in answer.groups
            if not group.error_code
        }

    async def _commit_all(self) -> None:
        group_ids = iter(self._group_ids)

        async def one_after_the_other() -> None:
            connection = await ProtocolConnection.connect(address)
            for group_id in group_ids:
                while (code := await self._commit(connection, group_id)) in NOT_YET:
                    await asyncio.sleep(NOT_YET_S)
                if code:
                    raise WrongResultError(f"{self.name}: a commit was refused with {code}")
            connection.close()

        address = await self.coordinator(self._group_ids[0])
        async with asyncio.TaskGroup() as tasks:
            for _ in range(COMMITS_IN_FLIGHT):
                tasks.create_task(one_after_the_other())

    async def _commit(self, connection: ProtocolConnection, group_id: str) -> int:
        """Returns the first error code of a commit; 0 where there is none."""
        offsets = [OffsetCommitRequest.OffsetCommitRequestPartition(each, OFFSET) for each in self._partitions]
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=self._topic, partitions=offsets)
        request = OffsetCommitRequest(group_id=group_id, topics=[topic])
        answer = await connection.ask(request, COMMIT_VERSION, OffsetCommitResponse)
        return next((each.error_code for each in answer.topics[0].partitions if each.error_code), 0)
