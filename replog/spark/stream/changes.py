"""What happened to the partitions of a stream since it stood somewhere: new ones, deleted ones, records that are gone.

Pure: places and what the leaders say go in; where to go on comes out, and what cannot be read any more, range by range.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.client.cluster.leader_calls import first_few
from replog.client.types import TopicPartition
from replog.errors import OffsetOutOfRangeError
from replog.spark.stream.offset import Place, Places

_log = logging.getLogger(__name__)

HOW_TO_GO_ON = (
    'Set failOnDataLoss to "false" to go on with what is there, or begin anew with another checkpointLocation.'
)


class LogBounds(NamedTuple):
    """What the leader of a partition says of it.

    Attributes:
        bytes_per_offset: The bytes of one offset, on the average of its log; 0: not known.
    """

    topic_id: UUID
    log_start_offset: int
    high_watermark: int
    leader_epoch: int
    bytes_per_offset: float = 0.0


class Known(Struct, frozen=True):
    """What is known of the partitions that a stream reads.

    Attributes:
        cluster_id: The cluster they are in.
        bounds: What their leaders have told.
        untold: The partitions that exist, and of which no leader has told anything yet.
        version: A number that is another one whenever the bounds or `untold` are.
        metadata_offset: The metadata that say which partitions exist are up to this offset, or a later one.
    """

    cluster_id: str
    bounds: Mapping[TopicPartition, LogBounds]
    untold: frozenset[TopicPartition] = frozenset()
    version: int = 0
    metadata_offset: int = -1


LossKey: TypeAlias = tuple[TopicPartition, UUID, int]


class Loss(NamedTuple):
    """Records of one partition that a stream should have read, or has read, and that are gone.

    Attributes:
        topic_id: The topic that is there now, or was.
        next_offset: Where the stream goes on; -1: nowhere.
        text: The words for it, with bounds of the moment.
    """

    partition: TopicPartition
    topic_id: UUID
    next_offset: int
    text: str

    @property
    def key(self) -> LossKey:
        """What tells it from another loss: the words change with each record that is written meanwhile."""
        return self.partition, self.topic_id, self.next_offset


class Resumption(NamedTuple):
    """Where a stream goes on, and what is lost by that."""

    begin: dict[TopicPartition, Place]
    losses: tuple[Loss, ...]


def without_half_told(before: Places, known: Known) -> Known:
    """Returns what is known, with topics that were created anew left as untold until all of their partitions are told.

    The partitions of a topic change over together: an offset of a stream has one id for all of them.

    Args:
        before: Where the stream stood.
        known: What is there now.
    """
    waiting = {partition.topic for partition in known.untold if partition in before}
    early = {
        partition
        for partition, bounds in known.bounds.items()
        if partition.topic in waiting and (partition not in before or before[partition].topic_id != bounds.topic_id)
    }
    if not early:
        return known
    bounds = {partition: each for partition, each in known.bounds.items() if partition not in early}
    return replace(known, bounds=bounds, untold=known.untold | early)


def without_new(before: Places, known: Known) -> Known:
    """Returns what is known of the partitions that the stream has read."""
    return replace(known, bounds={partition: each for partition, each in known.bounds.items() if partition in before})


def epochs_to_check(before: Places, known: Known) -> dict[TopicPartition, int]:
    """Returns the leader epochs to ask about: of the partitions that have had another leadership since `before`."""
    return {
        partition: place.leader_epoch
        for partition, place in before.items()
        if (bounds := known.bounds.get(partition)) is not None
        and bounds.topic_id == place.topic_id
        and 0 <= place.leader_epoch != bounds.leader_epoch
    }


def resume(before: Places, known: Known, epoch_ends: Mapping[TopicPartition, int]) -> Resumption:
    """Returns where each partition goes on.

    Args:
        before: Where the stream stood.
        known: What is there now.
        epoch_ends: The ends of the epochs of `epochs_to_check` in the logs of the leaders of now: where the common history
            ends; a partition is missing whose leader cannot say.
    """
    begin: dict[TopicPartition, Place] = {}
    losses: list[Loss] = []
    for partition, place in sorted(before.items()):
        bounds = known.bounds.get(partition)
        if bounds is None and partition in known.untold:
            begin[partition] = place
        elif bounds is None:
            losses.append(_gone(partition, place))
        elif bounds.topic_id != place.topic_id:
            losses.append(_created_anew(partition, place, bounds))
            begin[partition] = Place(bounds.topic_id, bounds.log_start_offset, bounds.leader_epoch)
        else:
            begin[partition], loss = _go_on(partition, place, bounds, epoch_ends.get(partition))
            losses += [] if loss is None else [loss]
    for partition in sorted(known.bounds.keys() - before.keys()):
        bounds = known.bounds[partition]
        begin[partition] = Place(bounds.topic_id, bounds.log_start_offset, bounds.leader_epoch)
        if bounds.log_start_offset > 0:
            losses.append(_began_late(partition, bounds))
    return Resumption(begin, tuple(losses))


def _go_on(
    partition: TopicPartition, place: Place, bounds: LogBounds, epoch_end: int | None
) -> tuple[Place, Loss | None]:
    if bounds.leader_epoch < place.leader_epoch:
        return place, None  # of the past: a later leader has told the place
    offset, log_start = place.offset, bounds.log_start_offset
    shared_end = min(offset, bounds.high_watermark, offset if epoch_end is None else epoch_end)
    if shared_end < offset and offset > log_start:
        resumed = max(shared_end, log_start)
        return Place(bounds.topic_id, resumed, bounds.leader_epoch), Loss(
            partition,
            bounds.topic_id,
            resumed,
            f"{partition}: offsets [{shared_end}, {offset}) were read and are not in the log any more, which has other records "
            f"there, or none: it is [{log_start}, {bounds.high_watermark}) in leader epoch {bounds.leader_epoch}, the stream stood "
            f"at {offset} in epoch {place.leader_epoch}. An unclean election, or a lost disk, does this",
        )
    if offset < log_start:
        return Place(bounds.topic_id, log_start, bounds.leader_epoch), Loss(
            partition,
            bounds.topic_id,
            log_start,
            f"{partition}: offsets [{offset}, {log_start}) were deleted before they were read; the log is "
            f"[{log_start}, {bounds.high_watermark}) now",
        )
    return Place(bounds.topic_id, offset, bounds.leader_epoch), None


def _gone(partition: TopicPartition, place: Place) -> Loss:
    return Loss(
        partition,
        place.topic_id,
        -1,
        f"{partition}: offsets from {place.offset} on cannot be read: the topic (id {place.topic_id}) was deleted, or is "
        "not subscribed to any more",
    )


def _created_anew(partition: TopicPartition, place: Place, bounds: LogBounds) -> Loss:
    return Loss(
        partition,
        bounds.topic_id,
        bounds.log_start_offset,
        f"{partition}: offsets from {place.offset} on cannot be read: the topic (id {place.topic_id}) was deleted; another "
        f"one of its name (id {bounds.topic_id}) has [{bounds.log_start_offset}, {bounds.high_watermark})",
    )


def _began_late(partition: TopicPartition, bounds: LogBounds) -> Loss:
    return Loss(
        partition,
        bounds.topic_id,
        bounds.log_start_offset,
        f"{partition}: is new to the stream, and its offsets [0, {bounds.log_start_offset}) were deleted before they were read; the "
        f"log is [{bounds.log_start_offset}, {bounds.high_watermark}) now",
    )


def lost_text(losses: Sequence[Loss]) -> str:
    """Returns the words for losses, with the ranges of the first partitions; "" for none."""
    return first_few([loss.text for loss in losses])


def tell_losses(losses: Iterable[Loss], *, fail: bool, told: set[LossKey]) -> None:
    """Fails with what is lost, or warns of what has not been `told` yet, and notes it there.

    Raises:
        OffsetOutOfRangeError: Something is lost, and `fail` is set; it names every range of the first partitions.
    """
    found = [loss for loss in losses if fail or loss.key not in told]
    if not found:
        return
    text = lost_text(found)
    if fail:
        raise OffsetOutOfRangeError(f"{text}. {HOW_TO_GO_ON}")
    told.update(loss.key for loss in found)
    _log.warning("%s; going on with what is there (failOnDataLoss is false)", text)
