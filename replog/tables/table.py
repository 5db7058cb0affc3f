"""`replog.Table`: a compacted topic as a mapping, the newest value of each key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from replog.client.consumer.consumer import Consumer
from replog.client.consumer.positions import AtTime
from replog.client.ranges.bounds import Bounds
from replog.client.types import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from replog.errors import InvalidRecordError, InvalidRequestError, RequestTimedOutError
from replog.tables.places import Bound, offset_at, parse_bound

POLL_RECORDS: Final = 5_000
POLL_MS: Final = 300

PATIENCE_S: Final = 30.0
"""How long a partition may bring nothing that is known to be there, in seconds."""

_NO_EPOCH: Final = -1


class TableChange(NamedTuple):
    """What a record has changed in a table.

    Attributes:
        key: The key.
        value: Its value from now on; None: the key is gone.
        partition, offset: The place of the record.
        timestamp: Milliseconds since 1970, -1 where it has none.
    """

    key: bytes
    value: bytes | None
    partition: int
    offset: int
    timestamp: int


class Table(Mapping[bytes, bytes]):
    """The newest value of each key of a topic, in memory; committed records only.

    ::

        async with replog.Table("users", bootstrap_servers="127.0.0.1:9092") as users:
            print(users[b"ann"], len(users))
            await users.refresh()
            async for change in users.watch():
                print(change.key, change.value)

    Lookups do not wait: they see what `refresh` and `watch` have taken in.  A key that producers write to several partitions has the value
    that was read last.  One task at a time may refresh or watch.

    Args:
        topic: The name of the topic, by custom with `cleanup.policy=compact`.
        bootstrap_servers: The brokers to ask first, ours or Apache Kafka's.
        at: The table as it was at an offset of each partition or at a time, exclusive, as `replog.scan` takes `end`; what compaction has
            taken since is not there.  None: as it is now, to be refreshed.
        settings: Further settings of the `Consumer`.

    Raises:
        ConfigError: A setting is wrong.
        InvalidRequestError: `at` is no place.

    Attributes:
        consumer: What reads the topic; nothing else may read by it.

    Invariants:
        - a call that raises or is cancelled has taken in whole records, and goes on behind them when it is called again.
    """

    def __init__(
        self, topic: str, *, bootstrap_servers: str | Sequence[str], at: Bound | None = None, **settings: Any
    ) -> None:
        self._topic = topic
        self._at = None if at is None else parse_bound("at", at, time.time_ns() // 1_000_000)
        self.consumer = Consumer(bootstrap_servers, **settings)
        self._values: dict[bytes, bytes] = {}
        self._partitions: list[TopicPartition] = []
        self._ends: dict[TopicPartition, int] = {}

    # ---- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connects, and reads the topic from its beginning to its end of now.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            OffsetOutOfRangeError: `at` lies outside of the log, or records were deleted before they were read.
            RequestTimedOutError: Brokers bring nothing.
            InvalidRecordError: A record has no key.
        """
        try:
            await self.consumer.start()
            self._partitions = await self.consumer.assign_topic(self._topic)
            self._ends = await self._known_ends()
            await self._catch_up()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; what was taken in can be looked up on.  Calling it again does nothing."""
        await self.consumer.close()

    # ---- lookups ---------------------------------------------------------------------------------------------------

    def __getitem__(self, key: bytes) -> bytes:
        return self._values[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def positions(self) -> dict[int, int]:
        """Returns the offset of each partition below which everything was taken in."""
        return {each.partition: self.consumer.position(each) for each in self._partitions}

    # ---- reading on ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Takes in what is committed by now.

        Raises:
            InvalidRequestError: The table is that of a past place.
            ReplogError: What `__aenter__` raises.
        """
        self._require_current()
        self._ends = await self.consumer.end_offsets(self._partitions)
        await self._catch_up()

    async def watch(self) -> AsyncGenerator[TableChange]:
        """Takes in each record as it is committed, and yields what it has changed; waits for more without end.

        Raises:
            InvalidRequestError: The table is that of a past place.
            ReplogError: What `__aenter__` raises, but for the time it takes.
        """
        while True:
            yield await self.next_change()

    async def next_change(self) -> TableChange:
        """Takes in the next record that is committed, waits for it, and returns what it has changed.  Raises: As `watch`."""
        self._require_current()
        record = await self.consumer.getone()
        self._take_in((record,))
        return TableChange(record.key or b"", record.value, record.partition, record.offset, record.timestamp)

    def _require_current(self) -> None:
        if self._at is not None:
            raise InvalidRequestError("this table is that of a past place, given by `at`; make one without it")

    async def _known_ends(self) -> dict[TopicPartition, int]:
        ends = await self.consumer.end_offsets(self._partitions)
        if self._at is None:
            return ends
        starts = await self.consumer.beginning_offsets(self._partitions)
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        if isinstance(self._at, AtTime):
            times: dict[tuple[str, int], int] = dict.fromkeys(self._partitions, self._at.timestamp_ms)
            found = await self.consumer.offsets_for_times(times)
        at: dict[TopicPartition, int] = {}
        for each in self._partitions:
            bounds, late = Bounds(min(starts[each], ends[each]), ends[each], _NO_EPOCH), found.get(each)
            at[each] = offset_at("at", self._at, each, bounds, None if late is None else late.offset)
        return at

    async def _catch_up(self) -> None:
        """Takes in what is below the ends."""
        now_s = asyncio.get_running_loop().time
        progress_s = now_s()
        while behind := [each for each, end in self._ends.items() if self.consumer.position(each) < end]:
            records = await self.consumer.poll(POLL_RECORDS, POLL_MS)
            self._take_in(records if self._at is None else self._below_ends(records))
            if records:
                progress_s = now_s()
            elif now_s() - progress_s > PATIENCE_S:
                raise RequestTimedOutError(
                    f"no record of {behind[0]} came for {PATIENCE_S:g} s, at offset {self.consumer.position(behind[0])} of "
                    f"{self._ends[behind[0]]}. Has it a leader? `replog status` says so"
                )

    def _below_ends(self, records: Iterable[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        for record in records:
            if record.offset < self._ends[TopicPartition(record.topic, record.partition)]:
                yield record

    def _take_in(self, records: Iterable[ConsumerRecord]) -> None:
        """Takes in records that were handed out; from here to the caller nothing waits."""
        values = self._values
        for record in records:
            if record.key is None:
                raise InvalidRecordError(
                    f"{record.topic}-{record.partition} has a record without a key at offset {record.offset}: a table is made of records "
                    "with keys, as topics with cleanup.policy=compact have; read this topic with a Consumer, or replog.scan"
                )
            if record.value is None:
                values.pop(record.key, None)
            else:
                values[record.key] = record.value
