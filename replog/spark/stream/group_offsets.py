"""Tells a consumer group where a stream stands, for those who look at lags; nothing is ever read back.

Where a query goes on is in Spark's checkpoint alone, and a query must neither fail nor wait for what is only told.  So one
commit at a time is under way, in the loop's thread; of the batches that end meanwhile only the last is told; and one that
fails is told of once and made up for with the next batch, or a minute later.  All of it is committed now and then, since brokers forget
offsets of a group without members that are old.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from replog.client.admin.groups import GroupOperations
from replog.client.cluster.view import ClusterView
from replog.errors import ConfigError, GroupIdNotFoundError, ReplogError
from replog.spark.stream.offset import Places
from replog.waiting.task_ends import end_tasks

CHECK_TIMEOUT_MS: Final = 5_000
"""How long a query waits, when it begins, to hear whether the group has members."""

COMMIT_TIMEOUT_MS: Final = 10_000

LAST_COMMIT_S: Final = 2.0
"""How long the end of a query waits for what is under way."""

ALL_AGAIN_S: Final = 3_600.0
"""How often offsets are committed that have not changed."""

_log = logging.getLogger(__name__)


class StreamGroup:
    """The offsets of one stream in one group.  Lives in the loop's thread.

    Args:
        view: An open view of the cluster; it is closed by whoever made it, after this.
        group_id: The group.
        now_s: The clock, monotonic.
    """

    def __init__(self, view: ClusterView, group_id: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._groups = _Groups(view)
        self._group_id = group_id
        self._now_s = now_s
        self._told: dict[tuple[str, int], int] = {}
        self._told_all_s = now_s()
        self._next: Places | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    async def check(self) -> None:
        """Looks whether the group can be used; a coordinator that does not answer is no reason to wait.

        Raises:
            ConfigError: It has members.
        """
        try:
            found = (await self._groups.describe_groups([self._group_id], timeout_ms=CHECK_TIMEOUT_MS))[self._group_id]
        except GroupIdNotFoundError:
            return
        except ReplogError as error:
            _log.warning(
                "whether group %s has members is not known: %s; the query goes on without that", self._group_id, error
            )
            return
        if found.members:
            who = ", ".join(f"{each.client_id} at {each.host}" for each in found.members[:3])
            raise ConfigError(
                "commitOffsetsToGroup",
                self._group_id,
                f'commitOffsetsToGroup: group "{self._group_id}" has {len(found.members)} members ({who}), whose commits the '
                "query's would overwrite. Name a group that no consumer uses, or stop them",
            )

    def tell(self, places: Places) -> None:
        """Takes in where the stream stands after a batch; waits for nothing."""
        self._next = places
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._commit_all(), name="replog-stream-group")

    async def close(self) -> None:
        """Waits a moment for what is under way; no task is left."""
        if self._task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._task), LAST_COMMIT_S)
            await end_tasks(self._task)

    async def _commit_all(self) -> None:
        while self._next is not None:
            places, self._next = self._next, None
            now_s = self._now_s()
            if now_s - self._told_all_s >= ALL_AGAIN_S:
                self._told.clear()
                self._told_all_s = now_s
            await self._commit(self._changed(places))

    def _changed(self, places: Places) -> Mapping[tuple[str, int], int]:
        """Returns what the group has not been told, of partitions that exist: another topic may have the name by now."""
        topics = self._view.image.topics
        return {
            partition: place.offset
            for partition, place in places.items()
            if partition.topic in topics
            and topics[partition.topic].topic_id == place.topic_id
            and self._told.get(partition) != place.offset
        }

    async def _commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        if not offsets:
            return
        try:
            await self._groups.alter_group_offsets(self._group_id, offsets, timeout_ms=COMMIT_TIMEOUT_MS)
        except ReplogError as error:
            if not self._has_failed:
                _log.warning(
                    "group %s was not told where the stream stands, which goes on all the same; with the next batch it is tried again: %s",
                    self._group_id,
                    error,
                )
            self._has_failed = True
            return
        if self._has_failed:
            _log.warning("group %s is told again where the stream stands", self._group_id)
        self._has_failed = False
        self._told.update(offsets)


class _Groups(GroupOperations):
    """What an `Admin` does about groups, with a view that is there."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._timeout_ms = COMMIT_TIMEOUT_MS
