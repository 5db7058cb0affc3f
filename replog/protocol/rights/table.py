"""The table of rights: what each API needs, as Apache Kafka 4.1 has it (`KafkaApis`, `ControllerApis`), and what ours need.

An API without a row cannot be served: its row in `served.py` has its right.  `docs/RIGHTS.md` is this table for people, and
`tools/rights_page.py` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from replog.access.entries import CLUSTER_NAME, AclOperation, ResourceKind
from replog.controller.requests import (
    AlterClientQuotas,
    AlterConfigs,
    AlterPartitionReassignments,
    AlterUserScramCredentials,
    CreateAcls,
    CreateDelegationToken,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    DrainBroker,
    ElectLeaders,
    ForkTopic,
    UnregisterBroker,
    UpdateFeatures,
)
from replog.controller.rights import ALTERS_CLUSTER, CHANGE_RIGHTS
from replog.coordinator.consumers.requests import WaitForGroupNews
from replog.coordinator.transactions.requests import ForgetTransactionalId, PrepareTransaction
from replog.errors import ErrorCode
from replog.metadata.image import MetadataImage
from replog.metadata.records import ResourceType
from replog.protocol.handlers.node import NO_TOPIC_ID, Failure
from replog.protocol.private import PRIVATE_APIS
from replog.protocol.rights.needs import Each, Inside, Need, Resource, Right
from replog.rpc.messages import FindCutsRequest
from replog.rpc.metadata_messages import WaitForMetadata
from replog.rpc.node_messages import (
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeNodeConfigsRequest,
    DescribeNodeRequest,
    DescribeQuorumRequest,
    LocateSegmentsRequest,
)
from replog.wire.messages.apis import APIS

_READ, _WRITE, _CREATE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
_ALTER, _DESCRIBE, _CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS = AclOperation.DESCRIBE_CONFIGS
_TOPIC, _GROUP, _CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
_TRANSACTIONAL_ID = ResourceKind.TRANSACTIONAL_ID

# ---- whose right it is -----------------------------------------------------------------------------------------------


def _group(request: Any, _image: MetadataImage) -> Iterable[str]:
    return (request.group_id,)


def _transactional_id(request: Any, _image: MetadataImage) -> Iterable[str]:
    return (request.transactional_id,)


def _subscribed(request: Any, _image: MetadataImage) -> Iterable[str]:
    return request.subscribed_topic_names or ()


def _asked_group(asked: Any, _image: MetadataImage) -> Iterable[str]:
    return (asked.question.group_id,)


def _asked_transactional_id(asked: Any, _image: MetadataImage) -> Iterable[str]:
    return (asked.question.transactional_id,)


def _forked(asked: Any, _image: MetadataImage) -> Iterable[str]:
    return (asked.question.source,)


def _asked_topic(asked: Any, image: MetadataImage) -> Iterable[str]:
    """Returns the name of the topic; "" where it is not known, which few may read."""
    found = image.topics_by_id.get(asked.question.topic_id)
    return ("" if found is None else found.name,)


def _asked_topics(asked: Any, image: MetadataImage) -> Iterable[str]:
    found = map(image.topics_by_id.get, {each.topic_id for each in asked.question.partitions})
    return ("" if one is None else one.name for one in found)


def _topic_name(_image: MetadataImage, topic: Any) -> Iterable[Resource]:
    return ((_TOPIC, topic.name),)


def _topic(_image: MetadataImage, topic: Any) -> Iterable[Resource]:
    return ((_TOPIC, topic.topic),)


def _topic_or_id(image: MetadataImage, topic: Any) -> Iterable[Resource] | ErrorCode:
    """Returns the topic of a name, or of an id where there is no name; unknown ids are what the version says."""
    name: str = getattr(topic, "topic", "") or getattr(topic, "name", None) or ""
    if name:
        return ((_TOPIC, name),)
    if topic.topic_id == NO_TOPIC_ID:
        return () if getattr(topic, "name", "") is None else ((_TOPIC, ""),)  # of which is none, the handler says so
    found = image.topics_by_id.get(topic.topic_id)
    return ErrorCode.UNKNOWN_TOPIC_ID if found is None else ((_TOPIC, found.name),)


def _our_topic(image: MetadataImage, topic: Any) -> Iterable[Resource] | ErrorCode:
    """Returns the topic of a name, or of an id by which only our client names it."""
    found = _topic_or_id(image, topic)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(found, ErrorCode) else found


def _one_topic(_image: MetadataImage, name: str) -> Iterable[Resource]:
    return ((_TOPIC, name),)


def _one_group(_image: MetadataImage, name: str) -> Iterable[Resource]:
    return ((_GROUP, name),)


def _one_transactional_id(_image: MetadataImage, name: str) -> Iterable[Resource]:
    return ((_TRANSACTIONAL_ID, name),)


_GROUP_CONFIGS: Final = 32
"""Kafka's type of the configurations of a group."""


def _configured(_image: MetadataImage, resource: Any) -> Iterable[Resource]:
    """Returns what has the configurations: those of brokers, of loggers, and of what is not known are the cluster's."""
    if resource.resource_type == ResourceType.TOPIC:
        return ((_TOPIC, resource.resource_name),)
    if resource.resource_type == _GROUP_CONFIGS:
        return ((_GROUP, resource.resource_name),)
    return ((_CLUSTER, CLUSTER_NAME),)


def _offset_delete_topic(topic: Any, failure: Failure) -> Any:
    from replog.protocol.handlers.groups.group_offsets import refuse_topic_of_offset_delete

    return refuse_topic_of_offset_delete(topic, failure)


# ---- what the controller needs, too ------------------------------------------------------------------------------------


def _change(change: type) -> Right:
    """Returns the row of an API whose change as a whole needs something of the cluster."""
    return Right((Need(CHANGE_RIGHTS[change].operation),), administers=True)


def _each(
    change: type,
    asked: str,
    told: str,
    resources: Callable[[MetadataImage, Any], Iterable[Resource] | ErrorCode],
    kinds: tuple[ResourceKind, ...] = (_TOPIC,),
) -> Each:
    """Returns what each thing of a change needs."""
    right = CHANGE_RIGHTS[change]
    return Each(right.operation, asked, told, resources, kinds, everywhere=right.everywhere)


# ---- rows ------------------------------------------------------------------------------------------------------------

_ALTERS_CLUSTER: Final = Right((Need(ALTERS_CLUSTER.operation),), administers=True)
_LOGIN: Final = Right(note="everybody: by it a client shows who it is")
_DESCRIBES_CLUSTER: Final = Right((Need(_DESCRIBE),))
_MEMBER: Final = Right((Need(_READ, _GROUP, _group),))
_OWN_TOKEN: Final = Right(
    note="its owner and its renewers; nobody over plain text, or with a token: error 64", administers=True
)
_CONFIGS: Final = (_TOPIC, _GROUP, _CLUSTER)

_KAFKAS: Final[Mapping[str, Right]] = {
    "produce": Right(
        (
            Inside(_WRITE, _TRANSACTIONAL_ID, "of batches of a transaction: all partitions are refused"),
            Each(_WRITE, "topic_data", "responses", _topic_or_id, (_TOPIC,)),
        ),
        "idempotence needs no more: who may write has an id",
    ),
    "fetch": Right(
        (Inside(_READ, _TOPIC, "each partition of the request and of its session, each time; it ends the session"),),
        "who waits while a right is taken away gets no records of the topic",
    ),
    "list_offsets": Right((Each(_DESCRIBE, "topics", "topics", _our_topic, (_TOPIC,)),)),
    "offset_for_leader_epoch": Right(
        (Each(_DESCRIBE, "topics", "topics", _our_topic, (_TOPIC,), everywhere=_CLUSTER_ACTION),)
    ),
    "init_producer_id": Right(
        (
            Inside(_WRITE, _TRANSACTIONAL_ID, "with a transactional id"),
            Inside(AclOperation.IDEMPOTENT_WRITE, _CLUSTER, "without one; WRITE on any topic does as well"),
        )
    ),
    "metadata": Right(
        (
            Inside(
                _DESCRIBE, _TOPIC, "a topic that is named is refused, without its id or name; among all it is left out"
            ),
            Inside(_CREATE, _TOPIC, "to create a missing topic; CREATE on the cluster does as well"),
            Inside(_DESCRIBE, _CLUSTER, "to be told the operations on the cluster: else none"),
        ),
        "brokers are told to everybody",
    ),
    "create_topics": Right(
        (
            _each(CreateTopics, "topics", "topics", _topic_name),
            Inside(
                _DESCRIBE_CONFIGS, _TOPIC, "to be told the configuration of the new topic: else only that it is there"
            ),
        ),
        administers=True,
    ),
    "delete_topics": Right(
        (
            _each(DeleteTopics, "topics", "responses", _topic_or_id),
            _each(DeleteTopics, "topic_names", "responses", _one_topic),
        ),
        administers=True,
    ),
    "create_partitions": Right((_each(CreatePartitions, "topics", "results", _topic_name),), administers=True),
    "delete_records": Right((Each(_DELETE, "topics", "topics", _our_topic, (_TOPIC,)),), administers=True),
    "describe_topic_partitions": Right(
        (Inside(_DESCRIBE, _TOPIC, "a topic that is named is refused; among all it is left out"),)
    ),
    "describe_configs": Right((Each(_DESCRIBE_CONFIGS, "resources", "results", _configured, _CONFIGS),)),
    "incremental_alter_configs": Right(
        (_each(AlterConfigs, "resources", "responses", _configured, _CONFIGS),), administers=True
    ),
    "alter_configs": Right((_each(AlterConfigs, "resources", "responses", _configured, _CONFIGS),), administers=True),
    "list_config_resources": Right((Need(_DESCRIBE_CONFIGS),)),
    "find_coordinator": Right(
        (
            Inside(_DESCRIBE, _GROUP, "of a group: each is refused for itself"),
            Inside(_DESCRIBE, _TRANSACTIONAL_ID, "of a transactional id: each is refused for itself"),
        )
    ),
    "offset_commit": Right((Need(_READ, _GROUP, _group), Each(_READ, "topics", "topics", _topic_name, (_TOPIC,)))),
    "offset_fetch": Right(
        (
            Inside(_DESCRIBE, _GROUP, "each group is refused for itself"),
            Inside(_DESCRIBE, _TOPIC, "a topic that is named is refused; among all it is left out"),
        )
    ),
    "txn_offset_commit": Right(
        (
            Need(_WRITE, _TRANSACTIONAL_ID, _transactional_id),
            Need(_READ, _GROUP, _group),
            Each(_READ, "topics", "topics", _topic_name, (_TOPIC,)),
        )
    ),
    "offset_delete": Right(
        (
            Need(_DELETE, _GROUP, _group),
            Each(_READ, "topics", "topics", _topic_name, (_TOPIC,), refuse=_offset_delete_topic),
        ),
        administers=True,
    ),
    "delete_groups": Right((Each(_DELETE, "groups_names", "results", _one_group, (_GROUP,)),), administers=True),
    "list_groups": Right((Inside(_DESCRIBE, _GROUP, "a group is left out; DESCRIBE on the cluster shows all"),)),
    "describe_groups": Right((Each(_DESCRIBE, "groups", "groups", _one_group, (_GROUP,)),)),
    "consumer_group_describe": Right(
        (
            Each(_DESCRIBE, "group_ids", "groups", _one_group, (_GROUP,)),
            Inside(_DESCRIBE, _TOPIC, "each topic that members have or get: else the group is refused"),
        )
    ),
    "consumer_group_heartbeat": Right(
        (Need(_READ, _GROUP, _group), Need(_DESCRIBE, _TOPIC, _subscribed)),
        "a pattern matches what the member may describe that has named it last; the coordinator looks every ten seconds",
    ),
    "join_group": Right((Inside(_READ, _GROUP, "the group"),)),
    "sync_group": _MEMBER,
    "heartbeat": _MEMBER,
    "leave_group": _MEMBER,
    "describe_cluster": Right(
        (Inside(_DESCRIBE, _CLUSTER, "to be told the operations on the cluster: else none"),),
        "brokers are told to everybody",
    ),
    "unregister_broker": _change(UnregisterBroker),
    "update_features": _change(UpdateFeatures),
    "elect_leaders": _change(ElectLeaders),
    "alter_partition_reassignments": _change(AlterPartitionReassignments),
    "list_partition_reassignments": _DESCRIBES_CLUSTER,
    "describe_quorum": _DESCRIBES_CLUSTER,
    "add_raft_voter": _ALTERS_CLUSTER,
    "remove_raft_voter": _ALTERS_CLUSTER,
    "describe_log_dirs": _DESCRIBES_CLUSTER,
    "alter_replica_log_dirs": _ALTERS_CLUSTER,
    "describe_producers": Right((Each(_READ, "topics", "topics", _topic_name, (_TOPIC,)),)),
    "add_partitions_to_txn": Right(
        (
            Inside(_WRITE, _TRANSACTIONAL_ID, "of clients, below version 4"),
            Inside(_WRITE, _TOPIC, "of clients: without it none of the partitions is added"),
            Inside(_CLUSTER_ACTION, _CLUSTER, "of brokers, from version 4 on"),
        )
    ),
    "add_offsets_to_txn": Right((Need(_WRITE, _TRANSACTIONAL_ID, _transactional_id), Need(_READ, _GROUP, _group))),
    "end_txn": Right((Need(_WRITE, _TRANSACTIONAL_ID, _transactional_id),)),
    "sasl_handshake": _LOGIN,
    "sasl_authenticate": _LOGIN,
    "describe_user_scram_credentials": _DESCRIBES_CLUSTER,
    "alter_user_scram_credentials": _change(AlterUserScramCredentials),
    "create_delegation_token": Right(
        (
            Inside(
                CHANGE_RIGHTS[CreateDelegationToken].operation,
                ResourceKind.USER,
                "for another user, named User:NAME; for oneself nothing",
            ),
        ),
        "nobody over plain text, without a certificate or a login, or with a token: error 64",
        administers=True,
    ),
    "renew_delegation_token": _OWN_TOKEN,
    "expire_delegation_token": _OWN_TOKEN,
    "describe_delegation_token": Right(
        (
            Inside(
                _DESCRIBE,
                ResourceKind.DELEGATION_TOKEN,
                "a token of others is left out; whose owner or renewer one is, is told",
            ),
            Inside(AclOperation.DESCRIBE_TOKENS, ResourceKind.USER, "the owner, named User:NAME: does as well"),
        ),
        "tells the HMAC, by which one logs in as the owner; nobody over plain text, or with a token: error 64",
    ),
    "describe_acls": _DESCRIBES_CLUSTER,
    "create_acls": _change(CreateAcls),
    "delete_acls": _change(DeleteAcls),
    "describe_client_quotas": Right((Need(_DESCRIBE_CONFIGS),)),
    "alter_client_quotas": _change(AlterClientQuotas),
    "describe_transactions": Right(
        (
            Each(_DESCRIBE, "transactional_ids", "transaction_states", _one_transactional_id, (_TRANSACTIONAL_ID,)),
            Inside(_DESCRIBE, _TOPIC, "a topic of a transaction is left out"),
        )
    ),
    "list_transactions": Right((Inside(_DESCRIBE, _TRANSACTIONAL_ID, "a transactional id is left out"),)),
    "write_txn_markers": Right((Need(_ALTER, otherwise=_CLUSTER_ACTION),), administers=True),
}

_OURS: Final[Mapping[type, Right]] = {
    WaitForMetadata: Right(
        (Inside(_DESCRIBE, _TOPIC, "every topic there is: our client asks by Metadata instead"),),
        "needs DESCRIBE_CONFIGS of each topic as well, since it tells them",
    ),
    WaitForGroupNews: Right((Need(_READ, _GROUP, _asked_group),)),
    FindCutsRequest: Right((Need(_READ, _TOPIC, _asked_topics, by_id=True),)),
    LocateSegmentsRequest: Right(
        (Need(_DESCRIBE), Need(_READ, _TOPIC, _asked_topic, by_id=True)),
        "tells paths of files, which are then read past all rights: permissions of files are the last door",
    ),
    DescribeNodeRequest: _DESCRIBES_CLUSTER,
    DescribeNodeConfigsRequest: Right((Need(_DESCRIBE_CONFIGS),)),
    DescribeLogDirsRequest: _DESCRIBES_CLUSTER,
    DescribeQuorumRequest: _DESCRIBES_CLUSTER,
    DrainBroker: _change(DrainBroker),
    ForkTopic: Right(
        (
            Need(_READ, _TOPIC, _forked),
            Need(_DESCRIBE_CONFIGS, _TOPIC, _forked),
            Inside(CHANGE_RIGHTS[ForkTopic].operation, _TOPIC, "the copy; CREATE on the cluster does as well"),
        ),
        administers=True,
    ),
    DescribeConfigsRequest: Right((Inside(_DESCRIBE_CONFIGS, _TOPIC, "of a topic; of a broker on the cluster"),)),
    PrepareTransaction: Right(
        (
            Need(_WRITE, _TRANSACTIONAL_ID, _asked_transactional_id),
            Need(AclOperation.TWO_PHASE_COMMIT, _TRANSACTIONAL_ID, _asked_transactional_id),
        ),
        "a prepared transaction stays open without a time-out (KIP-939)",
    ),
    ForgetTransactionalId: Right((Need(_WRITE, _TRANSACTIONAL_ID, _asked_transactional_id),)),
}

NOTHING: Final = Right(note="everybody")
"""The row of ApiVersions: a client asks for it before it shows who it is."""

RIGHTS: Final[Mapping[int, Right]] = {
    **{APIS[name].key: right for name, right in _KAFKAS.items()},
    **{PRIVATE_APIS[request].API_KEY: right for request, right in _OURS.items()},
}
"""By the key of the API."""
