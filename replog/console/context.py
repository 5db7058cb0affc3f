"""What the handlers of one console share: the client, its bounds, and answers that are kept for some seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Final, TypeVar

from aiohttp import web
from msgspec.structs import replace

from replog.client import Admin, Consumer, TopicPartition
from replog.client.admin.group_descriptions import PartitionLag
from replog.client.admin.group_health import GroupWatch
from replog.client.admin.health import ClusterHealth, cluster_health
from replog.client.types import OffsetAndTimestamp
from replog.console.history import SAMPLE_S, SampleHistory
from replog.console.kept import KeptAnswer
from replog.console.settings import ConsoleSettings
from replog.coordinator.describing.requests import ListedGroup
from replog.errors import ReplogError
from replog.rpc.messages import LATEST_TIMESTAMP
from replog.rpc.metadata_messages import ClusterMetadata, PartitionInfo, TopicInfo
from replog.waiting.task_ends import end_tasks

ASK_MS: Final = 5_000
"""How long the brokers may take for one question."""

REQUESTS_MAX: Final = 64
"""At a time, streams among them."""

STREAMS_MAX: Final = 8
"""Searches and tails at a time: each has a consumer of its own."""

READERS_MAX: Final = 4
"""Reads of records at a time; others wait."""

GROUPS_TOGETHER: Final = 10
GROUPS_MAX: Final = 100
"""Groups whose lags are asked for in one look, as in the health of the cluster."""

TOPICS_TOGETHER: Final = 100
"""Topics whose ends are asked for in one look: those of a page, and the first ones for the curves."""

NOTED_PARTITIONS_MAX: Final = 2_000
"""Partitions whose ends are noted for the curves, also when nobody looks: the first topics that have so many together."""

HEALTH_KEPT_S: Final = 2.0
SIZES_KEPT_S: Final = 15.0
LAGS_KEPT_S: Final = 3.0

BUFFER_BYTES: Final = 8 << 20
"""What one consumer fetches ahead."""

_log = logging.getLogger(__name__)

T = TypeVar("T")
Lags = dict[str, tuple[PartitionLag, ...]]


class Places:
    """Places of which each is taken by one at a time; nobody waits for one.

    Args:
        count: The number of places.
        why: The words behind the number, for whoever finds them all taken.
    """

    def __init__(self, count: int, why: str) -> None:
        self._count = count
        self._why = why
        self._taken = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Takes a place for the length of a block.  Raises: web.HTTPServiceUnavailable: All are taken."""
        if self._taken >= self._count:
            raise web.HTTPServiceUnavailable(text=f"{self._count} {self._why}")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class Context:
    """The client of one console, for `async with`.

    Args:
        settings: The settings of the console.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.admin = Admin(
            settings.bootstrap_servers, security=settings.security, client_id="replog-console", timeout_ms=ASK_MS
        )
        self._groups = GroupWatch(self.admin)
        self.health = KeptAnswer(self._health, HEALTH_KEPT_S)
        self.sizes = KeptAnswer(self._sizes, SIZES_KEPT_S)
        self.all_lags = KeptAnswer(self._all_lags, LAGS_KEPT_S)
        self.lag_history = SampleHistory()
        self.end_history = SampleHistory()
        self._noting: asyncio.Task[None] | None = None
        self.readers = asyncio.Semaphore(READERS_MAX)
        self.metadata_reader = asyncio.Lock()
        self._group_slots = asyncio.Semaphore(GROUPS_TOGETHER)
        self.requests = Places(REQUESTS_MAX, "questions are being answered; ask again")
        self.streams = Places(STREAMS_MAX, "searches and tails run; end one of them")

    def start(self) -> None:
        """Begins to note how far groups are behind, and where topics end."""
        self._noting = asyncio.create_task(self._note(), name="console-history")

    async def close(self) -> None:
        """Ends what is under way, and the connections."""
        await end_tasks(self._noting)
        await self.health.close()
        await self.sizes.close()
        await self.all_lags.close()
        await self.admin.close()

    async def metadata(self) -> ClusterMetadata:
        """Returns the newest metadata.  Raises: RequestTimedOutError: No broker answers."""
        return await self.admin.describe_cluster(timeout_ms=ASK_MS)

    def consumer(self) -> Consumer:
        """Makes a consumer without a group, which fetches little ahead."""
        return Consumer(
            self.settings.bootstrap_servers,
            security=self.settings.security,
            client_id="replog-console",
            fetch_max_bytes=1 << 20,
            max_partition_fetch_bytes=256 << 10,
            buffer_memory_bytes=BUFFER_BYTES,
            connect_timeout_ms=ASK_MS,
            request_timeout_ms=ASK_MS,
        )

    async def ask_leaders(
        self, wanted: Mapping[int, Mapping[tuple[str, int], int]]
    ) -> list[dict[TopicPartition, OffsetAndTimestamp]]:
        """Asks leaders for offsets, all at once; one that does not answer holds up nobody else's, and is left out.

        Args:
            wanted: What to look for, as `Admin.list_offsets` takes it, by the id of the leader.
        """
        asked = (self.admin.list_offsets(each, timeout_ms=ASK_MS) for each in wanted.values())
        return told(await asyncio.gather(*asked, return_exceptions=True))

    async def offsets(self, topic: str, partitions: Iterable[PartitionInfo], timestamp: int) -> dict[int, int]:
        """Returns an offset of each partition of a topic whose leader tells it."""
        wanted: dict[int, dict[tuple[str, int], int]] = {}
        for each in partitions:
            if each.leader >= 0:
                wanted.setdefault(each.leader, {})[topic, each.partition_id] = timestamp
        answers = await self.ask_leaders(wanted)
        return {partition.partition: one.offset for answer in answers for partition, one in answer.items()}

    async def ends_of(self, topics: Sequence[TopicInfo]) -> dict[str, int | None]:
        """Returns the sum of the high watermarks of each topic, None where not all are told; asked for together, each leader once."""
        wanted: dict[int, dict[tuple[str, int], int]] = {}
        for each in topics:
            for one in each.partitions:
                if one.leader >= 0:
                    wanted.setdefault(one.leader, {})[each.name, one.partition_id] = LATEST_TIMESTAMP
        found: dict[str, list[int]] = {each.name: [] for each in topics}
        for answer in await self.ask_leaders(wanted):
            for partition, one_end in answer.items():
                found[partition.topic].append(one_end.offset)
        return {
            each.name: sum(ends) if len(ends := found[each.name]) == len(each.partitions) else None for each in topics
        }

    async def lags_of(self, names: Iterable[str]) -> Lags:
        """Returns the lags of groups; those that are gone or not told are left out."""
        names = list(names)
        return {
            name: lags
            for name, lags in zip(names, await asyncio.gather(*map(self._lag, names)), strict=True)
            if lags is not None
        }

    async def listed_groups(self) -> tuple[ListedGroup, ...]:
        """Returns all groups.  Raises: RequestTimedOutError: A broker does not tell its groups."""
        return await self.admin.list_groups(timeout_ms=ASK_MS)

    async def _lag(self, name: str) -> tuple[PartitionLag, ...] | None:
        async with self._group_slots:
            try:
                return await self.admin.group_lag(name, timeout_ms=ASK_MS)
            except ReplogError:
                return None

    async def _all_lags(self) -> tuple[int, Lags]:
        """Returns how many groups there are, and the lags of the first of them."""
        groups = await self.listed_groups()
        return len(groups), await self.lags_of(group.group_id for group in groups[:GROUPS_MAX])

    async def _note(self) -> None:
        """Looks at groups and topics again and again; where brokers do not answer, the curves have a gap."""
        while True:
            for note in (self._note_lags, self._note_ends):
                try:
                    await note()
                except ReplogError as error:
                    _log.debug("the curves of the console have a gap: %s", error)
            await asyncio.sleep(SAMPLE_S)

    async def _note_lags(self) -> None:
        _, found = await self.all_lags.get()
        self.lag_history.add(_now_ms(), {group: sum(each.lag or 0 for each in lags) for group, lags in found.items()})

    async def _note_ends(self) -> None:
        topics = first_with(matching((await self.metadata()).topics, "")[:TOPICS_TOGETHER], NOTED_PARTITIONS_MAX)
        self.end_history.add(_now_ms(), await self.ends_of(topics))

    async def _health(self) -> ClusterHealth:
        return replace(await cluster_health(self.admin), groups=await self._groups.look())

    async def _sizes(self) -> dict[TopicPartition, int]:
        """Returns the bytes of the biggest replica of each partition, of the brokers that tell."""
        brokers = (await self.metadata()).brokers
        asked = (self.admin.describe_log_dirs(each.broker_id, timeout_ms=ASK_MS) for each in brokers if not each.fenced)
        found: dict[TopicPartition, int] = {}
        for answer in told(await asyncio.gather(*asked, return_exceptions=True)):
            for replica in (replica for directory in answer for replica in directory.replicas):
                name = TopicPartition(replica.topic, replica.partition_id)
                found[name] = max(found.get(name, 0), replica.size_bytes)
        return found


def matching(all_topics: Iterable[TopicInfo], word: str) -> list[TopicInfo]:
    """Returns the topics whose name holds a text, in any case, by name; internal ones at the end."""
    found = [each for each in all_topics if word.lower() in each.name.lower()]
    return sorted(found, key=lambda each: (each.name.startswith("__"), each.name))


def first_with(topics: Sequence[TopicInfo], partitions_max: int) -> Sequence[TopicInfo]:
    """Returns the first topics that have at most so many partitions together."""
    counts = accumulate(len(each.partitions) for each in topics)
    return topics[: sum(count <= partitions_max for count in counts)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def told(answers: Iterable[T | BaseException]) -> list[T]:
    """Returns the answers among the outcomes of several questions; an error of a broker is none, any other is raised."""
    found = []
    for answer in answers:
        if isinstance(answer, BaseException):
            if not isinstance(answer, ReplogError):
                raise answer
        else:
            found.append(answer)
    return found


CONTEXT: Final = web.AppKey("context", Context)
