from replog.pb.v1 import metadata_pb2 as _metadata_pb2
from replog.pb.v1 import quorum_pb2 as _quorum_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterBroker(_message.Message):
    __slots__ = ("broker_id", "cluster_id", "incarnation_id", "host", "port", "log_dirs", "rack", "previous_broker_epoch", "supported_features", "unopened_log_dirs", "endpoints")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    UNOPENED_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    host: str
    port: int
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    rack: str
    previous_broker_epoch: int
    supported_features: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.SupportedFeature]
    unopened_log_dirs: int
    endpoints: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.BrokerEndpoint]
    def __init__(self, broker_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., rack: _Optional[str] = ..., previous_broker_epoch: _Optional[int] = ..., supported_features: _Optional[_Iterable[_Union[_metadata_pb2.SupportedFeature, _Mapping]]] = ..., unopened_log_dirs: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[_metadata_pb2.BrokerEndpoint, _Mapping]]] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("broker_epoch",)
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_epoch: int
    def __init__(self, broker_epoch: _Optional[int] = ...) -> None: ...

class UnregisterBroker(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class UnregisterBrokerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainBroker(_message.Message):
    __slots__ = ("broker_id", "drained")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    drained: bool
    def __init__(self, broker_id: _Optional[int] = ..., drained: bool = ...) -> None: ...

class DrainBrokerResponse(_message.Message):
    __slots__ = ("replicas_count",)
    REPLICAS_COUNT_FIELD_NUMBER: _ClassVar[int]
    replicas_count: int
    def __init__(self, replicas_count: _Optional[int] = ...) -> None: ...

class RegisterController(_message.Message):
    __slots__ = ("controller_id", "cluster_id", "incarnation_id", "host", "port", "supported_features")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    cluster_id: str
    incarnation_id: bytes
    host: str
    port: int
    supported_features: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.SupportedFeature]
    def __init__(self, controller_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., supported_features: _Optional[_Iterable[_Union[_metadata_pb2.SupportedFeature, _Mapping]]] = ...) -> None: ...

class RegisterControllerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "metadata_offset", "want_fence", "want_shut_down", "offline_replicas", "more_offline", "endpoints")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MORE_OFFLINE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_replicas: _containers.RepeatedCompositeFieldContainer[OfflineReplica]
    more_offline: bool
    endpoints: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.BrokerEndpoint]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., want_fence: bool = ..., want_shut_down: bool = ..., offline_replicas: _Optional[_Iterable[_Union[OfflineReplica, _Mapping]]] = ..., more_offline: bool = ..., endpoints: _Optional[_Iterable[_Union[_metadata_pb2.BrokerEndpoint, _Mapping]]] = ...) -> None: ...

class OfflineReplica(_message.Message):
    __slots__ = ("topic_id", "partition_id", "is_intact", "gave_up")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    IS_INTACT_FIELD_NUMBER: _ClassVar[int]
    GAVE_UP_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    is_intact: bool
    gave_up: bool
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., is_intact: bool = ..., gave_up: bool = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("is_caught_up", "is_fenced", "should_shut_down", "metadata_offset")
    IS_CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    metadata_offset: int
    def __init__(self, is_caught_up: bool = ..., is_fenced: bool = ..., should_shut_down: bool = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class PartitionIsrChange(_message.Message):
    __slots__ = ("topic_id", "partition_id", "leader_epoch", "partition_epoch", "new_isr", "leader_recovery_state")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    leader_recovery_state: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., new_isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ..., leader_recovery_state: _Optional[int] = ...) -> None: ...

class AlterPartition(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "partitions")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionIsrChange]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionIsrChange, _Mapping]]] = ...) -> None: ...

class PartitionIsrResult(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "leader", "leader_epoch", "partition_epoch", "isr")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ...) -> None: ...

class AlterPartitionResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionIsrResult]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionIsrResult, _Mapping]]] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class NewTopic(_message.Message):
    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_partitions: int
    replication_factor: int
    assignments: _containers.RepeatedCompositeFieldContainer[Int32Values]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, name: _Optional[str] = ..., num_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[Int32Values, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...

class Int32Values(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class MutatingClient(_message.Message):
    __slots__ = ("user", "client_id", "is_strict")
    USER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    IS_STRICT_FIELD_NUMBER: _ClassVar[int]
    user: str
    client_id: str
    is_strict: bool
    def __init__(self, user: _Optional[str] = ..., client_id: _Optional[str] = ..., is_strict: bool = ...) -> None: ...

class CreateInternalTopic(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: NewTopic
    def __init__(self, topic: _Optional[_Union[NewTopic, _Mapping]] = ...) -> None: ...

class CreateTopics(_message.Message):
    __slots__ = ("topics", "validate_only", "client")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    validate_only: bool
    client: MutatingClient
    def __init__(self, topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: bool = ..., client: _Optional[_Union[MutatingClient, _Mapping]] = ...) -> None: ...

class ForkTopic(_message.Message):
    __slots__ = ("source", "topic_id", "copy", "end_offsets", "client")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    END_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    source: str
    topic_id: bytes
    copy: str
    end_offsets: _containers.RepeatedScalarFieldContainer[int]
    client: MutatingClient
    def __init__(self, source: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., copy: _Optional[str] = ..., end_offsets: _Optional[_Iterable[int]] = ..., client: _Optional[_Union[MutatingClient, _Mapping]] = ...) -> None: ...

class ForkTopicResponse(_message.Message):
    __slots__ = ("topic_id", "throttle_time_ms")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    throttle_time_ms: int
    def __init__(self, topic_id: _Optional[bytes] = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...

class TopicResult(_message.Message):
    __slots__ = ("name", "error", "message", "topic_id", "num_partitions", "replication_factor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    error: int
    message: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int
    def __init__(self, name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., num_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("topics", "throttle_time_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicResult]
    throttle_time_ms: int
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...

class DeleteTopics(_message.Message):
    __slots__ = ("names", "topic_ids", "client")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    topic_ids: _containers.RepeatedScalarFieldContainer[bytes]
    client: MutatingClient
    def __init__(self, names: _Optional[_Iterable[str]] = ..., topic_ids: _Optional[_Iterable[bytes]] = ..., client: _Optional[_Union[MutatingClient, _Mapping]] = ...) -> None: ...

class DeleteTopicsResponse(_message.Message):
    __slots__ = ("topics", "throttle_time_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicResult]
    throttle_time_ms: int
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ...) -> None: ...

class PartitionResult(_message.Message):
    __slots__ = ("topic", "partition_id", "error", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    error: int
    message: str
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class NewPartitions(_message.Message):
    __slots__ = ("topic", "count", "assignments")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    count: int
    assignments: _containers.RepeatedCompositeFieldContainer[Int32Values]
    def __init__(self, topic: _Optional[str] = ..., count: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[Int32Values, _Mapping]]] = ...) -> None: ...

class CreatePartitions(_message.Message):
    __slots__ = ("topics", "validate_only", "client")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewPartitions]
    validate_only: bool
    client: MutatingClient
    def __init__(self, topics: _Optional[_Iterable[_Union[NewPartitions, _Mapping]]] = ..., validate_only: bool = ..., client: _Optional[_Union[MutatingClient, _Mapping]] = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ("topics", "throttle_time_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicResult]
    throttle_time_ms: int
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...

class TopicPartitions(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, values: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class ElectLeaders(_message.Message):
    __slots__ = ("election_type", "partitions")
    ELECTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    election_type: int
    partitions: TopicPartitions
    def __init__(self, election_type: _Optional[int] = ..., partitions: _Optional[_Union[TopicPartitions, _Mapping]] = ...) -> None: ...

class ElectLeadersResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionResult]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionResult, _Mapping]]] = ...) -> None: ...

class Reassignment(_message.Message):
    __slots__ = ("topic", "partition_id", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    replicas: Int32Values
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., replicas: _Optional[_Union[Int32Values, _Mapping]] = ...) -> None: ...

class AlterPartitionReassignments(_message.Message):
    __slots__ = ("items", "allow_replication_factor_change")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPLICATION_FACTOR_CHANGE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Reassignment]
    allow_replication_factor_change: bool
    def __init__(self, items: _Optional[_Iterable[_Union[Reassignment, _Mapping]]] = ..., allow_replication_factor_change: bool = ...) -> None: ...

class AlterPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionResult]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionResult, _Mapping]]] = ...) -> None: ...

class AlterableConfig(_message.Message):
    __slots__ = ("name", "operation", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    operation: int
    value: str
    def __init__(self, name: _Optional[str] = ..., operation: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class AlterConfigsResource(_message.Message):
    __slots__ = ("resource_type", "resource_name", "configs", "replaces")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    configs: _containers.RepeatedCompositeFieldContainer[AlterableConfig]
    replaces: bool
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., configs: _Optional[_Iterable[_Union[AlterableConfig, _Mapping]]] = ..., replaces: bool = ...) -> None: ...

class AlterConfigs(_message.Message):
    __slots__ = ("resources", "validate_only")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[AlterConfigsResource]
    validate_only: bool
    def __init__(self, resources: _Optional[_Iterable[_Union[AlterConfigsResource, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlterConfigsResult(_message.Message):
    __slots__ = ("resource_type", "resource_name", "error", "message")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    error: int
    message: str
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterConfigsResponse(_message.Message):
    __slots__ = ("resources",)
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[AlterConfigsResult]
    def __init__(self, resources: _Optional[_Iterable[_Union[AlterConfigsResult, _Mapping]]] = ...) -> None: ...

class AclFilter(_message.Message):
    __slots__ = ("kind", "name", "pattern", "principal", "host", "operation", "permission")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    kind: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, kind: _Optional[int] = ..., name: _Optional[str] = ..., pattern: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class CreateAcls(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.AclEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[_metadata_pb2.AclEntry, _Mapping]]] = ...) -> None: ...

class AclResult(_message.Message):
    __slots__ = ("error", "message", "entries")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    entries: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.AclEntry]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[_metadata_pb2.AclEntry, _Mapping]]] = ...) -> None: ...

class CreateAclsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AclResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AclResult, _Mapping]]] = ...) -> None: ...

class DeleteAcls(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[AclFilter]
    def __init__(self, filters: _Optional[_Iterable[_Union[AclFilter, _Mapping]]] = ...) -> None: ...

class DeleteAclsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AclResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AclResult, _Mapping]]] = ...) -> None: ...

class FeatureUpdate(_message.Message):
    __slots__ = ("name", "level", "allow_downgrade")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DOWNGRADE_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    allow_downgrade: bool
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., allow_downgrade: bool = ...) -> None: ...

class UpdateFeatures(_message.Message):
    __slots__ = ("updates", "validate_only")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[FeatureUpdate]
    validate_only: bool
    def __init__(self, updates: _Optional[_Iterable[_Union[FeatureUpdate, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScramCredential(_message.Message):
    __slots__ = ("salt", "stored_key", "server_key", "iterations")
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    def __init__(self, salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ..., iterations: _Optional[int] = ...) -> None: ...

class AlterableScramCredential(_message.Message):
    __slots__ = ("name", "mechanism", "credential")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    credential: ScramCredential
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ..., credential: _Optional[_Union[ScramCredential, _Mapping]] = ...) -> None: ...

class AlterUserScramCredentials(_message.Message):
    __slots__ = ("credentials",)
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    credentials: _containers.RepeatedCompositeFieldContainer[AlterableScramCredential]
    def __init__(self, credentials: _Optional[_Iterable[_Union[AlterableScramCredential, _Mapping]]] = ...) -> None: ...

class UserResult(_message.Message):
    __slots__ = ("name", "error", "message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    error: int
    message: str
    def __init__(self, name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterUserScramCredentialsResponse(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[UserResult]
    def __init__(self, users: _Optional[_Iterable[_Union[UserResult, _Mapping]]] = ...) -> None: ...

class CreateDelegationToken(_message.Message):
    __slots__ = ("owner", "renewers", "max_lifetime_ms")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    owner: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    max_lifetime_ms: int
    def __init__(self, owner: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., max_lifetime_ms: _Optional[int] = ...) -> None: ...

class CreateDelegationTokenResponse(_message.Message):
    __slots__ = ("token", "hmac")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    HMAC_FIELD_NUMBER: _ClassVar[int]
    token: _metadata_pb2.DelegationToken
    hmac: bytes
    def __init__(self, token: _Optional[_Union[_metadata_pb2.DelegationToken, _Mapping]] = ..., hmac: _Optional[bytes] = ...) -> None: ...

class RenewDelegationToken(_message.Message):
    __slots__ = ("hmac", "renew_period_ms")
    HMAC_FIELD_NUMBER: _ClassVar[int]
    RENEW_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    hmac: bytes
    renew_period_ms: int
    def __init__(self, hmac: _Optional[bytes] = ..., renew_period_ms: _Optional[int] = ...) -> None: ...

class RenewDelegationTokenResponse(_message.Message):
    __slots__ = ("expiry_timestamp_ms",)
    EXPIRY_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    expiry_timestamp_ms: int
    def __init__(self, expiry_timestamp_ms: _Optional[int] = ...) -> None: ...

class ExpireDelegationToken(_message.Message):
    __slots__ = ("hmac", "expiry_period_ms")
    HMAC_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    hmac: bytes
    expiry_period_ms: int
    def __init__(self, hmac: _Optional[bytes] = ..., expiry_period_ms: _Optional[int] = ...) -> None: ...

class ExpireDelegationTokenResponse(_message.Message):
    __slots__ = ("expiry_timestamp_ms",)
    EXPIRY_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    expiry_timestamp_ms: int
    def __init__(self, expiry_timestamp_ms: _Optional[int] = ...) -> None: ...

class AllocateProducerIds(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("first_producer_id", "count")
    FIRST_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first_producer_id: int
    count: int
    def __init__(self, first_producer_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ReplicaEnd(_message.Message):
    __slots__ = ("topic_id", "partition_id", "last_epoch", "log_end_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    last_epoch: int
    log_end_offset: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., last_epoch: _Optional[int] = ..., log_end_offset: _Optional[int] = ...) -> None: ...

class ReportReplicas(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "replicas")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaEnd]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaEnd, _Mapping]]] = ...) -> None: ...

class ReportReplicasResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClientIdentity(_message.Message):
    __slots__ = ("principal", "host", "api")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    API_FIELD_NUMBER: _ClassVar[int]
    principal: str
    host: str
    api: str
    def __init__(self, principal: _Optional[str] = ..., host: _Optional[str] = ..., api: _Optional[str] = ...) -> None: ...

class ControllerRequest(_message.Message):
    __slots__ = ("cluster_id", "timeout_ms", "client", "register_broker", "heartbeat", "alter_partition", "create_topics", "delete_topics", "alter_configs", "allocate_producer_ids", "report_replicas", "create_partitions", "elect_leaders", "alter_partition_reassignments", "unregister_broker", "drain_broker", "update_features", "register_controller", "create_acls", "delete_acls", "alter_client_quotas", "alter_user_scram_credentials", "create_delegation_token", "renew_delegation_token", "expire_delegation_token", "create_internal_topic", "fork_topic")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    REPORT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    DRAIN_BROKER_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    REGISTER_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    CREATE_ACLS_FIELD_NUMBER: _ClassVar[int]
    DELETE_ACLS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    ALTER_USER_SCRAM_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    CREATE_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RENEW_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CREATE_INTERNAL_TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORK_TOPIC_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    timeout_ms: int
    client: ClientIdentity
    register_broker: RegisterBroker
    heartbeat: Heartbeat
    alter_partition: AlterPartition
    create_topics: CreateTopics
    delete_topics: DeleteTopics
    alter_configs: AlterConfigs
    allocate_producer_ids: AllocateProducerIds
    report_replicas: ReportReplicas
    create_partitions: CreatePartitions
    elect_leaders: ElectLeaders
    alter_partition_reassignments: AlterPartitionReassignments
    unregister_broker: UnregisterBroker
    drain_broker: DrainBroker
    update_features: UpdateFeatures
    register_controller: RegisterController
    create_acls: CreateAcls
    delete_acls: DeleteAcls
    alter_client_quotas: AlterClientQuotas
    alter_user_scram_credentials: AlterUserScramCredentials
    create_delegation_token: CreateDelegationToken
    renew_delegation_token: RenewDelegationToken
    expire_delegation_token: ExpireDelegationToken
    create_internal_topic: CreateInternalTopic
    fork_topic: ForkTopic
    def __init__(self, cluster_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., client: _Optional[_Union[ClientIdentity, _Mapping]] = ..., register_broker: _Optional[_Union[RegisterBroker, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., alter_partition: _Optional[_Union[AlterPartition, _Mapping]] = ..., create_topics: _Optional[_Union[CreateTopics, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopics, _Mapping]] = ..., alter_configs: _Optional[_Union[AlterConfigs, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIds, _Mapping]] = ..., report_replicas: _Optional[_Union[ReportReplicas, _Mapping]] = ..., create_partitions: _Optional[_Union[CreatePartitions, _Mapping]] = ..., elect_leaders: _Optional[_Union[ElectLeaders, _Mapping]] = ..., alter_partition_reassignments: _Optional[_Union[AlterPartitionReassignments, _Mapping]] = ..., unregister_broker: _Optional[_Union[UnregisterBroker, _Mapping]] = ..., drain_broker: _Optional[_Union[DrainBroker, _Mapping]] = ..., update_features: _Optional[_Union[UpdateFeatures, _Mapping]] = ..., register_controller: _Optional[_Union[RegisterController, _Mapping]] = ..., create_acls: _Optional[_Union[CreateAcls, _Mapping]] = ..., delete_acls: _Optional[_Union[DeleteAcls, _Mapping]] = ..., alter_client_quotas: _Optional[_Union[AlterClientQuotas, _Mapping]] = ..., alter_user_scram_credentials: _Optional[_Union[AlterUserScramCredentials, _Mapping]] = ..., create_delegation_token: _Optional[_Union[CreateDelegationToken, _Mapping]] = ..., renew_delegation_token: _Optional[_Union[RenewDelegationToken, _Mapping]] = ..., expire_delegation_token: _Optional[_Union[ExpireDelegationToken, _Mapping]] = ..., create_internal_topic: _Optional[_Union[CreateInternalTopic, _Mapping]] = ..., fork_topic: _Optional[_Union[ForkTopic, _Mapping]] = ...) -> None: ...

class AlteredQuota(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class AlteredQuotaEntity(_message.Message):
    __slots__ = ("entity", "quotas")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.QuotaEntityPart]
    quotas: _containers.RepeatedCompositeFieldContainer[AlteredQuota]
    def __init__(self, entity: _Optional[_Iterable[_Union[_metadata_pb2.QuotaEntityPart, _Mapping]]] = ..., quotas: _Optional[_Iterable[_Union[AlteredQuota, _Mapping]]] = ...) -> None: ...

class AlterClientQuotas(_message.Message):
    __slots__ = ("entities", "validate_only")
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    entities: _containers.RepeatedCompositeFieldContainer[AlteredQuotaEntity]
    validate_only: bool
    def __init__(self, entities: _Optional[_Iterable[_Union[AlteredQuotaEntity, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class QuotaEntityResult(_message.Message):
    __slots__ = ("entity", "error", "message")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.QuotaEntityPart]
    error: int
    message: str
    def __init__(self, entity: _Optional[_Iterable[_Union[_metadata_pb2.QuotaEntityPart, _Mapping]]] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterClientQuotasResponse(_message.Message):
    __slots__ = ("entities",)
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    entities: _containers.RepeatedCompositeFieldContainer[QuotaEntityResult]
    def __init__(self, entities: _Optional[_Iterable[_Union[QuotaEntityResult, _Mapping]]] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "message", "leader_id", "leader_epoch")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    leader_id: int
    leader_epoch: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class ControllerResponse(_message.Message):
    __slots__ = ("error", "register_broker", "heartbeat", "alter_partition", "create_topics", "delete_topics", "alter_configs", "allocate_producer_ids", "report_replicas", "create_partitions", "elect_leaders", "alter_partition_reassignments", "unregister_broker", "drain_broker", "update_features", "register_controller", "create_acls", "delete_acls", "alter_client_quotas", "alter_user_scram_credentials", "create_delegation_token", "renew_delegation_token", "expire_delegation_token", "create_internal_topic", "fork_topic")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    REPORT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    DRAIN_BROKER_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    REGISTER_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    CREATE_ACLS_FIELD_NUMBER: _ClassVar[int]
    DELETE_ACLS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    ALTER_USER_SCRAM_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    CREATE_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RENEW_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_DELEGATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CREATE_INTERNAL_TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORK_TOPIC_FIELD_NUMBER: _ClassVar[int]
    error: ErrorDetail
    register_broker: RegisterBrokerResponse
    heartbeat: HeartbeatResponse
    alter_partition: AlterPartitionResponse
    create_topics: CreateTopicsResponse
    delete_topics: DeleteTopicsResponse
    alter_configs: AlterConfigsResponse
    allocate_producer_ids: AllocateProducerIdsResponse
    report_replicas: ReportReplicasResponse
    create_partitions: CreatePartitionsResponse
    elect_leaders: ElectLeadersResponse
    alter_partition_reassignments: AlterPartitionReassignmentsResponse
    unregister_broker: UnregisterBrokerResponse
    drain_broker: DrainBrokerResponse
    update_features: UpdateFeaturesResponse
    register_controller: RegisterControllerResponse
    create_acls: CreateAclsResponse
    delete_acls: DeleteAclsResponse
    alter_client_quotas: AlterClientQuotasResponse
    alter_user_scram_credentials: AlterUserScramCredentialsResponse
    create_delegation_token: CreateDelegationTokenResponse
    renew_delegation_token: RenewDelegationTokenResponse
    expire_delegation_token: ExpireDelegationTokenResponse
    create_internal_topic: CreateTopicsResponse
    fork_topic: ForkTopicResponse
    def __init__(self, error: _Optional[_Union[ErrorDetail, _Mapping]] = ..., register_broker: _Optional[_Union[RegisterBrokerResponse, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatResponse, _Mapping]] = ..., alter_partition: _Optional[_Union[AlterPartitionResponse, _Mapping]] = ..., create_topics: _Optional[_Union[CreateTopicsResponse, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopicsResponse, _Mapping]] = ..., alter_configs: _Optional[_Union[AlterConfigsResponse, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsResponse, _Mapping]] = ..., report_replicas: _Optional[_Union[ReportReplicasResponse, _Mapping]] = ..., create_partitions: _Optional[_Union[CreatePartitionsResponse, _Mapping]] = ..., elect_leaders: _Optional[_Union[ElectLeadersResponse, _Mapping]] = ..., alter_partition_reassignments: _Optional[_Union[AlterPartitionReassignmentsResponse, _Mapping]] = ..., unregister_broker: _Optional[_Union[UnregisterBrokerResponse, _Mapping]] = ..., drain_broker: _Optional[_Union[DrainBrokerResponse, _Mapping]] = ..., update_features: _Optional[_Union[UpdateFeaturesResponse, _Mapping]] = ..., register_controller: _Optional[_Union[RegisterControllerResponse, _Mapping]] = ..., create_acls: _Optional[_Union[CreateAclsResponse, _Mapping]] = ..., delete_acls: _Optional[_Union[DeleteAclsResponse, _Mapping]] = ..., alter_client_quotas: _Optional[_Union[AlterClientQuotasResponse, _Mapping]] = ..., alter_user_scram_credentials: _Optional[_Union[AlterUserScramCredentialsResponse, _Mapping]] = ..., create_delegation_token: _Optional[_Union[CreateDelegationTokenResponse, _Mapping]] = ..., renew_delegation_token: _Optional[_Union[RenewDelegationTokenResponse, _Mapping]] = ..., expire_delegation_token: _Optional[_Union[ExpireDelegationTokenResponse, _Mapping]] = ..., create_internal_topic: _Optional[_Union[CreateTopicsResponse, _Mapping]] = ..., fork_topic: _Optional[_Union[ForkTopicResponse, _Mapping]] = ...) -> None: ...

class ControllerItem(_message.Message):
    __slots__ = ("correlation_id", "body")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    body: bytes
    def __init__(self, correlation_id: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class ControllerItems(_message.Message):
    __slots__ = ("hello", "items")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    hello: _quorum_pb2.Hello
    items: _containers.RepeatedCompositeFieldContainer[ControllerItem]
    def __init__(self, hello: _Optional[_Union[_quorum_pb2.Hello, _Mapping]] = ..., items: _Optional[_Iterable[_Union[ControllerItem, _Mapping]]] = ...) -> None: ...
