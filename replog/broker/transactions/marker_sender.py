"""Sends the markers of decided transactions to the leaders of their partitions, for the coordinators of this broker.

    shard --ends--> sender --shares, by leader--> outbox of a broker --> its marker writer
      ^---- partitions that have their marker ----'

Each coordinator is asked for transactions that are decided; the partitions of each are divided by their leaders.  A broker has an
outbox of its own, so one that is slow or dead holds up nobody else's markers.  What a leader does not take just now is looked at
again a little later, when another broker may lead.  What waits is one entry for each transaction that a coordinator has in
memory anyway, and its partitions.

====================================================== ==============================================================
what becomes of a partition                            what follows
====================================================== ==============================================================
it has its marker                                      the coordinator is told
there is no such topic or partition in the metadata    it has been deleted: the same
it is of a topic that has no markers                   the same: there is nothing of a transaction in it
the producer has written to it with a newer epoch      the same: whatever it had there has ended, and no marker of this
                                                       transaction can be written any more
a later coordinator has written to it                  the transaction is left alone: it is that coordinator's, which
                                                       has it from the log
anything else: another leader, too few replicas, a     it is asked for again
coordinator of groups that is reading its log, no answer
====================================================== ==============================================================

Markers may be written twice, which changes nothing.  A leadership that begins has all open ends handed out again, so what is known
here is forgotten with the one before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from msgspec import Struct

from replog.broker.replicas.replica import ReplicaKey
from replog.broker.tasks import watched_task
from replog.broker.transactions.broker_calls import BrokerCalls
from replog.coordinator.transactions.requests import (
    MarkedEnd,
    MarkersWritten,
    TransactionEnd,
    TransactionPartition,
    WaitForEnds,
    WaitForEndsResponse,
)
from replog.errors import BrokerClosedError, ErrorCode, NotCoordinatorError, ReplogError
from replog.metadata.image import MetadataImage
from replog.metadata.records import NO_LEADER
from replog.rpc.transaction_messages import (
    Marker,
    NamedPartitions,
    PartitionRefusal,
    WriteMarkersRequest,
    WriteMarkersResponse,
)
from replog.waiting.task_ends import end_tasks

PARTITIONS_TOGETHER: Final = 1_000
"""Partitions of one request to a broker, and of those that are looked at again together."""

AT_ONCE: Final = 4
"""Requests that are under way to one broker: one that waits for a partition with too few replicas holds up no other."""

REQUEST_TIMEOUT_MS: Final = 5_000
"""How long a broker may take to write the markers of a request."""

PAUSE_MS: Final = 100
"""After how long a partition is tried again whose leader did not take a marker, and a coordinator that did not answer."""

TOLD_TOGETHER: Final = 100
"""Shares that a coordinator is told of with one request."""

TELL_TIMEOUT_MS: Final = 5_000
"""How long a coordinator may take to note what is done."""

NOTHING_LEFT: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Errors of partitions in which nothing of the transaction is open."""

_log = logging.getLogger(__name__)


class WritesMarkers(Protocol):
    """Writes markers into partitions that this broker leads."""

    async def write(self, request: WriteMarkersRequest, timeout_ms: int) -> WriteMarkersResponse: ...


class AsksShards(Protocol):
    """The shards of this broker (`Shards`)."""

    async def submit(self, key: ReplicaKey, request: object, timeout_ms: int | None) -> object: ...


class _Leadership:
    """A leadership of a shard; what belongs to one that has ended is dropped.

    Attributes:
        key: The partition of the topic of transactions.
        is_over: Whether it has ended.
        task: What asks the shard for ends.
        marked: What the shard has not noted.
        is_telling: Whether it is being told.
    """

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.is_over = False
        self.marked: deque[MarkedEnd] = deque()
        self.is_telling = False
        self.task: asyncio.Task[None] | None = None


class _Share(Struct, frozen=True):
    """Partitions of one transaction that go to one broker."""

    leadership: _Leadership
    end: TransactionEnd
    partitions: tuple[TransactionPartition, ...]


class MarkerSender:
    """See the module, and `replog.broker.coordinator.shards.LeadershipWatcher`.

    Args:
        node_id: The id of this node.
        image: The function that returns the metadata as this node knows them.
        shards: The shards of this broker.
        writer: What writes markers on this broker.
        calls: The way to other brokers.
        on_failure: The function that is called when a bug ends one of its tasks.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        shards: AsksShards,
        writer: WritesMarkers,
        calls: BrokerCalls,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._shards = shards
        self._writer = writer
        self._calls = calls
        self._on_failure = on_failure
        self._leaderships: dict[ReplicaKey, _Leadership] = {}
        self._outboxes: dict[int, deque[_Share]] = {}
        self._under_way: dict[int, int] = {}
        self._later: deque[_Share] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_stopped = False

    @property
    def waiting(self) -> int:
        """The number of shares that are not under way."""
        return len(self._later) + sum(map(len, self._outboxes.values()))

    # ---- leaderships --------------------------------------------------------------------------------------------------

    def begun(self, key: ReplicaKey) -> None:
        self.ended(key)
        if self._is_stopped:
            return
        leadership = self._leaderships[key] = _Leadership(key)
        leadership.task = self._started(self._take_ends(leadership), f"transaction-ends-{key[1]}")

    def ended(self, key: ReplicaKey) -> None:
        leadership = self._leaderships.pop(key, None)
        if leadership is not None:
            leadership.is_over = True
            if leadership.task is not None:
                leadership.task.cancel()

    async def stop(self) -> None:
        """Sends nothing any more."""
        self._is_stopped = True
        if self._pause is not None:
            self._pause.cancel()
        for leadership in self._leaderships.values():
            leadership.is_over = True
        await end_tasks(*self._tasks)
        self._leaderships.clear()
        self._outboxes.clear()
        self._later.clear()

    def _started(self, work: object, name: str) -> asyncio.Task[None]:
        task = watched_task(work, name=name, on_failure=self._on_failure)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- ends ---------------------------------------------------------------------------------------------------------

    async def _take_ends(self, leadership: _Leadership) -> None:
        """Asks a shard for ends as long as it is led here."""
        while not leadership.is_over:
            try:
                answer = await self._shards.submit(leadership.key, WaitForEnds(), None)
            except BrokerClosedError:
                return
            except ReplogError:  # it reads its log, or may not serve just now
                await asyncio.sleep(PAUSE_MS / 1000)
                continue
            if isinstance(answer, WaitForEndsResponse):
                for end in answer.ends:
                    self._send(_Share(leadership, end, end.partitions))

    def _send(self, share: _Share) -> None:
        """Puts the partitions of a transaction into the outboxes of their leaders."""
        if share.leadership.is_over or self._is_stopped:
            return
        by_leader, gone = self._by_leader(share.partitions)
        if gone:
            self._tell(share, gone)
        for leader, partitions in by_leader.items():
            part = _Share(share.leadership, share.end, tuple(partitions))
            if leader == NO_LEADER:
                self._try_later(part)
            else:
                self._outboxes.setdefault(leader, deque()).extend(_pieces(part))
                self._begin(leader)

    def _by_leader(
        self, partitions: Iterable[TransactionPartition]
    ) -> tuple[dict[int, list[TransactionPartition]], tuple[TransactionPartition, ...]]:
        """Returns the partitions by their leaders, and those that there are no more."""
        topics = self._image().topics_by_name
        found: dict[int, list[TransactionPartition]] = {}
        gone: list[TransactionPartition] = []
        for each in partitions:
            topic = topics.get(each.topic)
            registration = None if topic is None else topic.partitions.get(each.partition)
            if registration is None:
                gone.append(each)
            else:
                found.setdefault(registration.leader, []).append(each)
        return found, tuple(gone)

    def _try_later(self, share: _Share) -> None:
        """Looks at a share again a little later."""
        if share.leadership.is_over or self._is_stopped:
            return
        self._later.append(share)
        self._look_soon()

    def _try_again(self) -> None:
        """Looks at what has waited longest; at no more than a broker is sent at once, however long a partition has no leader."""
        self._pause = None
        count = 0
        for _ in range(len(self._later)):
            share = self._later.popleft()
            count += len(share.partitions)
            self._send(share)
            if count >= PARTITIONS_TOGETHER:
                break
        self._look_soon()

    def _look_soon(self) -> None:
        if self._pause is None and self._later:
            self._pause = asyncio.get_running_loop().call_later(PAUSE_MS / 1000, self._try_again)

    # ---- brokers ------------------------------------------------------------------------------------------------------

    def _begin(self, broker_id: int) -> None:
        """Sends what waits for a broker, unless as many requests are under way to it as may be."""
        while self._outboxes.get(broker_id) and self._under_way.get(broker_id, 0) < AT_ONCE:
            batch = self._take(broker_id)
            if batch:
                self._under_way[broker_id] = self._under_way.get(broker_id, 0) + 1
                self._started(self._send_batch(broker_id, batch), f"markers-to-{broker_id}")
        if not self._outboxes.get(broker_id):
            self._outboxes.pop(broker_id, None)

    def _take(self, broker_id: int) -> list[_Share]:
        """Takes as many shares out of an outbox as go into one request; those of leaderships that are over are dropped."""
        batch: list[_Share] = []
        outbox, count = self._outboxes[broker_id], 0
        while outbox and (not batch or count + len(outbox[0].partitions) <= PARTITIONS_TOGETHER):
            share = outbox.popleft()
            if not share.leadership.is_over:
                batch.append(share)
                count += len(share.partitions)
        return batch

    async def _send_batch(self, broker_id: int, batch: list[_Share]) -> None:
        request = WriteMarkersRequest(tuple(_marker(each.end, each.partitions) for each in batch))
        try:
            refusals = (await self._written(broker_id, request)).refusals
            for share, refused in zip(batch, refusals, strict=True):
                self._settle(share, refused)
        except (ReplogError, ValueError) as error:  # the broker is gone, or speaks another version
            _log.debug("broker %d did not take markers: %s", broker_id, error)
            for share in batch:
                self._try_later(share)
        finally:
            self._under_way[broker_id] -= 1
            if not self._under_way[broker_id]:
                del self._under_way[broker_id]
        self._begin(broker_id)

    async def _written(self, broker_id: int, request: WriteMarkersRequest) -> WriteMarkersResponse:
        if broker_id == self._node_id:
            return await self._writer.write(request, REQUEST_TIMEOUT_MS)
        return await self._calls.call(broker_id, request, WriteMarkersResponse, REQUEST_TIMEOUT_MS)

    def _settle(self, share: _Share, refused: Iterable[PartitionRefusal]) -> None:
        """Tells the coordinator what is done, and looks at the rest again a little later."""
        errors = {
            TransactionPartition(each.topic, each.partition_id): each
            for each in refused
            if each.error not in NOTHING_LEFT
        }
        done = tuple(each for each in share.partitions if each not in errors)
        if done:
            self._tell(share, done)
        fenced = next(
            (each for each in errors.values() if each.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED), None
        )
        if fenced is not None:
            _log.warning(
                "transaction of %r: its coordinator here is not the last one, and leaves it alone: %s",
                share.end.transactional_id,
                fenced.message or fenced.error.name,
            )
            return
        if errors:
            rest = tuple(each for each in share.partitions if each in errors)
            self._try_later(_Share(share.leadership, share.end, rest))

    # ---- coordinators -------------------------------------------------------------------------------------------------

    def _tell(self, share: _Share, done: tuple[TransactionPartition, ...]) -> None:
        leadership = share.leadership
        leadership.marked.append(MarkedEnd(share.end, done))
        if not leadership.is_telling:
            leadership.is_telling = True
            self._started(self._tell_all(leadership), "markers-written")

    async def _tell_all(self, leadership: _Leadership) -> None:
        """Tells a coordinator which partitions are done, until it has noted all of them or does not lead any more.

        What comes while it notes some goes together: it is one change for the coordinator, and one request again and again
        where it notes nothing just now.
        """
        marked = leadership.marked
        try:
            while marked and not leadership.is_over:
                some = tuple(islice(marked, TOLD_TOGETHER))
                try:
                    await self._shards.submit(leadership.key, MarkersWritten(some), TELL_TIMEOUT_MS)
                except (BrokerClosedError, NotCoordinatorError):
                    return
                except ReplogError:
                    await asyncio.sleep(PAUSE_MS / 1000)
                else:
                    for _ in some:
                        marked.popleft()
        finally:
            leadership.is_telling = False


def _pieces(share: _Share) -> Iterator[_Share]:
    """Yields a share in pieces that go into a request each."""
    for first in range(0, len(share.partitions), PARTITIONS_TOGETHER):
        yield _Share(share.leadership, share.end, share.partitions[first : first + PARTITIONS_TOGETHER])


def _marker(end: TransactionEnd, partitions: Iterable[TransactionPartition]) -> Marker:
    """Returns the marker of a transaction for some of its partitions."""
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return Marker(
        end.producer.producer_id,
        end.producer.producer_epoch,
        end.coordinator_epoch,
        end.is_commit,
        end.bumps_epochs,
        tuple(NamedPartitions(topic, tuple(numbers)) for topic, numbers in topics.items()),
    )
