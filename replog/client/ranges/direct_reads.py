"""Reads a range from the files of a replica on this machine, as far as there is one, and says where to fetch on.

Faster than a stream, and free for the broker: nothing passes its event loop.  It is never more than a shortcut: whatever
is in the way (no replica here, files of another user, a file that is gone) ends it at a boundary of batches, without an
error, and the rest comes by the stream.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack

from replog.client.cluster.addresses import address_of
from replog.client.cluster.view import ClusterView
from replog.client.ranges.offset_range import Encoded, OffsetRange
from replog.client.ranges.segment_files import SpanReader, UnfitError, open_spans
from replog.errors import ReplogError, RequestTimedOutError
from replog.host.host_identity import boot_id
from replog.rpc.node_messages import LocateSegmentsRequest, LocateSegmentsResponse
from replog.rpc.transport import ConnectionLostError

LOCATE_TIMEOUT_MS = 2_000
"""How long one replica may take to say where its records stand."""

ELSEWHERE_S = 60.0
"""How long a broker is not asked again that is on another machine, or was told to tell nothing."""

UNREACHED_S = 10.0
"""How long one that did not answer is not."""

TROUBLE_S = 2.0
"""How long a replica is not that could not tell of this one partition: it is not in sync, has moved, knows a newer leader."""

LAG_WAIT_S = 0.25
"""How long a follower is waited for that does not know yet that the records are committed; then the leader serves them."""

LAG_LOOK_S = 0.05
"""How often it is asked meanwhile."""

_log = logging.getLogger(__name__)


class ReplicaFinder:
    """Asks replicas in sync, the leader first, where the records of a range stand; remembers who tells nothing."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._silent_until_s: dict[Hashable, float] = {}

    async def locate(self, wanted: OffsetRange, start_offset: int) -> LocateSegmentsResponse | None:
        """Returns what a replica on this machine has of the range from `start_offset` on; None: there is none."""
        give_up_s = time.monotonic() + LAG_WAIT_S
        while True:
            is_behind = False
            for address, leader_epoch, is_leader in self._replicas(wanted):
                located = await self._ask(address, leader_epoch, wanted, start_offset)
                if located is None:
                    continue
                if located.spans:
                    return located
                if is_leader:
                    return None  # it knows everything that is committed
                is_behind = True
            if not is_behind or time.monotonic() >= give_up_s:
                return None
            await asyncio.sleep(LAG_LOOK_S)

    async def _ask(
        self, address: str, leader_epoch: int, wanted: OffsetRange, start_offset: int
    ) -> LocateSegmentsResponse | None:
        """Returns what one replica tells; None where it tells nothing, or is not asked because it did so a short while ago."""
        replica = (address, wanted.topic_id, wanted.partition)
        now_s = time.monotonic()
        if max(self._silent_until_s.get(address, 0.0), self._silent_until_s.get(replica, 0.0)) > now_s:
            return None
        request = LocateSegmentsRequest(
            wanted.topic_id, wanted.partition, leader_epoch, start_offset, wanted.end_offset, boot_id()
        )
        who: Hashable = address
        try:
            located = await self._view.read(address, request, timeout_ms=LOCATE_TIMEOUT_MS)
            if not located.refusal:
                return located
            why, pause_s = located.refusal, ELSEWHERE_S
        except (ConnectionLostError, RequestTimedOutError) as error:
            why, pause_s = f"{type(error).__name__}: {error}", UNREACHED_S
        except ReplogError as error:
            why, pause_s, who = f"{type(error).__name__}: {error}", TROUBLE_S, replica
        _log.info("%s: records are not read from files of %s: %s", wanted, address, why)
        self._silent_until_s = {each: until_s for each, until_s in self._silent_until_s.items() if until_s > now_s}
        self._silent_until_s[who] = now_s + pause_s
        return None

    def _replicas(self, wanted: OffsetRange) -> list[tuple[str, int, bool]]:
        """Returns the addresses of replicas in sync, each with the leader epoch that it should know, and whether it leads."""
        image = self._view.image
        topic, partition = image.topics.get(wanted.topic), image.partition(wanted.topic, wanted.partition)
        if not boot_id() or partition is None or topic is None or topic.topic_id != wanted.topic_id:
            return []
        in_order = [partition.leader, *(each for each in partition.isr if each != partition.leader)]
        brokers = [(each, broker) for each in in_order if (broker := image.brokers.get(each)) and not broker.fenced]
        return [(address_of(broker), partition.leader_epoch, each == partition.leader) for each, broker in brokers]


class DirectRead:
    """Reads one range; lives in the reader's thread.

    Args:
        locate: The function that says where the records from an offset on stand; None: nobody tells.
        is_checked: Whether checksums are looked at.

    Attributes:
        position: Where to fetch on: the offset behind what `pieces` has yielded.
    """

    def __init__(
        self, wanted: OffsetRange, locate: Callable[[int], LocateSegmentsResponse | None], *, is_checked: bool
    ) -> None:
        self.position = wanted.start_offset
        self._wanted = wanted
        self._locate = locate
        self._is_checked = is_checked

    def pieces(self) -> Iterator[Encoded]:
        """Yields record batches in order, each to be decoded before the next one is asked for; ends where it gets no further."""
        while self.position < self._wanted.end_offset:
            located, began = self._locate(self.position), self.position
            if located is None:
                return
            try:
                yield from self._located(located)
            except UnfitError as error:
                _log.info("%s: files were not read on from offset %d: %s", self._wanted, self.position, error)
                if self.position == began:
                    return

    def _located(self, located: LocateSegmentsResponse) -> Iterator[Encoded]:
        pinned = self._wanted.leader_epoch
        leader_epoch_max = located.leader_epoch if pinned < 0 else min(pinned, located.leader_epoch)
        reader = SpanReader(
            self.position,
            leader_epoch_max=leader_epoch_max,
            is_checked=self._is_checked,
            is_complete=located.is_complete,
        )
        end_offset = located.spans[-1].end_offset
        with ExitStack() as files:
            for encoded in reader.read(open_spans(located.spans, files)):
                self.position = reader.next_offset
                yield encoded
        if located.is_complete and reader.next_offset < end_offset:
            raise UnfitError(f"offsets {reader.next_offset} to {end_offset - 1} are missing")
        self.position = max(self.position, end_offset)
