"""How large topics are, how fast they grow, and where their logs begin and end, as brokers tell it: ours, or Kafka's."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from replog.errors import ReplogError
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from replog.client import Admin, TopicPartition
    from replog.rpc.metadata_messages import TopicInfo
    from replog.rpc.node_messages import LogDir


class TopicSize(Struct, frozen=True):
    """The bytes of a topic.

    Attributes:
        size_bytes: The bytes of the leaders' replicas.
        disk_bytes: The bytes of all replicas.
    """

    size_bytes: int
    disk_bytes: int


class PartitionOffsets(Struct, frozen=True):
    """Where the log of a partition begins and ends, and its former leader epoch; None: there is no leader to tell.

    Attributes:
        log_start_offset, high_watermark: The offsets that can be read are from the first to before the second.
        former_epoch, former_epoch_end_offset: The leader epoch before, and where it ends; None, too, where there was none.
    """

    log_start_offset: int | None = None
    high_watermark: int | None = None
    former_epoch: int | None = None
    former_epoch_end_offset: int | None = None


async def sizes(admin: Admin, topics: Iterable[TopicInfo]) -> tuple[dict[str, TopicSize], dict[int, ReplogError]]:
    """Asks all brokers for the sizes of replicas.

    Returns:
        The sizes by topic, without what brokers have that do not answer; and why these do not.
    """
    brokers = [broker.broker_id for broker in (await admin.describe_cluster()).brokers]
    answers = await asyncio.gather(*(_log_dirs(admin, broker) for broker in brokers))
    leaders = {(topic.name, each.partition_id): each.leader for topic in topics for each in topic.partitions}
    led, of_all = Counter[str](), Counter[str]()
    for broker, answer in zip(brokers, answers, strict=True):
        for replica in () if isinstance(answer, ReplogError) else (one for each in answer for one in each.replicas):
            of_all[replica.topic] += replica.size_bytes
            if leaders.get((replica.topic, replica.partition_id)) == broker:
                led[replica.topic] += replica.size_bytes
    silent = {
        broker: answer for broker, answer in zip(brokers, answers, strict=True) if isinstance(answer, ReplogError)
    }
    return {topic: TopicSize(led[topic], of_all[topic]) for topic, _ in leaders}, silent


async def _log_dirs(admin: Admin, broker: int) -> tuple[LogDir, ...] | ReplogError:
    try:
        return await admin.describe_log_dirs(broker)
    except ReplogError as error:
        return error


async def rates(admin: Admin, topics: Iterable[TopicInfo], seconds: float) -> dict[str, float]:
    """Looks twice at the high watermarks; returns the records a second by topic, of partitions that have leaders."""
    wanted: dict[tuple[str, int], int] = dict.fromkeys(_led(topics), LATEST_TIMESTAMP)
    begun_s = time.monotonic()
    before = await admin.list_offsets(wanted)
    await asyncio.sleep(seconds)
    after = await admin.list_offsets(wanted)
    span_s = time.monotonic() - begun_s
    found = Counter[str]()
    for partition, answer in after.items():
        found[partition.topic] += answer.offset - before[partition].offset
    return {topic: records / span_s for topic, records in found.items()}


async def offsets(admin: Admin, topics: Iterable[TopicInfo]) -> Mapping[tuple[str, int], PartitionOffsets]:
    """Asks the leaders where logs begin and end, and former epochs."""
    led = _led(topics)
    starts = await admin.list_offsets(dict.fromkeys(led, EARLIEST_TIMESTAMP))
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST_TIMESTAMP))
    epochs = await admin.epoch_ends({partition: epoch - 1 for partition, epoch in led.items() if epoch > 0})
    found: dict[tuple[str, int], PartitionOffsets] = {}
    for partition in led:
        former = epochs.get(partition)
        told = (None, None) if former is None or former.epoch < 0 else (former.epoch, former.end_offset)
        found[partition] = PartitionOffsets(starts[partition].offset, ends[partition].offset, *told)
    return found


def _led(topics: Iterable[TopicInfo]) -> dict[TopicPartition, int]:
    """Returns the partitions that have a leader, with its epoch."""
    from replog.client import TopicPartition

    return {
        TopicPartition(topic.name, each.partition_id): each.leader_epoch
        for topic in topics
        for each in topic.partitions
        if each.leader >= 0
    }
