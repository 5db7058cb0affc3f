"""The metadata of brokers that do not push them: asked for again and again, and told as updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from msgspec.structs import replace

from replog.client.protocol.link import Link
from replog.errors import ErrorCode
from replog.errors.from_code import error_from_number
from replog.metadata.records import CLIENT_LISTENER, BrokerEndpoint
from replog.rpc.metadata_messages import BrokerInfo, MetadataUpdate, PartitionInfo, TopicInfo, WatchRequest
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse

POLL_S: Final = 1.0
"""The least time between two questions for a watch; a client that meets a wrong leader asks at once."""

POLL_SHARE: Final = 0.02
"""The share of the time that asking may take, where the answer is long."""

TIMEOUT_MS: Final = 5_000


class MetadataPolls:
    """What one client was told by all brokers together.

    Kafka's brokers do not say how new their metadata are.  A broker that lags behind is recognised by the epochs of
    leaders: a partition is as the answer with its highest epoch says.  Answers count up in the place of offsets.
    """

    def __init__(self) -> None:
        self._count = 0
        self._topics: dict[str, TopicInfo] = {}

    async def updates(self, link: Link, address: str, request: WatchRequest) -> AsyncIterator[MetadataUpdate]:
        """Yields the whole metadata as one broker has them, again and again; once where the watch does not follow."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            asked = MetadataRequest(None, allow_auto_topic_creation=False)
            answer = await link.ask(asked, MetadataResponse, timeout_ms=TIMEOUT_MS)
            if answer.error_code:
                raise error_from_number(
                    answer.error_code, answer.error_message or f"{address} refuses to tell its metadata"
                )
            yield self._told(answer)
            if not request.follow:
                return
            await asyncio.sleep(max(POLL_S, (loop.time() - began_s) / POLL_SHARE))

    def _told(self, answer: MetadataResponse) -> MetadataUpdate:
        self._count += 1
        brokers, found = topic_infos(answer)
        topics = self._topics = {topic.name: self._newest(topic) for topic in found}
        return MetadataUpdate(
            cluster_id=answer.cluster_id or "",
            metadata_offset=self._count,
            controller_id=answer.controller_id,
            controller_epoch=-1,
            brokers=brokers,
            topics=tuple(topics.values()),
            is_full=True,
        )

    def _newest(self, told: TopicInfo) -> TopicInfo:
        known = self._topics.get(told.name)
        if known is None or known.topic_id != told.topic_id:
            return told
        newest = {partition.partition_id: partition for partition in told.partitions}
        for partition in known.partitions:
            other = newest.get(partition.partition_id)
            if other is None or other.leader_epoch < partition.leader_epoch:
                newest[partition.partition_id] = partition
        return replace(told, partitions=tuple(newest[number] for number in sorted(newest)))


def topic_infos(answer: MetadataResponse) -> tuple[tuple[BrokerInfo, ...], tuple[TopicInfo, ...]]:
    """Returns the brokers that an answer tells of, and the topics that exist."""
    return (
        tuple(
            broker_at(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in sorted(answer.brokers, key=lambda broker: broker.node_id)
        ),
        tuple(
            _topic(topic)
            for topic in answer.topics
            if topic.name is not None and topic.error_code in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE}
        ),
    )


def broker_at(broker_id: int, host: str, port: int, rack: str | None) -> BrokerInfo:
    """Returns a broker of which no more is known than where it serves clients."""
    at = BrokerEndpoint(CLIENT_LISTENER, host, port)
    return BrokerInfo(broker_id, host, port, -1, fenced=False, rack=rack, endpoints=(at,))


def _topic(topic: MetadataResponse.MetadataResponseTopic) -> TopicInfo:
    partitions = tuple(
        PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    return TopicInfo(topic.name or "", topic.topic_id, partitions)
