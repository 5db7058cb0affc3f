"""Reads a topic for `replog consume --group`: as a member of a group, from its committed offsets on."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from replog.cli.errors import CommandFailedError
from replog.client import AssignmentListener, TopicPartition

if TYPE_CHECKING:
    from replog.client import Consumer, ConsumerRecord

POLL_MS = 300


class MemberReader(AssignmentListener):
    """The partitions of a topic that the group gives to this member.

    Args:
        consumer: The consumer of the group.
        topic: The name of the topic.
    """

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._ends: dict[TopicPartition, int] = {}  # when the partition came
        self._progress_s = time.monotonic()

    @property
    def is_behind(self) -> bool:
        """Whether something is not read that was there when its partition came, or none has come yet."""
        return not self._ends or any(self._consumer.position(each) < end for each, end in self._ends.items())

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
        elif timeout_s is not None and time.monotonic() - self._progress_s > timeout_s and self.is_behind:
            why = "" if self._ends else ": the group has given this member no partition"
            raise CommandFailedError(f"no record of {self._topic} came for {timeout_s:g} s{why}")
        return records

    # ---- what the group says -------------------------------------------------------------------------------------------

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Notes where the partitions end now."""
        self._ends |= await self._consumer.end_offsets(list(partitions))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions that go to others."""
        for each in partitions:
            self._ends.pop(each, None)

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions that others have."""
        await self.on_revoked(partitions)
