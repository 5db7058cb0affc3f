from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterBroker(_message.Message):
    __slots__ = ("broker_id", "cluster_id", "incarnation_id", "host", "port", "log_dirs", "rack", "previous_broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    host: str
    port: int
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    rack: str
    previous_broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., incarnation_id: _Optional[bytes] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., rack: _Optional[str] = ..., previous_broker_epoch: _Optional[int] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("broker_epoch",)
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_epoch: int
    def __init__(self, broker_epoch: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "metadata_offset", "want_fence", "want_shut_down", "offline_replicas")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_replicas: _containers.RepeatedCompositeFieldContainer[OfflineReplica]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., want_fence: bool = ..., want_shut_down: bool = ..., offline_replicas: _Optional[_Iterable[_Union[OfflineReplica, _Mapping]]] = ...) -> None: ...

class OfflineReplica(_message.Message):
    __slots__ = ("topic_id", "partition_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ...) -> None: ...

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

class CreateTopics(_message.Message):
    __slots__ = ("topics", "validate_only")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    validate_only: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

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
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class DeleteTopics(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class AlterConfigs(_message.Message):
    __slots__ = ("resource_type", "resource_name", "entries")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    entries: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...

class AlterConfigsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

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

class ControllerRequest(_message.Message):
    __slots__ = ("cluster_id", "timeout_ms", "forwarded", "register_broker", "heartbeat", "alter_partition", "create_topics", "delete_topics", "alter_configs", "allocate_producer_ids", "report_replicas")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FORWARDED_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    REPORT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    timeout_ms: int
    forwarded: bool
    register_broker: RegisterBroker
    heartbeat: Heartbeat
    alter_partition: AlterPartition
    create_topics: CreateTopics
    delete_topics: DeleteTopics
    alter_configs: AlterConfigs
    allocate_producer_ids: AllocateProducerIds
    report_replicas: ReportReplicas
    def __init__(self, cluster_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., forwarded: bool = ..., register_broker: _Optional[_Union[RegisterBroker, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., alter_partition: _Optional[_Union[AlterPartition, _Mapping]] = ..., create_topics: _Optional[_Union[CreateTopics, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopics, _Mapping]] = ..., alter_configs: _Optional[_Union[AlterConfigs, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIds, _Mapping]] = ..., report_replicas: _Optional[_Union[ReportReplicas, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("error", "register_broker", "heartbeat", "alter_partition", "create_topics", "delete_topics", "alter_configs", "allocate_producer_ids", "report_replicas")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    REPORT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    error: ErrorDetail
    register_broker: RegisterBrokerResponse
    heartbeat: HeartbeatResponse
    alter_partition: AlterPartitionResponse
    create_topics: CreateTopicsResponse
    delete_topics: DeleteTopicsResponse
    alter_configs: AlterConfigsResponse
    allocate_producer_ids: AllocateProducerIdsResponse
    report_replicas: ReportReplicasResponse
    def __init__(self, error: _Optional[_Union[ErrorDetail, _Mapping]] = ..., register_broker: _Optional[_Union[RegisterBrokerResponse, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatResponse, _Mapping]] = ..., alter_partition: _Optional[_Union[AlterPartitionResponse, _Mapping]] = ..., create_topics: _Optional[_Union[CreateTopicsResponse, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopicsResponse, _Mapping]] = ..., alter_configs: _Optional[_Union[AlterConfigsResponse, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsResponse, _Mapping]] = ..., report_replicas: _Optional[_Union[ReportReplicasResponse, _Mapping]] = ...) -> None: ...
