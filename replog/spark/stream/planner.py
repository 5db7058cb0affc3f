"""Decides what the next batch of a stream is, and what a batch reads.

No threads and no waiting of its own: bounds come from a `BoundsSource`, the time from a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from msgspec import Struct

from replog.client.ranges.offset_range import OffsetRange
from replog.client.types import TopicPartition
from replog.errors import (
    ConfigError,
    InconsistentClusterIdError,
    OffsetOutOfRangeError,
    ReplogError,
    UnknownTopicOrPartitionError,
    raised_anew,
)
from replog.spark.options import Limits
from replog.spark.snapshot import SizedRange
from replog.spark.stream.admission import UNKNOWN_OFFSET_BYTES, admitted_ends, wait_ms
from replog.spark.stream.changes import (
    HOW_TO_GO_ON,
    Known,
    LogBounds,
    LossKey,
    Resumption,
    epochs_to_check,
    lost_text,
    resume,
    tell_losses,
    without_half_told,
    without_new,
)
from replog.spark.stream.offset import VERSION, Place, Places, StreamOffset, from_json, places_to_json, to_json

NO_LIMITS = Limits()


class BoundsSource(Protocol):
    """What knows the bounds of the partitions."""

    def known(self, metadata_offset: int = -1) -> Known:
        """Returns what is known now, by metadata that are up to `metadata_offset`, which is waited for.

        Raises:
            RequestTimedOutError: A partition has not been told, or the metadata are older, for longer than a read waits.
        """

    def known_afresh(self, partitions: Collection[TopicPartition] | None = None) -> Known:
        """Returns what is known when the leaders of these partitions have been asked again; None: of all."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Returns where leader epochs end in the logs of the leaders of now."""

    def first_places(self) -> Places:
        """Returns where a new query starts, as its options say."""


class _Answered(Struct):
    """The last answer, which counts until `until_ms`: an idle query asks the same again and again."""

    version: int
    start: Mapping[str, Any]
    end: Mapping[str, Any]
    until_ms: float


class BatchPlanner:
    """The decisions of one run of a query.

    Args:
        source: What knows the bounds.
        limits: The limits of each batch.
        fail_on_data_loss: Whether records that are gone fail the query.
        clock_ms: The function that returns monotonic milliseconds.
    """

    def __init__(
        self, source: BoundsSource, limits: Limits, *, fail_on_data_loss: bool, clock_ms: Callable[[], float]
    ) -> None:
        self._source = source
        self._limits = limits
        self._fail = fail_on_data_loss
        self._clock_ms = clock_ms
        self._initial: Mapping[str, Any] | None = None
        self._no_start: ReplogError | None = None
        self._target: Known | None = None
        self._told: set[LossKey] = set()
        self._ends: dict[tuple[TopicPartition, Place, int], int | None] = {}
        self._answered: _Answered | None = None
        self._reported: tuple[int, Mapping[str, Any]] | None = None
        self._last_batch_ms: float | None = None

    def initial(self) -> Mapping[str, Any]:
        """Returns where a new query starts: always the same in one run, for Spark asks twice.

        Spark asks also where the first batch of a query is in its log and is to run again.  That batch has its own start, and the
        options may fit the cluster no more: so what is wrong with them is raised by `latest`, for a query that begins there.
        """
        if self._initial is None:
            places: Places = {}
            try:
                places = self._source.first_places()
            except (ConfigError, OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
                self._no_start = error.with_traceback(None)
            known = self._source.known()
            self._initial = to_json(StreamOffset(known.cluster_id, places, metadata_offset=known.metadata_offset))
        return self._initial

    def set_target(self) -> None:
        """Fixes where this run ends: at what is committed now."""
        self._target = self._all_told()

    def latest(self, start: Mapping[str, Any], *, ignore_limits: bool) -> Mapping[str, Any]:
        """Returns where the next batch ends; `start` itself where there is none.

        Raises:
            ConfigError: `start` is of another version, or the query has no start.
            UnknownTopicOrPartitionError: The query has no start, for what it names does not exist.
            InconsistentClusterIdError: It is of another cluster.
            OffsetOutOfRangeError: Records are gone, and that fails the query.
        """
        known = self._source.known()
        last, now_ms = self._answered, self._clock_ms()
        if last is not None and last.version == known.version and last.start == start and now_ms < last.until_ms:
            return last.end
        end, put_off_ms = self._next_end(start, known, NO_LIMITS if ignore_limits else self._limits, now_ms)
        self._answered = _Answered(known.version, start, end, now_ms + put_off_ms if put_off_ms else math.inf)
        return end

    def report(self) -> Mapping[str, Any] | None:
        """Returns the high watermarks, for the progress of the query."""
        known = self._source.known()
        if self._reported is None or self._reported[0] != known.version:
            places = {
                partition: Place(bounds.topic_id, bounds.high_watermark, bounds.leader_epoch)
                for partition, bounds in known.bounds.items()
            }
            self._reported = known.version, {"v": VERSION, "cluster": known.cluster_id, "to": places_to_json(places)}
        return self._reported[1]

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[SizedRange]:
        """Returns what the batch reads: from its own start to its end; no empty ranges.

        `start` is the end of the batch before it that is in Spark's log.  With asynchronous progress tracking that is not the
        last one before it: those between have been read, and left no trace.

        Sizes are reckoned by the average of each log.

        Raises: As `latest`.
        """
        batch = from_json(end)
        if batch.start is None or start == end:  # else the batch that ended there would be read once more
            return []
        known = self._source.known(batch.metadata_offset)
        self._check_cluster(batch, known)
        if self._fail and batch.lost:
            raise OffsetOutOfRangeError(
                f"this batch was planned, with failOnDataLoss false, over what is lost: {batch.lost}. {HOW_TO_GO_ON}"
            )
        _, begin = self._resume(batch.start, known, without_new)
        known, cut = self._resume(batch.end, self._source.known(), without_new)
        told = {loss.partition for loss in begin.losses}
        losses = [loss for loss in cut.losses if loss.partition not in told]
        tell_losses([*begin.losses, *losses], fail=self._fail, told=self._told)
        return [
            _sized(
                OffsetRange(
                    partition.topic,
                    first.topic_id,
                    partition.partition,
                    first.offset,
                    last,
                    batch.end[partition].leader_epoch,
                    known.metadata_offset,
                ),
                known.bounds.get(partition),
            )
            for partition, first in sorted(begin.begin.items())
            if (last := _end_of(partition, first, batch.end, cut)) > first.offset
        ]

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _next_end(
        self, start: Mapping[str, Any], known: Known, limits: Limits, now_ms: float
    ) -> tuple[Mapping[str, Any], float]:
        """Returns where the next batch ends, and how long it is put off."""
        before = from_json(start)
        if self._no_start is not None and start == self._initial:
            raise raised_anew(self._no_start)
        self._check_cluster(before, known)
        known = self._source.known(before.metadata_offset)
        if self._is_target_of_the_past(before):
            self._target = known = self._all_told()
        known, found = self._resume(before.end, known, without_half_told)
        tell_losses(found.losses, fail=self._fail, told=self._told)
        begin = {partition: place.offset for partition, place in found.begin.items()}
        ends = {partition: self._readable_end(partition, place, known) for partition, place in found.begin.items()}
        offsets_count = sum(max(0, ends[partition] - offset) for partition, offset in begin.items())
        if not offsets_count:
            return start, 0
        if self._target is None and (put_off_ms := wait_ms(limits, offsets_count, self._waited_ms(now_ms))):
            return start, put_off_ms
        self._last_batch_ms = now_ms
        sizes = {partition: bounds.bytes_per_offset for partition, bounds in known.bounds.items()}
        admitted = admitted_ends(begin, ends, limits, sizes)
        end = {partition: place._replace(offset=admitted[partition]) for partition, place in found.begin.items()}
        lost = lost_text(found.losses)
        return to_json(StreamOffset(known.cluster_id, end, found.begin, known.metadata_offset, lost)), 0

    def _all_told(self) -> Known:
        """Returns what all leaders say now, also those of partitions that came to be known while the others were asked."""
        known = self._source.known_afresh()
        while known.untold:
            known = self._source.known_afresh(known.untold)
        return known

    def _is_target_of_the_past(self, before: StreamOffset) -> bool:
        """Whether the target was fixed, before Spark told where the query stands, by older metadata than that was."""
        target = self._target
        return target is not None and self._last_batch_ms is None and target.metadata_offset < before.metadata_offset

    def _waited_ms(self, now_ms: float) -> float | None:
        return None if self._last_batch_ms is None else now_ms - self._last_batch_ms

    def _readable_end(self, partition: TopicPartition, place: Place, known: Known) -> int:
        """Returns the end of what may be read: the high watermark, in a run with a target not beyond that.

        What a leader of the past says does not count: it would be kept as told by the leader after it.
        """
        bounds = known.bounds.get(partition)
        if bounds is None or bounds.leader_epoch < place.leader_epoch:
            return place.offset
        if self._target is None:
            return bounds.high_watermark
        target = self._target.bounds.get(partition)
        if target is None or target.topic_id != bounds.topic_id:
            return place.offset
        return min(bounds.high_watermark, target.high_watermark)

    def _resume(
        self, before: Places, known: Known, without: Callable[[Places, Known], Known]
    ) -> tuple[Known, Resumption]:
        """Returns where to go on, and what was known for that.

        A place may have been told later than the bounds, which come by watches.  So nothing counts as lost before the leaders
        of its partition have been asked again.
        """
        asked: set[TopicPartition] = set()
        while True:
            seen = without(before, known)
            found = resume(before, seen, self._epoch_ends(before, seen))
            doubtful = {loss.partition for loss in found.losses if loss.key not in self._told} - asked
            if not doubtful:
                return seen, found
            asked |= doubtful
            known = self._source.known_afresh(doubtful)

    def _epoch_ends(self, before: Places, known: Known) -> dict[TopicPartition, int]:
        """Returns where epochs have ended since `before`; leaders are asked once for each place."""
        epochs = epochs_to_check(before, known)
        keys = {each: (each, before[each], known.bounds[each].leader_epoch) for each in epochs}
        unknown = {each: epoch for each, epoch in epochs.items() if keys[each] not in self._ends}
        if unknown:
            found = self._source.epoch_ends(unknown)
            kept = {
                key: end
                for key, end in self._ends.items()
                if key[0] in known.bounds and known.bounds[key[0]].leader_epoch == key[2]
            }
            self._ends = kept | {keys[each]: found.get(each) for each in unknown}
        return {each: end for each, key in keys.items() if (end := self._ends[key]) is not None}

    @staticmethod
    def _check_cluster(offset: StreamOffset, known: Known) -> None:
        if offset.cluster_id != known.cluster_id:
            raise InconsistentClusterIdError(
                f"the checkpoint is of cluster {offset.cluster_id}, bootstrap.servers of cluster {known.cluster_id}. Check "
                "the address, or give another checkpointLocation."
            )


def _sized(wanted: OffsetRange, bounds: LogBounds | None) -> SizedRange:
    each = (bounds.bytes_per_offset if bounds is not None else 0) or UNKNOWN_OFFSET_BYTES
    return SizedRange(wanted, int(wanted.offsets_count * each))


def _end_of(partition: TopicPartition, first: Place, planned: Places, cut: Resumption) -> int:
    """Returns where reading a partition ends: as planned, or where its log was cut since."""
    last = planned[partition]
    if last.topic_id != first.topic_id:
        return first.offset  # created anew: what was planned is gone
    now = cut.begin.get(partition)
    return last.offset if now is None else min(last.offset, now.offset)
