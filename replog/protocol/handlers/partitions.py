"""Shared by the handlers of requests for partitions: endpoints of brokers, and codes that clients can act on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from replog.errors import ErrorCode
from replog.metadata.image import MetadataImage, TopicImage
from replog.protocol.handlers.metadata import reachable
from replog.protocol.handlers.node import NO_TOPIC_ID, KafkaNode

LEADER_CHANGES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Errors at which a client is told the leader (KIP-951)."""

FOLLOWER = "followers are brokers of replog, which come by their own listener: this port is for clients, whose replica id is -1"


class NodeEndpoint(NamedTuple):
    """The endpoint at which a client reaches a broker; the fields of `NodeEndpoint` in each response."""

    node_id: int
    host: str
    port: int
    rack: str | None


def endpoints(node: KafkaNode, broker_ids: Iterable[int], listener: str) -> Iterator[NodeEndpoint]:
    """Yields the endpoints, for the clients of a listener, of those brokers that have one."""
    wanted = set(broker_ids)
    if wanted:
        for broker_id, at in reachable(node, listener).items():
            if broker_id in wanted:
                yield NodeEndpoint(broker_id, at.host, at.port, node.image.brokers[broker_id].rack)


def named_topic(image: MetadataImage, name: str, topic_id: UUID) -> TopicImage | None:
    """Returns the topic of a name; None where there is none, or another one than our client means by its id, or by that alone."""
    if not name:
        return image.topics_by_id.get(topic_id)
    found = image.topics_by_name.get(name)
    return None if found is not None and topic_id not in {NO_TOPIC_ID, found.topic_id} else found


def told_code(code: ErrorCode, *, by_id: bool = False, knows_storage: bool = True) -> ErrorCode:
    """Returns the code that a client is told of a partition: one after which it asks again if it should.

    A client takes BROKER_NOT_AVAILABLE for final; a broker without its lease does not lead any more, and is told as such.  All
    clients but Java's also give up at THROTTLING_QUOTA_EXCEEDED, which stands for a passing want of descriptors, of room on the
    disk or in a queue.  A client that names topics does not expect codes about ids.

    Args:
        code: The code of the node's answer.
        by_id: Whether the request names topics by their ids.
        knows_storage: Whether clients of the request's version know KAFKA_STORAGE_ERROR (KIP-112).
    """
    if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        code = ErrorCode.KAFKA_STORAGE_ERROR
    if code is ErrorCode.KAFKA_STORAGE_ERROR and not knows_storage:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code is ErrorCode.BROKER_NOT_AVAILABLE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code is ErrorCode.UNKNOWN_TOPIC_ID and not by_id:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code
