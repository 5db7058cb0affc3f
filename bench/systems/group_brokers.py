"""Groups at the brokers of a system: their members, and commits of offsets, all in Kafka's protocol."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.model import System, WrongResultError
from bench.systems.group_members import NOT_YET, NOT_YET_S, GroupMember, Partition
from bench.systems.kafka.protocol import ProtocolConnection
from bench.systems.shared_brokers import SharedBrokers
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

FIND_VERSION = 4
COMMIT_VERSION = 9
FIND_TIMEOUT_S = 60.0
FIND_PAUSE_S = 0.1
STABLE_TIMEOUT_S = 120.0
UNKNOWN_TOPIC = 3
"""What a coordinator answers that has not heard yet of a topic whose leaders are all there."""
MEMBERS_A_CONNECTION = 50

T = TypeVar("T")


class GroupBrokers(System):
    """Groups of one kind of brokers.

    Args:
        brokers: The brokers.
    """

    def __init__(self, brokers: SharedBrokers) -> None:
        self.name = brokers.name
        self._brokers = brokers
        self._runner = asyncio.Runner()
        self._groups_count = 0

    def missing(self) -> str | None:
        return self._brokers.missing()

    def start(self, directory: Path) -> None:
        self._brokers.start(directory)

    def stop(self) -> None:
        self._brokers.stop()
        self._runner.close()
        self._runner = asyncio.Runner()

    def process_ids(self) -> Sequence[int]:
        return self._brokers.process_ids()

    def durability(self) -> str:
        return self._brokers.durability()

    def create_topic(self, partitions: int) -> str:
        """Makes a topic whose replicas are all in sync; returns its name."""
        return self._brokers.create_topic(partitions)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""
        self._brokers.delete_topic(topic)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a piece of a measurement."""
        return self._runner.run(work)

    def new_group_id(self) -> str:
        """Returns a name that no group had."""
        self._groups_count += 1
        return f"group-{self._groups_count}"

    async def coordinator(self, group_id: str) -> str:
        """Returns the host:port of the coordinator of a group, once there is one.

        Raises:
            WrongResultError: There was none for long.
        """
        deadline_s = time.monotonic() + FIND_TIMEOUT_S
        connection = await ProtocolConnection.connect(self._brokers.kafka_servers.split(",")[0])
        try:
            while time.monotonic() < deadline_s:
                request = FindCoordinatorRequest(coordinator_keys=[group_id])
                (found,) = (await connection.ask(request, FIND_VERSION, FindCoordinatorResponse)).coordinators
                if not found.error_code:
                    return f"{found.host}:{found.port}"
                await asyncio.sleep(FIND_PAUSE_S)
        finally:
            connection.close()
        raise WrongResultError(f"{self.name}: group {group_id} has no coordinator after {FIND_TIMEOUT_S:g} s")


class Group:
    """The members of one group.

    Args:
        brokers: Where it is.
        topic: The topic that its members read.
        partitions: The number of partitions of the topic.
        heartbeat_ms: The milliseconds between two words of a member, where the brokers want to hear it more often.

    Attributes:
        members: The members that belong to it.
    """

    def __init__(self, brokers: GroupBrokers, topic: str, partitions: int, heartbeat_ms: int = 0) -> None:
        self.members: list[GroupMember] = []
        self._brokers = brokers
        self._topic = topic
        self._partitions = partitions
        self._pause_min_s = heartbeat_ms / 1000
        self._group_id = brokers.new_group_id()
        self._connections: list[ProtocolConnection] = []
        self._changed = asyncio.Event()
        self._joined_count = 0

    async def join(self, count: int) -> None:
        """Adds members; returns at once."""
        address = await self._brokers.coordinator(self._group_id)
        for _ in range(count):
            if self._joined_count % MEMBERS_A_CONNECTION == 0:
                self._connections.append(await ProtocolConnection.connect(address))
            self._joined_count += 1
            connection = self._connections[-1]
            self.members.append(
                GroupMember(connection, self._group_id, self._topic, self._changed.set, self._pause_min_s)
            )

    async def wait_stable(self) -> None:
        """Returns when every member is of the same epoch, and every partition has one owner.

        Raises:
            WrongResultError: It did not come to that, or a partition had two owners.
        """
        try:
            async with asyncio.timeout(STABLE_TIMEOUT_S):
                while not self._is_stable():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise WrongResultError(
                f"{self._brokers.name}: {self._group_id} is not stable after {STABLE_TIMEOUT_S:g} s: {self._shown()}"
            ) from None

    def owners(self) -> dict[Partition, GroupMember]:
        """Returns who has which partition.

        Raises:
            WrongResultError: A partition has two owners.
        """
        owners: dict[Partition, GroupMember] = {}
        for member in self.members:
            for partition in member.owned:
                if partition in owners:
                    raise WrongResultError(f"{self._brokers.name}: two members own partition {partition[1]}")
                owners[partition] = member
        return owners

    async def close(self) -> None:
        """Ends all members without a word."""
        await asyncio.gather(*(member.vanish() for member in self.members))
        for connection in self._connections:
            connection.close()

    def _shown(self) -> str:
        """Returns what the members have, and who waits for an answer."""
        now_s = time.monotonic()
        shares = Counter((each.epoch, len(each.owned)) for each in self.members)
        waits_s = [now_s - each.asked_at_s for each in self.members if each.asked_at_s is not None]
        told = ", ".join(
            f"{count} members in epoch {epoch} with {owned} partitions"
            for (epoch, owned), count in sorted(shares.items())
        )
        return f"{told}; {len(waits_s)} wait for answers, for up to {max(waits_s, default=0.0):.1f} s"

    def _is_stable(self) -> bool:
        for member in self.members:
            if member.failure is not None:
                raise member.failure
        sizes = {len(member.owned) for member in self.members}
        return len(self.owners()) == self._partitions and max(sizes) - min(sizes) <= 1


class Committer:
    """Commits offsets of many groups, each over a connection of its own: a broker answers one request of it after the other.

    Args:
        brokers: Where the groups are.
        topic: The topic whose offsets are committed.
        groups: The number of groups.
        offsets: The number of offsets in a commit, each of a partition.
    """

    def __init__(self, brokers: GroupBrokers, topic: str, groups: int, offsets: int = 1) -> None:
        self._brokers = brokers
        self._topic = topic
        self._group_ids = [brokers.new_group_id() for _ in range(groups)]
        self._ways: list[tuple[str, ProtocolConnection]] = []
        self._partitions = range(offsets)
        self._offset = 0

    async def start(self) -> None:
        """Finds the coordinators, and commits once at each: it, and the topic, may have been made just now."""
        for group_id in self._group_ids:
            address = await self._brokers.coordinator(group_id)
            self._ways.append((group_id, await ProtocolConnection.connect(address)))
        for number in range(len(self._ways)):
            while await self._commit(number) in NOT_YET | {UNKNOWN_TOPIC}:
                await asyncio.sleep(NOT_YET_S)

    async def commit(self, number: int) -> None:
        """Commits offsets, and returns when they are acknowledged.

        Args:
            number: The number of the commit, which decides the group.

        Raises:
            WrongResultError: It was refused.
        """
        if code := await self._commit(number):
            raise WrongResultError(f"{self._brokers.name}: a commit was refused with {code}")

    async def _commit(self, number: int) -> int:
        """Returns the first error code of a commit; 0 where there is none."""
        group_id, connection = self._ways[number % len(self._ways)]
        self._offset += 1
        partitions = [OffsetCommitRequest.OffsetCommitRequestPartition(each, self._offset) for each in self._partitions]
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=self._topic, partitions=partitions)
        request = OffsetCommitRequest(group_id=group_id, topics=[topic])
        answer = await connection.ask(request, COMMIT_VERSION, OffsetCommitResponse)
        return next((each.error_code for each in answer.topics[0].partitions if each.error_code), 0)

    def close(self) -> None:
        """Ends the connections."""
        for _, connection in self._ways:
            connection.close()


async def commits_in_flight(commit: Callable[[int], Coroutine[Any, Any, None]], count: int, in_flight: int) -> None:
    """Makes many commits, so many at a time."""
    numbers = iter(range(count))

    async def one_after_the_other() -> None:
        for number in numbers:
            await commit(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(one_after_the_other())


async def commits_at_rate(
    commit: Callable[[int], Coroutine[Any, Any, None]], count: int, rate_per_s: float
) -> list[float]:
    """Makes commits at a rate; returns the seconds from when each was due to its answer."""
    loop = asyncio.get_running_loop()
    took_s: list[float] = []

    async def commit_due(number: int, due_s: float) -> None:
        await commit(number)
        took_s.append(loop.time() - due_s)

    start_s = loop.time() + 0.01
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            due_s = start_s + number / rate_per_s
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            tasks.create_task(commit_due(number, due_s))
    return took_s
