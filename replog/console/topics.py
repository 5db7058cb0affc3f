"""Topics: a page of them at a time, and one with its partitions, configurations and the groups that read it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from replog.client import TopicPartition
from replog.client.admin.health import is_unavailable, is_under_replicated
from replog.console.asking import answered, number_of, text_of
from replog.console.context import ASK_MS, CONTEXT, TOPICS_TOGETHER, Context, Lags, matching
from replog.errors import ReplogError, UnknownTopicOrPartitionError
from replog.metadata.records import ResourceType
from replog.rpc.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from replog.rpc.metadata_messages import ClusterMetadata, PartitionInfo, TopicInfo

PARTITIONS_MAX: Final = 500
"""Of one topic that are shown."""


async def topics(request: web.Request) -> web.Response:
    """Tells one page of the topics whose name holds a text."""
    context = request.app[CONTEXT]
    word, page = text_of(request, "search", ""), number_of(request, "page", 0, high=1_000_000)
    all_topics = (await context.metadata()).topics
    found = matching(all_topics, word)
    shown = found[page * TOPICS_TOGETHER : (page + 1) * TOPICS_TOGETHER]
    sizes = await known_sizes(context)
    ends = await context.ends_of(shown)
    return answered(
        {
            "topics_count": len(all_topics),
            "matching_count": len(found),
            "page": page,
            "pages_count": -(-len(found) // TOPICS_TOGETHER),
            "now_ms": time.time_ns() // 1_000_000,
            "topics": [
                row(topic, sizes, ends[topic.name]) | {"noted": context.end_history.of(topic.name)[-1:]}
                for topic in shown
            ],
        }
    )


async def topic(request: web.Request) -> web.Response:
    """Tells one topic: its partitions with offsets and sizes, what is set for it, and which groups read it."""
    context = request.app[CONTEXT]
    name = text_of(request, "topic")
    info = topic_named(await context.metadata(), name)
    shown = info.partitions[:PARTITIONS_MAX]
    starts = await context.offsets(name, shown, EARLIEST_TIMESTAMP)
    ends = await context.offsets(name, shown, LATEST_TIMESTAMP)
    sizes = await known_sizes(context)
    try:
        groups_count, lags = await context.all_lags.get()
        groups = {"groups_count": groups_count, "looked_at_count": len(lags), "groups": readers_of(name, lags)}
    except ReplogError as error:
        groups = {"groups_count": None, "looked_at_count": 0, "groups": [], "problem": str(error)}
    configs = await context.admin.describe_configs((ResourceType.TOPIC, name), timeout_ms=ASK_MS)
    return answered(
        {
            "name": name,
            "topic_id": info.topic_id,
            "now_ms": time.time_ns() // 1_000_000,
            "partitions_count": len(info.partitions),
            "partitions": [_partition(name, each, starts, ends, sizes) for each in shown],
            "history": context.end_history.of(name),
            "own_configs": sorted(entry.name for entry in info.configs),
            "configs": configs,
            **groups,
        }
    )


def topic_named(metadata: ClusterMetadata, name: str) -> TopicInfo:
    """Returns a topic.  Raises: UnknownTopicOrPartitionError: There is none of this name."""
    found = next((each for each in metadata.topics if each.name == name), None)
    if found is None:
        raise UnknownTopicOrPartitionError(f'there is no topic "{name}"')
    return found


async def known_sizes(context: Context) -> Mapping[TopicPartition, int]:
    """Returns the bytes of each partition; nothing where the brokers do not tell them."""
    try:
        return await context.sizes.get()
    except ReplogError:
        return {}


def row(topic: TopicInfo, sizes: Mapping[TopicPartition, int], end: int | None) -> dict[str, object]:
    """Returns what the list says of a topic.

    Args:
        topic: The topic.
        sizes: The bytes of partitions; where not all of its are there, `size_bytes` is None.
        end: The sum of its high watermarks; None: not all are told.
    """
    numbers = [each.partition_id for each in topic.partitions]
    own_sizes = [sizes.get(TopicPartition(topic.name, number)) for number in numbers]
    return {
        "name": topic.name,
        "partitions_count": len(numbers),
        "replicas_count": max((len(each.replicas) for each in topic.partitions), default=0),
        "unavailable_count": sum(map(is_unavailable, topic.partitions)),
        "under_replicated_count": sum(map(is_under_replicated, topic.partitions)),
        "end": end,
        "size_bytes": None if None in own_sizes else sum(size or 0 for size in own_sizes),
        "configs": {entry.name: entry.value for entry in topic.configs},
    }


def readers_of(topic: str, lags: Lags) -> list[dict[str, object]]:
    """Returns the groups that have committed of a topic, or read it, the one that is most behind first."""
    rows: list[dict[str, object]] = []
    for group, all_of_group in lags.items():
        if found := [each for each in all_of_group if each.topic == topic]:
            rows.append(
                {
                    "group_id": group,
                    "partitions_count": len(found),
                    "members_count": len({each.owner.member_id for each in found if each.owner is not None}),
                    "lag": sum(each.lag or 0 for each in found),
                    "lag_ms": max((each.lag_ms for each in found if each.lag_ms is not None), default=None),
                }
            )
    return sorted(rows, key=lambda each: -int(str(each["lag"])))


def _partition(
    topic: str,
    info: PartitionInfo,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    sizes: Mapping[TopicPartition, int],
) -> dict[str, object]:
    number = info.partition_id
    return {
        "partition": number,
        "leader": info.leader,
        "leader_epoch": info.leader_epoch,
        "replicas": info.replicas,
        "isr": info.isr,
        "elr": info.elr,
        "start": starts.get(number),
        "end": ends.get(number),
        "size_bytes": sizes.get(TopicPartition(topic, number)),
    }
