"""What the driver's Python process of a stream has: a view of the cluster and a keeper of bounds, in the loop's thread.

Spark starts one process for each query and calls the reader there, one call at a time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from replog.client.cluster.image import ClusterImage
from replog.client.cluster.view import ClusterView
from replog.client.ranges.range_client import CLOSE_TIMEOUT_S, CONNECT_TIMEOUT_MS, unreachable
from replog.client.types import TopicPartition
from replog.errors import BrokerClosedError, RequestTimedOutError, UnknownTopicOrPartitionError
from replog.spark.options import StreamOptions, TopicChoice
from replog.spark.snapshot import chosen_partitions, chosen_topics, resolve_ranges
from replog.spark.stream.asking import ask_epoch_ends, await_metadata
from replog.spark.stream.changes import Known
from replog.spark.stream.group_offsets import StreamGroup
from replog.spark.stream.keeper import BoundsKeeper
from replog.spark.stream.offset import Place, Places
from replog.spark.words import WORDS
from replog.spark.worker_client import CLIENT_ID, loop_thread


class StreamRunner:
    """A `BoundsSource` over one cluster.  Called from any thread but the loop's.

    Args:
        options: The checked options.

    Raises:
        ConfigError: No broker answers, or the group that is to be told has members.
        UnknownTopicOrPartitionError: A topic or partition that was named does not exist.
        RequestTimedOutError: Some partition has nobody that tells its bounds in time.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options.read
        self._group_id = options.group_id
        self._thread = loop_thread()
        self._view, self._keeper, self._group = self._thread.run(self._open)
        self._known: Known | None = None

    def close(self) -> None:
        """Ends all watches and closes the connections."""
        with suppress(TimeoutError):  # the process may be ending, and the loop's thread with it
            self._thread.run(self._close, CLOSE_TIMEOUT_S)

    def known(self, metadata_offset: int = -1) -> Known:
        last, keeper = self._known, self._keeper
        is_old = last is None or last.version != keeper.version or last.metadata_offset < metadata_offset
        if last is None or is_old or keeper.has_trouble:
            last = self._known = self._thread.run(lambda: self._copy(metadata_offset))
        return last

    def known_afresh(self, partitions: Collection[TopicPartition] | None = None) -> Known:
        self._thread.run(lambda: self._keeper.refresh(partitions))
        return self.known()

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return self._thread.run(lambda: ask_epoch_ends(self._view, epochs, self._options.poll_timeout_ms))

    def first_places(self) -> Places:
        return self._thread.run(self._first_places)

    def tell_group(self, places: Places) -> None:
        """Tells the group, if there is one, where the stream stands; waits for nothing."""
        group = self._group
        if group is not None:
            with suppress(BrokerClosedError):  # the process is ending
                self._thread.post(lambda: group.tell(places))

    # ---- in the loop's thread --------------------------------------------------------------------------------------------

    async def _open(self) -> tuple[ClusterView, BoundsKeeper, StreamGroup | None]:
        options = self._options
        view = ClusterView(options.bootstrap_servers, security=options.security, client_id=CLIENT_ID)
        keeper = BoundsKeeper(view, lambda image: wanted_partitions(image, options.chosen), options.poll_timeout_ms)
        try:
            await view.ready(CONNECT_TIMEOUT_MS)
            group = None if self._group_id is None else StreamGroup(view, self._group_id)
            if group is not None:
                await group.check()
            await keeper.start()
        except RequestTimedOutError as error:
            await self._end(view, keeper)
            if view.cluster_id:
                raise
            raise unreachable(options.bootstrap_servers, error, WORDS) from None
        except BaseException:
            await self._end(view, keeper)
            raise
        return view, keeper, group

    async def _close(self) -> None:
        if self._group is not None:
            await self._group.close()
        await self._end(self._view, self._keeper)

    @staticmethod
    async def _end(view: ClusterView, keeper: BoundsKeeper) -> None:
        await keeper.close()
        await view.close()

    async def _copy(self, metadata_offset: int) -> Known:
        await await_metadata(self._view, metadata_offset, self._options.poll_timeout_ms)
        self._keeper.raise_if_unserved()
        return self._keeper.known()

    async def _first_places(self) -> Places:
        try:
            ranges = await resolve_ranges(self._view, self._options, int(time.time() * 1000))
        except UnknownTopicOrPartitionError:
            chosen = self._options.chosen
            if chosen.pattern is None or any(wanted_partitions(self._view.image, chosen)):
                raise  # one of several was deleted meanwhile: the others do not start at their first records for that
            return {}  # topics that match may come
        return {
            TopicPartition(each.topic, each.partition): Place(each.topic_id, each.start_offset, each.leader_epoch)
            for each in ranges
        }


def wanted_partitions(image: ClusterImage, chosen: TopicChoice) -> Iterator[TopicPartition]:
    """Yields the partitions to read of those that exist."""
    try:
        topics = [topic for topic in chosen_topics(image, chosen) if topic in image.topics]
    except UnknownTopicOrPartitionError:  # none that matches yet
        return
    for partition in chosen_partitions(image, chosen, topics):
        if partition.topic in image.topics and image.partition(*partition) is not None:
            yield partition
