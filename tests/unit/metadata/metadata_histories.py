"""Random histories of a cluster as records, all of them valid: what the tests of images, deltas and snapshots replay."""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st

from replog.access.credentials import ScramMechanism
from replog.access.delegation_tokens import DelegationToken
from replog.access.entries import AclEntry, AclOperation, PatternType, Permission, ResourceKind
from replog.metadata import MetadataDelta, MetadataImage
from replog.metadata.records import (
    CLIENT_LISTENER,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    DelegationTokenRecord,
    DrainBrokerRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    LeaderRecoveryState,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ResourceType,
    SupportedFeature,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from tests.random_examples import examples

bounded = settings(max_examples=examples(20), deadline=None)
"""Enough for each rule to be broken by some example; the machine may be busy."""

brokers = st.integers(1, 3)
replicas = st.lists(brokers, min_size=1, max_size=3, unique=True).map(tuple)
maybe_replicas = st.none() | st.just(()) | replicas
endpoints = st.sampled_from([(), (BrokerEndpoint(CLIENT_LISTENER, "host", 9001),)])
KINDS = (
    "register", "unregister", "fence", "drain", "controller", "topic", "topic", "remove", "partition", "partition",
    "partition", "change", "change", "change", "config", "config", "user", "user", "token", "token", "producer_ids", "feature", "no_op", "acl", "acl",
)  # fmt: skip


def replayed(records: list[MetadataRecord], image: MetadataImage | None = None) -> MetadataImage:
    """The image after records that follow `image`."""
    image = image or MetadataImage()
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(image.end_offset + len(records), 1)


def contents(image: MetadataImage) -> dict[str, object]:
    """What an image says, without where in the log it stands."""
    return {
        "brokers": dict(image.brokers),
        "topics": {
            topic_id: (topic.name, dict(topic.partitions)) for topic_id, topic in image.topics_by_id.items()
        },
        "names": {name: topic.topic_id for name, topic in image.topics_by_name.items()},
        "configs": {resource: dict(values) for resource, values in image.configs.items()},
        "features": dict(image.features),
        "users": dict(image.scram_credentials),
        "tokens": dict(image.delegation_tokens),
        "controllers": dict(image.controllers),
        "acls": dict(image.acls),
        "drained": image.drained_brokers,
        "next_producer_id": image.next_producer_id,
        "open_transaction": image.open_transaction,
    }  # fmt: skip


class History:
    """Draws one record at a time that the records before allow."""

    def __init__(self, data: st.DataObject, image: MetadataImage | None = None) -> None:
        self._draw = data.draw
        self.image = image or MetadataImage()

    def step(self) -> MetadataRecord | None:
        """The next record, None where the kind drawn has nothing to work on."""
        record = self._record(self._draw(st.sampled_from(KINDS)))
        if record is not None:
            self.image = replayed([record], self.image)
        return record

    def _record(self, kind: str) -> MetadataRecord | None:
        if kind in {"register", "unregister", "fence", "drain", "controller"}:
            return self._node_record(kind)
        if kind in {"topic", "remove", "partition", "change"}:
            return self._topic_record(kind)
        draw, image = self._draw, self.image
        match kind:
            case "config":
                kind_of, name = draw(st.sampled_from([(ResourceType.TOPIC, "a"), (ResourceType.BROKER, "")]))
                key = draw(st.sampled_from(["retention.ms", "segment.bytes"]))
                return ConfigRecord(kind_of, name, key, draw(st.sampled_from([None, "1", "2"])))
            case "user":
                name, mechanism = draw(st.sampled_from("ab")), draw(st.sampled_from(list(ScramMechanism)))
                if draw(st.booleans()):
                    return RemoveUserScramCredentialRecord(name, mechanism)
                return UserScramCredentialRecord(
                    name, mechanism, b"salt", draw(st.sampled_from([b"k", b"l"])), b"s", 4096
                )
            case "producer_ids":
                return ProducerIdsRecord(1, 1, image.next_producer_id + draw(st.integers(0, 1000)))
            case "acl" | "token":
                return self._acl_record() if kind == "acl" else self._token_record()
            case "feature":
                return FeatureLevelRecord(draw(st.sampled_from(["metadata.version", "x"])), draw(st.integers(1, 3)))
            case _:
                return NoOpRecord()

    def _acl_record(self) -> MetadataRecord:
        draw, known = self._draw, sorted(self.image.acls)
        if known and draw(st.booleans()):
            return RemoveAccessControlEntryRecord(draw(st.sampled_from(known)))
        host = f"10.0.0.{len(known)}"
        entry = AclEntry(
            ResourceKind.TOPIC, "a", PatternType.LITERAL, "User:b", host, AclOperation.READ, Permission.ALLOW
        )
        return AccessControlEntryRecord(UUID(int=self.image.end_offset), entry)

    def _token_record(self) -> MetadataRecord:
        token_id = self._draw(st.sampled_from("ab"))
        if self._draw(st.booleans()):
            return RemoveDelegationTokenRecord(token_id)
        expiry_ms = self._draw(st.integers(2, 9))
        return DelegationTokenRecord(DelegationToken(token_id, "u", "v", ("w",), 1, 9, expiry_ms))

    def _node_record(self, kind: str) -> MetadataRecord | None:
        draw, offset = self._draw, self.image.end_offset
        match kind:
            case "register":
                broker_id = draw(brokers)
                return RegisterBrokerRecord(
                    broker_id,
                    incarnation_id=UUID(int=offset),
                    broker_epoch=offset,
                    host="host",
                    port=9000,
                    log_dirs=(UUID(int=broker_id),),
                    rack=draw(st.sampled_from([None, "a"])),
                    fenced=draw(st.booleans()),
                    supported_features=draw(st.sampled_from([(), (SupportedFeature("metadata.version", 1, 2),)])),
                    endpoints=draw(endpoints),
                )
            case "drain":
                return DrainBrokerRecord(draw(brokers), draw(st.booleans()))
            case "controller":
                return RegisterControllerRecord(draw(brokers), UUID(int=offset), "host", draw(st.integers(1, 9)))
            case _ if self.image.brokers:
                broker = self.image.brokers[draw(st.sampled_from(sorted(self.image.brokers)))]
                if kind == "unregister":
                    return UnregisterBrokerRecord(broker.broker_id, broker.broker_epoch)
                change = draw(st.none() | st.booleans())
                return BrokerRegistrationChangeRecord(
                    broker.broker_id, broker.broker_epoch, change, draw(st.booleans()), draw(st.none() | endpoints)
                )
            case _:
                return None

    def _topic_record(self, kind: str) -> MetadataRecord | None:
        if kind == "topic":
            name = self._draw(st.sampled_from(["a", "b", "c", "d"]))
            known = name in self.image.topics_by_name
            return None if known else TopicRecord(name, UUID(int=1000 + self.image.end_offset))
        if not self.image.topics_by_id:
            return None
        return self._record_of_topic(kind, self._draw(st.sampled_from(sorted(self.image.topics_by_id))))

    def _record_of_topic(self, kind: str, topic_id: UUID) -> MetadataRecord | None:
        draw, partitions = self._draw, self.image.topics_by_id[topic_id].partitions
        match kind:
            case "remove":
                return RemoveTopicRecord(topic_id)
            case "partition":
                assigned = draw(replicas)
                state = draw(st.sampled_from(list(LeaderRecoveryState)))
                if draw(st.booleans()):  # waits for the reports of all
                    return PartitionRecord(len(partitions), topic_id, assigned, (), -1, 0, 0, last_known_elr=assigned)
                return PartitionRecord(
                    len(partitions), topic_id, assigned, assigned[:1], assigned[0], 0, 0, assigned[1:], (), state
                )
            case _ if partitions:
                return PartitionChangeRecord(
                    draw(st.sampled_from(sorted(partitions))),
                    topic_id,
                    leader=draw(st.sampled_from([None, -1, -1, 1, 2])),
                    isr=draw(maybe_replicas),
                    elr=draw(maybe_replicas),
                    last_known_elr=draw(maybe_replicas),
                    replicas=draw(st.none() | replicas),
                    adding_replicas=draw(maybe_replicas),
                    removing_replicas=draw(maybe_replicas),
                )
            case _:
                return None


def records_of(data: st.DataObject, image: MetadataImage | None = None, max_size: int = 30) -> list[MetadataRecord]:
    """A history that follows `image`."""
    history = History(data, image)
    steps = data.draw(st.integers(0, max_size))
    return [record for _ in range(steps) if (record := history.step()) is not None]


def in_transaction(records: list[MetadataRecord], *, aborted: bool) -> list[MetadataRecord]:
    """The records between a begin and an end."""
    end: MetadataRecord = AbortTransactionRecord("test") if aborted else EndTransactionRecord()
    return [BeginTransactionRecord("test"), *records, end]
