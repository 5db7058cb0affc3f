"""Keeps in memory what the leaders of a stream's partitions say: log starts and high watermarks.

Spark looks for new records some eighty times a second while there are none.  So nobody is asked then: every leader is
watched, leader changes are followed as the metadata tell them, and what no watch has confirmed for
`STALE_S` is asked for.  A partition that cannot be asked about either is in trouble when the patience of a batch read is
over (`patience`); until then its last bounds stand, and the others go on.

How stale the bounds are: what moved is told within some 20 ms; a leader that falls silent without a word is noticed after
`STALE_S`, and asked.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from typing import Any, cast
from uuid import UUID

from replog.client.backoff import Backoff
from replog.client.cluster.addresses import LeaderAddress
from replog.client.cluster.image import ClusterImage
from replog.client.cluster.view import ClusterView
from replog.client.types import TopicPartition
from replog.errors import (
    ErrorCode,
    MalformedFrameError,
    ReplogError,
    ThrottledError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    raised_anew,
)
from replog.rpc.messages import FetchPartition, FetchResult, WatchOffsetsRequest
from replog.spark.stream.asking import ask_bounds, of_those_that_exist
from replog.spark.stream.changes import Known, LogBounds
from replog.waiting.task_ends import end_tasks

STALE_S = 3.0
"""How long bounds count without a word of their leader, who says something every second."""

LOOK_S = 0.5
"""How often stale bounds are looked for."""

WATCH_PARTITIONS_MAX = 5_000
"""Of one watch; a leader of more gets several."""

WATCH_BACKOFF_MS_MAX = 5_000
"""Between two attempts to watch a leader that does not let itself be watched."""

_log = logging.getLogger(__name__)


class BoundsKeeper:
    """The bounds of the partitions of one stream.  Lives in the loop's thread.

    Args:
        view: An open view of the cluster; it is closed by whoever made it, after the keeper.
        wanted: The function that says which partitions are read, of those in an image.
        poll_timeout_ms: How long it may take to ask, whatever the reason; None: as long as a batch read waits.

    Attributes:
        version: A number that is another one whenever the bounds are.
    """

    def __init__(
        self,
        view: ClusterView,
        wanted: Callable[[ClusterImage], Iterable[TopicPartition]],
        poll_timeout_ms: int | None = None,
    ) -> None:
        self._view = view
        self._choose = wanted
        self._poll_timeout_ms = poll_timeout_ms
        self.version = 0
        self._bounds: dict[TopicPartition, LogBounds] = {}
        self._wanted: dict[TopicPartition, UUID] = {}
        self._watches: dict[tuple[str, int], _LeaderWatch] = {}
        self._asked_s: dict[TopicPartition, float] = {}
        self._troubles: dict[TopicPartition, ReplogError] = {}
        self._asking: set[TopicPartition] = set()
        self._unwatchable: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._look = asyncio.Event()
        self._is_closed = False

    async def start(self) -> None:
        """Learns the bounds of all partitions, and keeps them from here on.

        Raises:
            RequestTimedOutError: Some partition has nobody that tells its bounds in time.
        """
        self._view.add_listener(self._regroup)
        self._regroup()
        await self.refresh()
        self._spawn(self._mend_forever(), "replog-stream-bounds")

    async def close(self) -> None:
        """Ends all watches; no task is left."""
        self._is_closed = True
        await end_tasks(*self._tasks)

    def known(self) -> Known:
        """Returns what is known now."""
        untold = frozenset(self._wanted.keys() - self._bounds.keys())
        return Known(self._view.cluster_id, dict(self._bounds), untold, self.version, self._view.image.shared_offset)

    @property
    def has_trouble(self) -> bool:
        """Whether the bounds of some partition have not been told for longer than a read waits."""
        return bool(self._troubles)

    def raise_if_unserved(self) -> None:
        """Raises why, where there is trouble."""
        for error in list(self._troubles.values())[:1]:
            raise raised_anew(error)

    async def refresh(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Asks the leaders of these partitions now, as far as they are wanted; None: of all.  Raises as `start`."""
        wanted = self._wanted if partitions is None else self._wanted.keys() & partitions
        await self._ask(tuple(sorted(wanted)))

    # ---- which leaders ---------------------------------------------------------------------------------------------------

    def _regroup(self) -> None:
        """Watches the leaders of the newest metadata."""
        if self._is_closed:
            return
        image = self._view.image
        wanted = {partition: image.topics[partition.topic].topic_id for partition in self._choose(image)}
        if wanted != self._wanted:
            self._wanted = wanted
            self.version += 1
            self._bounds = {key: each for key, each in self._bounds.items() if wanted.get(key) == each.topic_id}
            self._troubles = {key: error for key, error in self._troubles.items() if key in wanted}
            self._asked_s = {key: at_s for key, at_s in self._asked_s.items() if key in self._bounds}
            self._look.set()
        groups = dict(self._groups())
        for key, watch in list(self._watches.items()):
            if groups.get(key) != watch.members:
                del self._watches[key]
                watch.task.cancel()
        for key, members in groups.items():
            if key not in self._watches:
                watch = self._watches[key] = _LeaderWatch(members)
                watch.task = self._spawn(self._follow(key[0], watch), f"replog-watch-{key[0]}")

    def _groups(self) -> Iterator[tuple[tuple[str, int], dict[TopicPartition, LeaderAddress]]]:
        """Yields the partitions of each leader, in groups that one watch takes."""
        by_address: dict[str, list[tuple[TopicPartition, LeaderAddress]]] = {}
        for partition in sorted(self._wanted):
            if (leader := self._view.leader(*partition)) is not None:
                by_address.setdefault(leader.address, []).append((partition, leader))
        for address, members in by_address.items():
            for first in range(0, len(members), WATCH_PARTITIONS_MAX):
                yield (address, first), dict(members[first : first + WATCH_PARTITIONS_MAX])

    # ---- watching --------------------------------------------------------------------------------------------------------

    async def _follow(self, address: str, watch: _LeaderWatch) -> None:
        """Watches one leader until it is another one's turn."""
        backoff = Backoff(self._view.rng, max_ms=WATCH_BACKOFF_MS_MAX)
        connection = self._view.data_connection(address)
        try:
            while True:
                request = watch.request(self._view.cluster_id)
                try:
                    # what our transports return are generators
                    updates = cast("AsyncGenerator[tuple[FetchResult, ...]]", connection.watch_offsets(request))
                    async with aclosing(updates):
                        await self._take_in(updates, watch, backoff)
                except (MalformedFrameError, ThrottledError, UnsupportedVersionError) as error:
                    self._tell_unwatchable(address, error)
                except (ReplogError, TimeoutError) as error:
                    _log.debug("watch of %s: %r", address, error)
                watch.heard_s = -math.inf
                self._view.request_refresh()
                await asyncio.sleep(backoff.next_s())
        finally:
            await connection.close()

    def _tell_unwatchable(self, address: str, error: ReplogError) -> None:
        """Warns, once, of a broker that refuses: it may go on to, and records come late without anything being broken."""
        if address in self._unwatchable:
            return
        self._unwatchable.add(address)
        _log.warning(
            "the broker at %s does not let its offsets be watched (is it of an older version, or watched by too many?), so it is "
            "asked every %g s, and the stream sees its records by so much later: %s",
            address, STALE_S, error,
        )  # fmt: skip

    async def _take_in(
        self, updates: AsyncGenerator[tuple[FetchResult, ...]], watch: _LeaderWatch, backoff: Backoff
    ) -> None:
        while True:
            async with asyncio.timeout(STALE_S):
                update = await anext(updates, None)
            if update is None:
                return
            watch.heard_s = asyncio.get_running_loop().time()
            backoff.reset()
            for state in update:
                self._take_state(watch, state)

    def _take_state(self, watch: _LeaderWatch, state: FetchResult) -> None:
        partition = watch.names.get((state.topic_id, state.partition_id))
        if partition is None:
            return
        if state.error is not ErrorCode.NONE:
            watch.confirmed.discard(partition)
            self._view.request_refresh()
            return
        watch.confirmed.add(partition)
        self._troubles.pop(partition, None)
        offsets_count = max(1, state.high_watermark - state.log_start_offset)
        self._learn(
            partition,
            LogBounds(
                state.topic_id,
                min(state.log_start_offset, state.high_watermark),
                state.high_watermark,
                state.leader_epoch,
                max(0, state.size_bytes) / offsets_count,
            ),
        )

    def _learn(self, partition: TopicPartition, told: LogBounds) -> None:
        """Takes in what a leader says, unless it is older than what is known: answers may overtake one another."""
        before = self._bounds.get(partition)
        if self._wanted.get(partition) != told.topic_id:
            return
        if before is not None and told.leader_epoch <= before.leader_epoch:
            if told.leader_epoch < before.leader_epoch:
                return
            told = told._replace(
                log_start_offset=max(told.log_start_offset, before.log_start_offset),
                high_watermark=max(told.high_watermark, before.high_watermark),
                bytes_per_offset=told.bytes_per_offset or before.bytes_per_offset,
            )
        if told != before:
            self._bounds[partition] = told
            self.version += 1

    # ---- asking ----------------------------------------------------------------------------------------------------------

    async def _mend_forever(self) -> None:
        """Asks about what no watch confirms."""
        while True:
            for group in self._stale_groups():
                self._asking.update(group)
                self._spawn(self._mend(group), "replog-stream-asking")
            self._look.clear()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    def _stale_groups(self) -> list[tuple[TopicPartition, ...]]:
        """Returns the stale partitions by leader: one that does not answer holds up no other one."""
        limit_s = asyncio.get_running_loop().time() - STALE_S
        fresh: set[TopicPartition] = set()
        for watch in self._watches.values():
            fresh |= watch.fresh(limit_s)
        groups: dict[str, list[TopicPartition]] = {}
        for partition in self._wanted:
            if partition in fresh or partition in self._asking or self._asked_s.get(partition, -math.inf) > limit_s:
                continue
            leader = self._view.leader(*partition)
            groups.setdefault(leader.address if leader is not None else "", []).append(partition)
        return [tuple(group) for group in groups.values()]

    async def _mend(self, group: tuple[TopicPartition, ...]) -> None:
        try:
            await self._ask(group)
        except UnknownTopicOrPartitionError as error:  # deleted meanwhile, which the metadata tell by themselves
            _log.debug("bounds of a stream: %s", error)
        except ReplogError as error:
            self._troubles.update(dict.fromkeys((each for each in group if each in self._wanted), error))
        finally:
            self._asking.difference_update(group)

    async def _ask(self, partitions: tuple[TopicPartition, ...]) -> None:
        async def ask(some: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
            return await ask_bounds(self._view, some, self._poll_timeout_ms)

        found = await of_those_that_exist(self._view, partitions, ask)
        now_s = asyncio.get_running_loop().time()
        for partition, bounds in found.items():
            self._asked_s[partition] = now_s
            self._troubles.pop(partition, None)
            self._learn(partition, bounds)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _LeaderWatch:
    """One watch of one leader.

    Attributes:
        members: The partitions, and who leads them.
        names: Their names by what the leader calls them.
        confirmed: Those whose bounds the leader has told, and stands by.
        heard_s: The loop's time of its last word; minus infinity when there is no watch.
        task: The task that follows it.
    """

    task: asyncio.Task[None]

    def __init__(self, members: Mapping[TopicPartition, LeaderAddress]) -> None:
        self.members = members
        self.names = {(leader.topic_id, each.partition): each for each, leader in members.items()}
        self.confirmed: set[TopicPartition] = set()
        self.heard_s = self._began_s = asyncio.get_running_loop().time()

    def request(self, cluster_id: str) -> WatchOffsetsRequest:
        """Returns what to ask the leader, in the epochs that the metadata tell."""
        self.confirmed.clear()
        return WatchOffsetsRequest(
            cluster_id,
            tuple(
                FetchPartition(leader.topic_id, each.partition, -1, leader_epoch=leader.leader_epoch, topic=each.topic)
                for each, leader in self.members.items()
            ),
        )

    def fresh(self, limit_s: float) -> AbstractSet[TopicPartition]:
        """Returns the partitions that have been confirmed since `limit_s`, or could not be yet."""
        if self._began_s > limit_s:
            return self.members.keys()
        return self.confirmed if self.heard_s > limit_s else frozenset()
