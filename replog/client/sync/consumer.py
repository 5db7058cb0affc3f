"""`SyncConsumer`: `Consumer` without async.

Records cross from the loop's thread to the caller's, and the caller may be interrupted (Ctrl-C) at any step in between.  So
what a read hands over is an *offer* until the caller has it: an offer that was not taken is given back at the next call,
and the positions with it.  Taking is one plain assignment, between which and the caller's own code nothing is interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, Self, TypeVar

from replog.client.arguments import partition_of, require_max_records
from replog.client.consumer.consumer import POLL_RECORDS_MAX, POLL_TIMEOUT_MS, Consumer
from replog.client.consumer.fetcher import FetchSettings
from replog.client.consumer.group_settings import AssignmentListener
from replog.client.consumer.partition_reader import DEFAULT_TIMEOUT_MS
from replog.client.consumer.positions import Partitions
from replog.client.consumer.start import Start, first_offsets
from replog.client.sync.loop_thread import SyncClient, made_like, without_async
from replog.client.typed_records import Typed
from replog.client.types import ConsumerRecord, FetchedBatches, GroupMetadata, K, MemberOffsets, TopicPartition, V
from replog.errors import BrokerClosedError, InvalidRequestError

T = TypeVar("T")
Found = Sequence[Typed] | Sequence[FetchedBatches]
HeldBack = dict[TopicPartition, int]
_DEFAULTS = FetchSettings()
_NONE: Final[frozenset[TopicPartition]] = frozenset()


class SyncConsumer(SyncClient[Consumer[K, V]], Generic[K, V]):
    """`Consumer` without async; arguments and errors are the same.  One thread at a time may use it.

    ::

        with SyncConsumer("127.0.0.1:9092") as consumer:
            consumer.assign_topic("flights")
            for record in consumer:
                print(record.partition, record.offset, record.value)

    Invariants:
        - what was handed out is what lies below `position`, also after a KeyboardInterrupt in any call.
    """

    @made_like(Consumer)
    def __init__(self, client: Consumer[K, V]) -> None:
        super().__init__(client)
        self._turn = asyncio.Lock()  # in the loop: an interrupted call ends before the next one begins
        self._offer: Found = ()  # set in the loop's thread, taken in the caller's
        self._left: list[ConsumerRecord[K, V]] = []  # polled for an iteration and not handed out, last first
        self._in_hand: Found = ()  # the record of a loop, or what was read last
        self._client._held_back = _held_weakly(weakref.WeakMethod(self._held_back))  # noqa: SLF001 -- both are one
        self._is_settled = True
        self._reading_thread: int | None = None  # which waits for records; None: none does

    @property
    def in_loop(self) -> Consumer[K, V]:
        """The consumer in the loop's thread, for listeners alone: ``await consumer.in_loop.commit()``."""
        return self._client

    start = without_async(Consumer.start)

    def close(self, *, timeout_ms: int | None = None) -> None:
        """Leaves the group, stops fetching and closes the connections, as `Consumer.close` does.

        Calling it again does nothing.
        """
        self._end(lambda: self._client.close(timeout_ms=timeout_ms))

    def _held_back(self) -> HeldBack:
        """Returns the first offset of each partition that the caller has in hand or has not got; in the loop's thread.

        The caller's thread goes on meanwhile: it puts what it takes in hand before it takes it away, so that nothing is missing
        from here whatever it does between two of these looks.
        """
        offer = self._offer
        left = self._left.copy()
        return first_offsets((*offer, *left, *self._in_hand))

    def _prepare_end(self) -> None:
        """Counts what a loop has not got as not handed out."""
        self._is_settled = False
        with contextlib.suppress(BrokerClosedError):  # it has ended already
            self._take_back(None)

    # ---- what to read ----------------------------------------------------------------------------------------------

    def assign(
        self,
        partitions: Partitions,
        *,
        start: Start | Mapping[tuple[str, int], int] = "earliest",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """Reads these partitions from now on, as `Consumer.assign` does."""
        self._change(lambda: self._client.assign(partitions, start=start, timeout_ms=timeout_ms))

    def assign_topic(
        self, topic: str, *, start: Start = "earliest", timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> list[TopicPartition]:
        """Assigns all partitions of one topic and returns them, as `Consumer.assign_topic` does."""
        return self._change(lambda: self._client.assign_topic(topic, start=start, timeout_ms=timeout_ms))

    def assignment(self) -> list[TopicPartition]:
        """Returns the assigned partitions, as `Consumer.assignment` does."""
        return self._client.assignment()

    def position(self, partition: tuple[str, int]) -> int:
        """Returns the offset of the next record that will be handed out, as `Consumer.position` does.

        In a loop over the consumer, that is the offset after the record that the loop has.
        """
        if not (self._is_settled or self._is_closed):
            self._change(_nothing)
        wanted = partition_of("partition", partition)
        position = self._client.position(wanted)
        return min(position, first_offsets((*self._offer, *self._left)).get(wanted, position))

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Reads on at `offset`, as `Consumer.seek` does."""

        async def seek() -> None:
            self._client.seek(partition, offset)

        self._change(seek)

    def rewind(self, positions: Mapping[TopicPartition, int]) -> None:
        """Takes back what was handed out from these offsets on, as `Consumer.rewind` does."""

        async def rewind() -> None:
            self._client.rewind(positions)

        self._change(rewind)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Goes to the first offset that exists now, as `Consumer.seek_to_beginning` does."""
        self._change(lambda: self._client.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Goes to the high watermark of now, as `Consumer.seek_to_end` does."""
        self._change(lambda: self._client.seek_to_end(*partitions))

    def seek_to(
        self, place: str | datetime, *partitions: tuple[str, int], timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        """Goes to a place that is named, as `Consumer.seek_to` does."""
        self._change(lambda: self._client.seek_to(place, *partitions, timeout_ms=timeout_ms))

    beginning_offsets = without_async(Consumer.beginning_offsets)

    end_offsets = without_async(Consumer.end_offsets)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hands out nothing of these partitions until they are resumed, as `Consumer.pause` does."""

        async def pause() -> None:
            self._client.pause(*partitions)

        self._change(pause, {partition_of("partition", each) for each in partitions})

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Goes on with these partitions where they were paused, as `Consumer.resume` does."""

        async def resume() -> None:
            self._client.resume(*partitions)

        self._change(resume, _NONE)

    def paused(self) -> list[TopicPartition]:
        """Returns the partitions that are paused, as `Consumer.paused` does."""
        return self._client.paused()

    offsets_for_times = without_async(Consumer.offsets_for_times)

    # ---- groups ----------------------------------------------------------------------------------------------------

    def subscribe(
        self, topics: Iterable[str] = (), *, pattern: str | None = None, listener: AssignmentListener | None = None
    ) -> None:
        """Reads these topics as a member of the group, as `Consumer.subscribe` does.

        The listener's methods are coroutines, and are run in the thread of the client's loop while a call reads; they call
        the methods of `in_loop`.
        """
        self._change(lambda: self._client.subscribe(topics, pattern=pattern, listener=listener))

    def unsubscribe(self) -> None:
        """Gives back all partitions and leaves the group, as `Consumer.unsubscribe` does."""
        self._change(self._client.unsubscribe)

    def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Commits offsets of the group, as `Consumer.commit` does; in a loop over the consumer, the record of now included."""

        async def commit() -> None:
            await self._client.commit(self._positions() if offsets is None else offsets)

        self._change(commit, _NONE)

    def group_metadata(self) -> GroupMetadata:
        """Returns which member of the group this is now, as `Consumer.group_metadata` does."""

        async def group_metadata() -> GroupMetadata:
            return self._client.group_metadata()

        return self._change(group_metadata, _NONE)

    def member_offsets(self, offsets: Mapping[tuple[str, int], int] | None = None) -> MemberOffsets:
        """Returns offsets, and the member that may commit them, as `Consumer.member_offsets` does; those of a loop as for `commit`."""

        async def member_offsets() -> MemberOffsets:
            return self._client.member_offsets(self._positions() if offsets is None else offsets)

        return self._change(member_offsets, _NONE)

    def _positions(self) -> Mapping[tuple[str, int], int]:
        """Returns the positions of the client, in the loop's thread: what the caller has not got is before them."""
        left = first_offsets(self._left)
        positions = self._client._positions()  # noqa: SLF001 -- a client and its facade are one
        return {each: min(offset, left.get(each, offset)) for each, offset in positions.items()}

    committed = without_async(Consumer.committed)

    def highwater(self, partition: tuple[str, int]) -> int | None:
        """Returns the high watermark that was told last, as `Consumer.highwater` does."""
        return self._client.highwater(partition)

    def subscription(self) -> frozenset[str]:
        """Returns the topics that it subscribes to, as `Consumer.subscription` does."""
        return self._client.subscription()

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Returns how many offsets lie between the position and the high watermark, as `Consumer.lag` does."""
        lag = self._client.lag(partition)
        return None if lag is None else lag + self._client.position(partition) - self.position(partition)

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def undecodable_count(self) -> int:
        """The number of records that were left out, as `Consumer.undecodable_count` is."""
        return self._client.undecodable_count

    def poll(
        self, max_records: int = POLL_RECORDS_MAX, timeout_ms: int = POLL_TIMEOUT_MS
    ) -> list[ConsumerRecord[K, V]]:
        """Returns up to `max_records` records, as `Consumer.poll` does.

        What a loop over the consumer that was left had not got comes first, and by itself.
        """
        found = self._ahead(max_records, timeout_ms)
        rest = len(self._left) - len(found)
        self._in_hand = found
        del self._left[rest:]
        return found

    def getone(self) -> ConsumerRecord[K, V]:
        """Returns the next record as a loop over the consumer does."""
        return self.__next__()  # behind `next`, a function of C, an interrupt could come

    def getmany(
        self, *, timeout_ms: int = 0, max_records: int = POLL_RECORDS_MAX
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Returns what `poll` does, by partition."""
        found = self._ahead(max_records, timeout_ms)
        by_partition: dict[TopicPartition, list[ConsumerRecord[K, V]]] = {}
        for record in found:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        rest = len(self._left) - len(found)
        self._in_hand = found
        del self._left[rest:]
        return by_partition

    def fetch_batches(self, timeout_ms: int = POLL_TIMEOUT_MS) -> list[FetchedBatches]:
        """Returns everything that is fetched ahead, undecoded, as `Consumer.fetch_batches` does."""
        self._settle()
        found = self._read(lambda: self._client.fetch_batches(timeout_ms))
        self._in_hand = found
        self._offer = ()
        self._is_settled = True
        return found

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        """Returns the next record of any assigned partition, as `Consumer.__anext__` does; waits for one.

        An interrupted loop is gone on with by another one, or by `next`.
        """
        self._settle()
        while not (self._left and self._client._may_go_on()):  # noqa: SLF001 -- a client and its facade are one
            self._left = self._read(self._poll_reversed)
            self._offer = ()
            self._is_settled = True
        record = self._left[-1]
        self._in_hand = (record,)
        del self._left[-1]
        return record

    def _ahead(self, max_records: int, timeout_ms: int) -> list[ConsumerRecord[K, V]]:
        """Returns up to `max_records` records that wait for whoever takes them from `_left`; reads where there are none."""
        max_records = require_max_records(max_records)
        self._settle()
        if not (self._left and self._client._may_go_on()):  # noqa: SLF001 -- a client and its facade are one
            self._left = self._read(lambda: self._poll_reversed(max_records, timeout_ms))
            self._offer = ()
            self._is_settled = True
        return self._left[: -max_records - 1 : -1]

    async def _poll_reversed(
        self, max_records: int = POLL_RECORDS_MAX, timeout_ms: int = POLL_TIMEOUT_MS
    ) -> list[ConsumerRecord[K, V]]:
        return (await self._client.poll(max_records, timeout_ms))[::-1]

    # ---- offers ----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Waits for the end of an interrupted call and gives back what was not handed out.

        Raises:
            BrokerClosedError: The consumer was closed.
            InvalidRequestError: Another thread reads, to which that would be handed out.
        """
        self._raise_if_copy()
        if self._is_settled:  # as for most records of a loop; neither while a thread reads nor behind the end
            return
        self._raise_if_closed()
        if self._reading_thread not in {None, threading.get_ident()}:
            raise InvalidRequestError(
                "another thread reads from this consumer; let one thread read and pass records on, or give each thread a "
                "consumer of its own with the same group_id"
            )
        self._change(_nothing)

    def _change(
        self, work: Callable[[], Coroutine[Any, Any, T]], partitions: Collection[TopicPartition] | None = None
    ) -> T:
        """Runs `work` in the client's loop, after giving back what was not handed out; returns its result.

        Args:
            work: The coroutine function.
            partitions: The partitions of which records are given back, unless a call was interrupted; None: all.
        """
        given_back = partitions if self._is_settled else None
        self._is_settled = False
        result = self._run(lambda: self._in_turn(work, given_back))
        self._is_settled = True
        return result

    async def _in_turn(
        self, work: Callable[[], Awaitable[T]], partitions: Collection[TopicPartition] | None = None
    ) -> T:
        async with self._turn:
            self._take_back(partitions)
            return await work()

    def _take_back(self, partitions: Collection[TopicPartition] | None) -> None:
        """Counts what the caller has not got of partitions, None: of all, as not handed out; in the loop's thread."""
        left = self._left
        if partitions is None:
            going, staying = left, list[ConsumerRecord[K, V]]()
        else:
            going = [each for each in left if (each.topic, each.partition) in partitions]
            staying = [each for each in left if (each.topic, each.partition) not in partitions] if going else left
        self._client.rewind(first_offsets((*self._offer, *going)))
        self._offer, self._left = (), staying

    def _read(self, read: Callable[[], Awaitable[list[T]]]) -> list[T]:
        self._reading_thread = threading.get_ident()
        self._is_settled = False
        try:
            return self._run(lambda: self._offered(read))
        finally:
            self._reading_thread = None

    async def _offered(self, read: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        async def offer() -> list[Any]:
            self._in_hand = ()  # asked past
            found = await read()
            self._offer = found  # in the step in which the read moved the positions
            return found

        return await self._in_turn(offer)


def _held_weakly(method: weakref.WeakMethod[Callable[[], HeldBack]]) -> Callable[[], HeldBack]:
    """Returns a function that does what a method does, for an object that is to be found unclosed when nobody has it any more."""

    def held_back() -> HeldBack:
        found = method()
        return {} if found is None else found()

    return held_back


async def _nothing() -> None:
    pass
