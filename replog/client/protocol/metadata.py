"""The metadata of brokers that do not push them: asked for again and again, and told as updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from replog.client.protocol.link import Link
from replog.errors import ErrorCode
from replog.errors.from_code import error_from_number
from replog.metadata.records import CLIENT_LISTENER, BrokerEndpoint
from replog.rpc.metadata_messages import BrokerInfo, MetadataUpdate, PartitionInfo, TopicInfo, WatchRequest
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse

POLL_S: Final = 1.0
"""The least time between two questions for a watch; a client that meets a wrong leader asks at once."""

MISSED_S: Final = 5.0
"""How long answers may lack a topic that others have told, before it is taken for deleted."""

BROKERS_MAX: Final = 1_000
"""Brokers whose last answers are remembered."""

POLL_SHARE: Final = 0.02
"""The share of the time that asking may take, where the answer is long."""

TIMEOUT_MS: Final = 5_000


class MetadataPolls:
    """What one client was told by all brokers together.

    Kafka's brokers do not say how new their metadata are.  A broker that lags behind is recognised by the epochs of
    leaders: a partition is as the answer with its highest epoch says.  A topic is gone, or another one of its name, when a
    broker says so that knew it before; one that never told of it may not have heard of it yet, and is believed only when it was
    missed for `MISSED_S`.  Answers with news count up in the place of offsets.
    """

    def __init__(self) -> None:
        self._cluster_id = ""
        self._count = 0
        self._newest: tuple[Any, ...] = ()
        self._controller_id = -1
        self._topics: dict[str, TopicInfo] = {}
        self._ids_told: dict[str, frozenset[UUID]] = {}  # by each broker's address, in its last answer
        self._missed_from_s: dict[UUID, float] = {}

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
            yield self._told(answer, address, loop.time())
            if not request.follow:
                return
            await asyncio.sleep(max(POLL_S, (loop.time() - began_s) / POLL_SHARE))

    def _told(self, answer: MetadataResponse, address: str, now_s: float) -> MetadataUpdate:
        brokers, found = topic_infos(answer)
        cluster_id = answer.cluster_id or ""
        self._cluster_id = self._cluster_id or cluster_id
        if cluster_id != self._cluster_id:  # the client refuses it
            return MetadataUpdate(cluster_id, self._count, answer.controller_id, -1, brokers, found, is_full=True)
        topics = self._topics = self._merged({topic.name: topic for topic in found}, address, now_s)
        if self._controller_id not in {broker.broker_id for broker in brokers}:
            self._controller_id = answer.controller_id  # with KRaft each answer names any broker that lives
        newest = self._controller_id, brokers, topics
        if newest != self._newest:
            self._count += 1
            self._newest = newest
        return MetadataUpdate(
            cluster_id, self._count, self._controller_id, -1, brokers, tuple(topics.values()), is_full=True
        )

    def _merged(self, told: Mapping[str, TopicInfo], address: str, now_s: float) -> dict[str, TopicInfo]:
        """Returns the newest of each topic, by what one broker tells and what was told before."""
        knew, missed, topics = self._ids_told.get(address, frozenset()), self._missed_from_s, dict(told)
        self._missed_from_s = {}
        for name, known in self._topics.items():
            topic, topic_id = told.get(name), known.topic_id
            if topic is not None and topic.topic_id == topic_id:
                topics[name] = _newer(known, topic)
            elif topic_id not in knew and now_s - missed.get(topic_id, now_s) < MISSED_S:
                topics[name] = known
                self._missed_from_s[topic_id] = missed.get(topic_id, now_s)
        if len(self._ids_told) >= BROKERS_MAX:
            self._ids_told.clear()
        self._ids_told[address] = frozenset(topic.topic_id for topic in told.values())
        return topics


def _newer(known: TopicInfo, told: TopicInfo) -> TopicInfo:
    """Returns each partition of a topic as the higher leader epoch has it."""
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
            -1,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    return TopicInfo(topic.name or "", topic.topic_id, partitions)
