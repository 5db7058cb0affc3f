"""Offsets and counts of topics without reading a record: Spark's Python sources cannot answer `count()` from metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping

from replog.client.cluster.view import ClusterView
from replog.client.types import TopicPartition
from replog.errors import InvalidRequestError
from replog.metadata.records import ResourceType
from replog.rpc.node_messages import DescribeConfigsRequest
from replog.spark.options import ReadOptions, parse_read_options
from replog.spark.snapshot import PinnedOffsets, resolve_snapshot
from replog.spark.worker_client import ask_cluster, now_ms

CONFIGS_TIMEOUT_MS = 10_000
"""How long a broker may take to tell the configuration of a topic."""


def offsets(bootstrap_servers: str, **options: object) -> dict[TopicPartition, range]:
    """Returns the offsets that a batch read with these options would read now, by partition.

    Args:
        bootstrap_servers: The brokers to begin with, "host:port,host:port".
        options: The options of such a read by their names: `subscribe="rides"`, `startingTimestamp="-10m"`; a dict or list
            is taken for the json that it stands for.

    Raises:
        ConfigError: An option is refused, or no broker answers.
        ReplogError: Whatever else a batch read raises when it is made.
    """
    checked = _checked(bootstrap_servers, options)

    async def ask(view: ClusterView) -> PinnedOffsets:
        return await resolve_snapshot(view, checked, now_ms())

    return _ranges(ask_cluster(checked.brokers, ask))


def count(bootstrap_servers: str, *, allow_upper_bound: bool = False, **options: object) -> int:
    """Returns how many records a batch read with these options would read now.

    It counts offsets, and every offset of a topic is a record until the topic is compacted: a compacted topic is refused.  One that
    was compacted before its `cleanup.policy` was changed looks like any other; there the result is an upper bound, too.

    Args:
        bootstrap_servers: The brokers to begin with, "host:port,host:port".
        allow_upper_bound: Whether compacted topics are counted all the same; the result is an upper bound then.
        options: The options of such a read by their names, as for `offsets`.

    Raises:
        InvalidRequestError: A topic is compacted.
        ConfigError, ReplogError: What `offsets` raises.
    """
    checked = _checked(bootstrap_servers, options)

    async def ask(view: ClusterView) -> PinnedOffsets:
        pinned = await resolve_snapshot(view, checked, now_ms())
        if not allow_upper_bound:
            for topic in sorted({each.topic for each in pinned.ranges}):
                await _require_not_compacted(view, topic)
        return pinned

    return sum(map(len, _ranges(ask_cluster(checked.brokers, ask)).values()))


async def _require_not_compacted(view: ClusterView, topic: str) -> None:
    request = DescribeConfigsRequest(ResourceType.TOPIC, topic)
    response = await view.call_any(request, timeout_ms=CONFIGS_TIMEOUT_MS, what="describe configs")
    policies = [each.value for each in response.configs if each.name == "cleanup.policy"]
    if any("compact" in (policy or "") for policy in policies):
        raise InvalidRequestError(
            f"topic {topic} is compacted: not every offset is a record any more. Count it with Spark, or call "
            "count(..., allow_upper_bound=True) for the number of offsets."
        )


def _checked(bootstrap_servers: str, options: Mapping[str, object]) -> ReadOptions:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return parse_read_options({"bootstrap.servers": bootstrap_servers, **texts})


def _ranges(pinned: PinnedOffsets) -> dict[TopicPartition, range]:
    return {
        TopicPartition(each.topic, each.partition): range(each.start_offset, each.end_offset) for each in pinned.ranges
    }
