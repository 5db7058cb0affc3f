"""Leaders that brokers have named in their refusals (KIP-951), until the metadata know them, too.

Metadata that are pushed are there within milliseconds, those of Apache Kafka within a second; the broker that refuses a produce or
a fetch knows at once who leads in its place.  What it names counts only where its leader epoch is newer than that of the metadata:
a broker that lags behind takes nothing away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.client.cluster.addresses import address_of
from replog.client.cluster.image import ClusterImage
from replog.client.protocol.metadata import broker_at
from replog.rpc.messages import FetchResult, LeaderEndpoint, ProduceResult
from replog.rpc.metadata_messages import BrokerInfo

HINT_S: Final = 5.0
"""How long a hint counts that no metadata have told: a broker that takes a topic for one of the same name that was deleted
may name the other one's leader, whose epoch may be the higher one for good."""


class NamedLeader(Struct, frozen=True):
    """The leader of a partition that a broker named as it refused a request.

    Attributes:
        endpoint: Where that broker is; None: it was not told.
    """

    topic: str
    topic_id: UUID
    partition_id: int
    leader_id: int
    leader_epoch: int
    endpoint: LeaderEndpoint | None = None


def named_leader(topic: str, result: ProduceResult | FetchResult, endpoints: Iterable[LeaderEndpoint]) -> NamedLeader:
    """Returns the leader that a result names, with where it is, if one of the answer's endpoints is its."""
    endpoint = next((one for one in endpoints if one.broker_id == result.leader_id), None)
    return NamedLeader(topic, result.topic_id, result.partition_id, result.leader_id, result.leader_epoch, endpoint)


class _Hint(Struct, frozen=True):
    named: NamedLeader
    until_s: float

    def counts(self, told: ClusterImage) -> bool:
        """Whether metadata are older than this, and have the partition."""
        named = self.named
        topic, partition = told.topics.get(named.topic), told.partition(named.topic, named.partition_id)
        if topic is None or partition is None or topic.topic_id != named.topic_id:
            return False
        return partition.leader_epoch < named.leader_epoch


class LeaderHints:
    """Invariants:
    - there is at most one hint for a partition, that of the newest leader epoch;
    - partitions that the metadata do not have, or know as well, have none.
    """

    def __init__(self) -> None:
        self._hints: dict[tuple[str, int], _Hint] = {}

    def add(self, named: Iterable[NamedLeader], now_s: float) -> None:
        """Takes in what a broker has named."""
        for one in named:
            key, hint = (one.topic, one.partition_id), _Hint(one, now_s + HINT_S)
            known = self._hints.get(key)
            if known is None or known.named.topic_id != one.topic_id or known.named.leader_epoch < one.leader_epoch:
                self._hints[key] = hint

    def over(self, told: ClusterImage, now_s: float) -> ClusterImage:
        """Returns metadata with the leaders of the hints that are newer, and forgets the other hints."""
        self._hints = {key: hint for key, hint in self._hints.items() if now_s < hint.until_s and hint.counts(told)}
        if not self._hints:
            return told
        topics, brokers = dict(told.topics), dict(told.brokers)
        for hint in self._hints.values():
            named = hint.named
            _take_in_broker(named.endpoint, brokers)
            if named.leader_id not in brokers:
                continue
            topic = topics[named.topic]
            partitions = list(topic.partitions)
            partitions[named.partition_id] = replace(
                partitions[named.partition_id], leader=named.leader_id, leader_epoch=named.leader_epoch
            )
            topics[named.topic] = replace(topic, partitions=tuple(partitions))
        return replace(told, broker_infos=tuple(brokers.values()), topics=topics)


def _take_in_broker(endpoint: LeaderEndpoint | None, brokers: dict[int, BrokerInfo]) -> None:
    if endpoint is None:
        return
    found = broker_at(endpoint.broker_id, endpoint.host, endpoint.port, endpoint.rack)
    known = brokers.get(endpoint.broker_id)
    if known is None:
        brokers[endpoint.broker_id] = found
    elif address_of(known) != address_of(found):
        brokers[endpoint.broker_id] = replace(known, host=found.host, port=found.port, endpoints=found.endpoints)
