"""Reads a topic for `replog consume --group`: as a member of a group, from its committed offsets on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from replog.cli.errors import CommandFailedError
from replog.client import AssignmentListener, TopicPartition
from replog.errors import RetriableError

if TYPE_CHECKING:
    from replog.client import Admin, Consumer, ConsumerRecord

POLL_MS = 300
END_MS = 1_000
"""How long a leader may take to say where a partition ends, before something is read and it is asked again."""

STABLE = "Stable"


class MemberReader(AssignmentListener):
    """The partitions of a topic that the group gives to this member, which come in parts.

    Args:
        consumer: The consumer of the group.
        admin: The client that is asked what the group gives to this member.
        topic: The name of the topic.
        group: The name of the group.
        client_id: The name of the consumer's client, which no other member has.
        say: The function that is told what is waited for, and that others have what was to be read.
    """

    def __init__(
        self, consumer: Consumer, admin: Admin, topic: str, group: str, client_id: str, say: Callable[[str], None]
    ) -> None:
        self._consumer = consumer
        self._admin = admin
        self._topic = topic
        self._group = group
        self._client_id = client_id
        self._say = say
        self._ends: dict[TopicPartition, int | None] = {}  # soon after the partition came; None: not told yet
        self._told: set[TopicPartition] = set()  # of which a line says that they are waited for
        self._progress_s = time.monotonic()

    async def is_behind(self) -> bool:
        """Returns whether something is not read that was there when its partition came, or partitions are still to come."""
        await self._look_for_ends()
        if not self._ends or any(self._is_left(each, end) for each, end in self._ends.items()):
            return True
        try:
            group = (await self._admin.describe_groups([self._group]))[self._group]
        except RetriableError:
            return True
        own = {
            partition for each in group.members if each.client_id == self._client_id for partition in each.assignment
        }
        return group.state != STABLE or own != self._ends.keys()

    async def _look_for_ends(self) -> None:
        """Asks where partitions end that have not told it, each for itself: one without a leader holds up no other."""
        await asyncio.gather(*(self._look_for_end(each) for each, end in self._ends.items() if end is None))

    async def _look_for_end(self, partition: TopicPartition) -> None:
        try:
            found = await self._consumer.end_offsets([partition], timeout_ms=END_MS)
        except RetriableError as error:
            if partition not in self._told:
                self._told.add(partition)
                self._say(f"waiting for {partition.topic}-{partition.partition}: {error}")
        else:
            if partition in self._ends:
                self._ends[partition] = found[partition]

    def _is_left(self, partition: TopicPartition, end: int | None) -> bool:
        if end is None:
            return True
        try:
            return self._consumer.position(partition) < end
        except RetriableError:  # it came without a leader
            return True

    async def begin(self) -> None:
        """Joins the group.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        await self._consumer.subscribe([self._topic], listener=self)

    async def poll(self, max_records: int, timeout_s: float | None) -> list[ConsumerRecord]:
        """Returns the next records, none where none came for a moment.

        Raises:
            CommandFailedError: Nothing has come for `timeout_s`.
            ReplogError: `Consumer.poll` raised it.
        """
        records = await self._consumer.poll(max_records=max_records, timeout_ms=POLL_MS)
        if records:
            self._progress_s = time.monotonic()
        elif timeout_s is not None and time.monotonic() - self._progress_s > timeout_s:
            why = "" if self._ends else ": the group has given this member no partition"
            raise CommandFailedError(f"no record of {self._topic} came for {timeout_s:g} s{why}")
        return records

    # ---- what the group says -------------------------------------------------------------------------------------------

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Notes partitions, and asks nobody: as long as this lasts, nothing is read."""
        self._ends |= dict.fromkeys(partitions)

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions that go to others."""
        for each in partitions:
            self._ends.pop(each, None)

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions that others have, and says so: what was printed of them after the last commit comes again."""
        self._say(
            f"group {self._group} has put this member out: {len(partitions)} partitions go to others, "
            "and what was printed of them since the last commit will be printed again"
        )
        await self.on_revoked(partitions)
