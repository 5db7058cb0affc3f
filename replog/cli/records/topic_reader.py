"""Reads a topic for `replog consume`: what has a leader at once, what has none as soon as it has one, and says which that is.

Why not the consumer alone: it waits for a leader without a word, which looks like a topic without records.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from replog.cli.errors import CommandFailedError
from replog.errors import OffsetOutOfRangeError, RetriableError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from replog.client import Admin, Consumer, ConsumerRecord, TopicPartition
    from replog.client.consumer.positions import Place
    from replog.rpc.metadata_messages import PartitionInfo

POLL_MS = 300
LOOK_S = 0.6
"""Between two looks at the leaders, while nothing comes."""

ASSIGN_MS = 1_000
"""How long a leader may take to say its offsets, before it is asked again and others are read."""

LOOKS_BEFORE_WORDS = 2
"""An election takes some milliseconds: what has no leader at one look only is not worth a line."""


class TopicReader:
    """The partitions of a topic, in the order in which their leaders can be asked.

    Args:
        consumer: The consumer that reads them; nothing else is assigned to it.
        admin: The client that is asked who leads.
        topic: The name of the topic.
        partition: The only partition that is read; None: all.
        start: The place to begin at.
        say: The function that is told what is waited for.
        until: The place before which to end; None: the end of the log when a partition is first reached.
    """

    def __init__(
        self,
        consumer: Consumer,
        admin: Admin,
        topic: str,
        partition: int | None,
        start: Place,
        say: Callable[[str], None],
        until: Place | None = None,
    ) -> None:
        self._consumer = consumer
        self._admin = admin
        self._topic = topic
        self._partition = partition
        self._start = start
        self._until = until
        self._say = say
        self._ends: dict[TopicPartition, int] = {}
        self._log_ends: dict[TopicPartition, int] = {}
        self._waited_for: dict[int, tuple[str, int]] = {}  # partition -> why, and at how many looks
        self._told: dict[int, str] = {}
        self._all: frozenset[int] = frozenset()
        self._next_look_s = 0.0
        self._progress_s = time.monotonic()

    @property
    def is_behind(self) -> bool:
        """Whether something that was committed at the beginning, before the place to end at, is not read yet."""
        if len(self._ends) < len(self._all):
            return True
        return any(self._consumer.position(partition) < end for partition, end in self._ends.items())

    def end(self, partition: tuple[str, int]) -> int:
        """Returns the offset before which the reading of a partition ends."""
        return self._ends[partition]  # type: ignore[index]  # a named tuple is one

    async def begin(self) -> None:
        """Finds the partitions.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic or partition.
            OffsetOutOfRangeError: All partitions end before the offset.
        """
        await self._look()

    async def poll(self, max_records: int, timeout_s: float | None) -> list[ConsumerRecord]:
        """Returns the next records, none where none came for a moment; then looks anew, now and then, who leads.

        Raises:
            CommandFailedError: Nothing has come for `timeout_s`.
            ReplogError: `Consumer.poll` raised it.
        """
        if self._ends:
            records = await self._consumer.poll(max_records=max_records, timeout_ms=POLL_MS)
        else:
            await asyncio.sleep(POLL_MS / 1000)
            records = []
        now_s = time.monotonic()
        if records:
            self._progress_s = now_s
        elif now_s >= self._next_look_s:
            await self._look()
        if timeout_s is not None and now_s - self._progress_s > timeout_s:
            silent = "its leader sends nothing" if self.is_behind else "all that was in it has been read"
            why = "; ".join(self._told.values()) or silent
            raise CommandFailedError(f"no record of {self._topic} came for {timeout_s:g} s: {why}")
        return records

    async def _look(self) -> None:
        """Takes in the partitions that have a leader now, and says which have none."""
        infos = await self._partitions()
        self._all = self._all or frozenset(info.partition_id for info in infos)
        reached = {partition for _, partition in self._ends}
        missing = {info.partition_id: self._why(info) for info in infos if info.leader < 0}
        new: dict[int, list[PartitionInfo]] = {}  # by leader: one that does not answer holds up nobody else's
        for info in infos:
            if info.leader >= 0 and info.partition_id in self._all - reached:
                new.setdefault(info.leader, []).append(info)
        for leader, led in new.items():
            if not await self._take_in(led):
                missing |= {
                    i.partition_id: f"{self._name(i)}: broker {leader}, its leader, does not answer" for i in led
                }
        self._tell(missing)
        self._next_look_s = time.monotonic() + LOOK_S

    async def _partitions(self) -> Sequence[PartitionInfo]:
        try:
            info = (await self._admin.describe_topics([self._topic]))[self._topic]
        except RetriableError as error:
            self._say(f"the brokers do not say who leads {self._topic}: {error}")
            return ()
        if self._partition is None:
            return info.partitions
        chosen = [one for one in info.partitions if one.partition_id == self._partition]
        if not chosen:
            raise UnknownTopicOrPartitionError(
                f"{self._topic} has {len(info.partitions)} partitions, numbered from 0; "
                f"there is no partition {self._partition}"
            )
        return chosen

    async def _take_in(self, infos: Sequence[PartitionInfo]) -> bool:
        """Assigns partitions; False: a leader did not tell its offsets in time."""
        from replog.client import TopicPartition
        from replog.client.consumer.positions import offsets_of

        new = [TopicPartition(self._topic, info.partition_id) for info in infos]
        try:
            log_ends = await self._consumer.end_offsets(new, timeout_ms=ASSIGN_MS)
            ends = log_ends if self._until is None else await offsets_of(self._consumer, new, self._until, ASSIGN_MS)
            starts = await offsets_of(self._consumer, new, self._start, ASSIGN_MS)
            begins: dict[tuple[str, int], int] = dict(starts.items())
            await self._consumer.assign([*self._ends, *new], start=begins, timeout_ms=ASSIGN_MS)
        except RetriableError:
            return False
        self._ends |= ends
        self._log_ends |= log_ends
        self._require_offset()
        return True

    def _require_offset(self) -> None:
        """Refuses an offset that no partition has: nothing would ever be shown, and nothing said.

        Raises:
            OffsetOutOfRangeError: All partitions end before the offset.
        """
        from replog.client.consumer.positions import AtOffset

        if not isinstance(self._start, AtOffset) or len(self._log_ends) < len(self._all):
            return
        offset, (partition, end) = self._start.offset, max(self._log_ends.items(), key=lambda each: each[1])
        if offset > end:
            others = "" if len(self._log_ends) == 1 else ", and the other partitions before that"
            raise OffsetOutOfRangeError(
                f"{partition} ends at offset {end}{others}; there is no offset {offset} yet", -1, end
            )

    def _tell(self, missing: dict[int, str]) -> None:
        looks = {number: self._waited_for.get(number, ("", 0))[1] + 1 for number in missing}
        self._waited_for = {number: (why, looks[number]) for number, why in missing.items()}
        for number, (why, count) in self._waited_for.items():
            if count >= LOOKS_BEFORE_WORDS and self._told.get(number) != why:
                self._told[number] = why
                self._say(why)
        for number in [number for number in self._told if number not in missing]:
            del self._told[number]
            self._say(f"{self._topic}-{number} has a leader again")

    def _why(self, info: PartitionInfo) -> str:
        waits_for = ",".join(map(str, info.isr or info.elr or info.last_known_elr or info.replicas))
        return f"{self._name(info)} has no leader: nothing can be read until one of its brokers is back ({waits_for})"

    def _name(self, info: PartitionInfo) -> str:
        return f"{self._topic}-{info.partition_id}"
