"""Reads a range from the files of a replica on this machine, as far as there is one, and says where to fetch on.

Faster than a stream, and free for the broker: nothing passes its event loop.  It is never more than a shortcut: whatever
is in the way (no replica here, files of another user, a file that is gone) ends it at a boundary of batches, without an
error, and the rest comes by the stream.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from replog.client.cluster.addresses import address_of
from replog.client.cluster.view import ClusterView, expect
from replog.errors import ReplogError
from replog.host_identity import boot_id
from replog.rpc.segment_messages import LocateSegmentsRequest, LocateSegmentsResponse
from replog.spark.pieces import Encoded
from replog.spark.segment_files import FrameReader, UnfitError, open_spans
from replog.spark.snapshot import OffsetRange

LOCATE_TIMEOUT_MS = 2_000
"""How long one replica may take to say where its records stand."""

ELSEWHERE_S = 60.0
"""How long a broker that told nothing is not asked again."""

_log = logging.getLogger(__name__)


class ReplicaFinder:
    """Asks replicas in sync, the leader first, where the records of a range stand; remembers who tells nothing."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._silent_until_s: dict[str, float] = {}

    async def locate(self, wanted: OffsetRange, start_offset: int) -> LocateSegmentsResponse | None:
        """Returns what a replica on this machine has of the range from `start_offset` on; None: there is none."""
        for address, leader_epoch in self._replicas(wanted):
            if self._silent_until_s.get(address, 0.0) > time.monotonic():
                continue
            request = LocateSegmentsRequest(
                wanted.topic_id, wanted.partition, leader_epoch, start_offset, wanted.end_offset, boot_id()
            )
            try:
                answer = await self._view.call(address, request, timeout_ms=LOCATE_TIMEOUT_MS)
                located = expect(answer, LocateSegmentsResponse)
            except ReplogError as error:
                self._note(address, f"{type(error).__name__}: {error}")
                continue
            if located.refusal:
                self._note(address, located.refusal)
            elif located.spans:
                return located
        return None

    def _replicas(self, wanted: OffsetRange) -> list[tuple[str, int]]:
        """Returns the addresses of replicas in sync, each with the leader epoch that it should know."""
        image = self._view.image
        topic, partition = image.topics.get(wanted.topic), image.partition(wanted.topic, wanted.partition)
        if not boot_id() or partition is None or topic is None or topic.topic_id != wanted.topic_id:
            return []
        in_order = [partition.leader, *(each for each in partition.isr if each != partition.leader)]
        brokers = [broker for each in in_order if (broker := image.brokers.get(each)) is not None and not broker.fenced]
        return [(address_of(broker), partition.leader_epoch) for broker in brokers]

    def _note(self, address: str, why: str) -> None:
        self._silent_until_s[address] = time.monotonic() + ELSEWHERE_S
        _log.info("records of %s are fetched, not read from files: %s", address, why)


class DirectRead:
    """Reads one range; lives in the task's thread.

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
        reader = FrameReader(
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
