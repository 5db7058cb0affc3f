from replog.pb.v1 import controller_pb2 as _controller_pb2
from replog.pb.v1 import metadata_pb2 as _metadata_pb2
from replog.pb.v1 import quorum_pb2 as _quorum_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProducePartition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "size_bytes", "leader_epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    size_bytes: int
    leader_epoch: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., size_bytes: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("correlation_id", "timeout_ms", "acks", "partitions")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    timeout_ms: int
    acks: int
    partitions: _containers.RepeatedCompositeFieldContainer[ProducePartition]
    def __init__(self, correlation_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., acks: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ProducePartition, _Mapping]]] = ...) -> None: ...

class ProduceResult(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "message", "base_offset", "log_start_offset", "append_time_ms", "leader_id", "leader_epoch", "keyless")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEYLESS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    message: str
    base_offset: int
    log_start_offset: int
    append_time_ms: int
    leader_id: int
    leader_epoch: int
    keyless: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., base_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., keyless: _Optional[_Iterable[int]] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("correlation_id", "results")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    results: _containers.RepeatedCompositeFieldContainer[ProduceResult]
    def __init__(self, correlation_id: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ProduceResult, _Mapping]]] = ...) -> None: ...

class FetchPartition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "fetch_offset", "flushed_offset", "log_start_offset", "leader_epoch", "last_fetched_epoch", "max_bytes")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    fetch_offset: int
    flushed_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., flushed_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ForgottenPartition(_message.Message):
    __slots__ = ("topic_id", "partition_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("correlation_id", "timeout_ms", "replica_id", "broker_epoch", "max_wait_ms", "min_bytes", "max_bytes", "partitions", "incremental", "forgotten")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    timeout_ms: int
    replica_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: _containers.RepeatedCompositeFieldContainer[FetchPartition]
    incremental: bool
    forgotten: _containers.RepeatedCompositeFieldContainer[ForgottenPartition]
    def __init__(self, correlation_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., replica_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., min_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[FetchPartition, _Mapping]]] = ..., incremental: bool = ..., forgotten: _Optional[_Iterable[_Union[ForgottenPartition, _Mapping]]] = ...) -> None: ...

class FetchResult(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "message", "high_watermark", "log_start_offset", "log_end_offset", "diverging", "size_bytes", "leader_id", "leader_epoch", "fetch_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    message: str
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    diverging: _quorum_pb2.EpochEnd
    size_bytes: int
    leader_id: int
    leader_epoch: int
    fetch_offset: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., diverging: _Optional[_Union[_quorum_pb2.EpochEnd, _Mapping]] = ..., size_bytes: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., fetch_offset: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("correlation_id", "results")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    results: _containers.RepeatedCompositeFieldContainer[FetchResult]
    def __init__(self, correlation_id: _Optional[int] = ..., results: _Optional[_Iterable[_Union[FetchResult, _Mapping]]] = ...) -> None: ...

class ProduceRequestFrame(_message.Message):
    __slots__ = ("header", "hello", "payload")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    header: ProduceRequest
    hello: _quorum_pb2.Hello
    payload: bytes
    def __init__(self, header: _Optional[_Union[ProduceRequest, _Mapping]] = ..., hello: _Optional[_Union[_quorum_pb2.Hello, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class FetchResponseFrame(_message.Message):
    __slots__ = ("header", "hello", "payload")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    header: FetchResponse
    hello: _quorum_pb2.Hello
    payload: bytes
    def __init__(self, header: _Optional[_Union[FetchResponse, _Mapping]] = ..., hello: _Optional[_Union[_quorum_pb2.Hello, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class ProduceResponses(_message.Message):
    __slots__ = ("hello", "responses")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    hello: _quorum_pb2.Hello
    responses: _containers.RepeatedCompositeFieldContainer[ProduceResponse]
    def __init__(self, hello: _Optional[_Union[_quorum_pb2.Hello, _Mapping]] = ..., responses: _Optional[_Iterable[_Union[ProduceResponse, _Mapping]]] = ...) -> None: ...

class FetchRequests(_message.Message):
    __slots__ = ("hello", "requests")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    hello: _quorum_pb2.Hello
    requests: _containers.RepeatedCompositeFieldContainer[FetchRequest]
    def __init__(self, hello: _Optional[_Union[_quorum_pb2.Hello, _Mapping]] = ..., requests: _Optional[_Iterable[_Union[FetchRequest, _Mapping]]] = ...) -> None: ...

class BrokerInfo(_message.Message):
    __slots__ = ("broker_id", "host", "port", "broker_epoch", "fenced", "rack", "drained", "in_controlled_shutdown", "endpoints")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    host: str
    port: int
    broker_epoch: int
    fenced: bool
    rack: str
    drained: bool
    in_controlled_shutdown: bool
    endpoints: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.BrokerEndpoint]
    def __init__(self, broker_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., fenced: bool = ..., rack: _Optional[str] = ..., drained: bool = ..., in_controlled_shutdown: bool = ..., endpoints: _Optional[_Iterable[_Union[_metadata_pb2.BrokerEndpoint, _Mapping]]] = ...) -> None: ...

class PartitionInfo(_message.Message):
    __slots__ = ("partition_id", "leader", "leader_epoch", "partition_epoch", "replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    last_known_elr: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition_id: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., last_known_elr: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class TopicInfo(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "configs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionInfo]
    configs: _containers.RepeatedCompositeFieldContainer[_controller_pb2.ConfigEntry]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[PartitionInfo, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[_controller_pb2.ConfigEntry, _Mapping]]] = ...) -> None: ...

class ClusterMetadata(_message.Message):
    __slots__ = ("cluster_id", "metadata_offset", "controller_id", "controller_epoch", "brokers", "topics")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    metadata_offset: int
    controller_id: int
    controller_epoch: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerInfo]
    topics: _containers.RepeatedCompositeFieldContainer[TopicInfo]
    def __init__(self, cluster_id: _Optional[str] = ..., metadata_offset: _Optional[int] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerInfo, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicInfo, _Mapping]]] = ...) -> None: ...

class MetadataRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("known_offset", "follow")
    KNOWN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    known_offset: int
    follow: bool
    def __init__(self, known_offset: _Optional[int] = ..., follow: bool = ...) -> None: ...

class MetadataUpdate(_message.Message):
    __slots__ = ("cluster_id", "metadata_offset", "controller_id", "controller_epoch", "brokers", "topics", "deleted_topics", "is_full", "is_last")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    metadata_offset: int
    controller_id: int
    controller_epoch: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerInfo]
    topics: _containers.RepeatedCompositeFieldContainer[TopicInfo]
    deleted_topics: _containers.RepeatedScalarFieldContainer[str]
    is_full: bool
    is_last: bool
    def __init__(self, cluster_id: _Optional[str] = ..., metadata_offset: _Optional[int] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerInfo, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicInfo, _Mapping]]] = ..., deleted_topics: _Optional[_Iterable[str]] = ..., is_full: bool = ..., is_last: bool = ...) -> None: ...

class WatchedPartition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "leader_epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    leader_epoch: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class WatchOffsetsRequest(_message.Message):
    __slots__ = ("cluster_id", "partitions")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    partitions: _containers.RepeatedCompositeFieldContainer[WatchedPartition]
    def __init__(self, cluster_id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[WatchedPartition, _Mapping]]] = ...) -> None: ...

class WatchedOffsets(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "message", "high_watermark", "log_start_offset", "leader_epoch", "leader_id", "size_bytes")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    message: str
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    leader_id: int
    size_bytes: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class OffsetsUpdate(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[WatchedOffsets]
    def __init__(self, partitions: _Optional[_Iterable[_Union[WatchedOffsets, _Mapping]]] = ...) -> None: ...

class ListOffsetsPartition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "timestamp", "leader_epoch", "read_committed", "from_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    READ_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    timestamp: int
    leader_epoch: int
    read_committed: bool
    from_offset: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., read_committed: bool = ..., from_offset: _Optional[int] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ListOffsetsPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ListOffsetsPartition, _Mapping]]] = ...) -> None: ...

class ListOffsetsResult(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "message", "offset", "timestamp", "leader_epoch", "leader_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    message: str
    offset: int
    timestamp: int
    leader_epoch: int
    leader_id: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., offset: _Optional[int] = ..., timestamp: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_id: _Optional[int] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ListOffsetsResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ListOffsetsResult, _Mapping]]] = ...) -> None: ...

class DeleteRecordsPartition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "offset", "leader_epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    offset: int
    leader_epoch: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class DeleteRecordsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[DeleteRecordsPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[DeleteRecordsPartition, _Mapping]]] = ...) -> None: ...

class DeleteRecordsResult(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "message", "low_watermark", "leader_epoch", "leader_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    message: str
    low_watermark: int
    leader_epoch: int
    leader_id: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., low_watermark: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_id: _Optional[int] = ...) -> None: ...

class DeleteRecordsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[DeleteRecordsResult]
    def __init__(self, results: _Optional[_Iterable[_Union[DeleteRecordsResult, _Mapping]]] = ...) -> None: ...

class EpochEndPartition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "epoch", "leader_epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    epoch: int
    leader_epoch: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class EpochEndsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[EpochEndPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[EpochEndPartition, _Mapping]]] = ...) -> None: ...

class EpochEndResult(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "message", "epoch", "end_offset", "leader_epoch", "leader_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    message: str
    epoch: int
    end_offset: int
    leader_epoch: int
    leader_id: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_id: _Optional[int] = ...) -> None: ...

class EpochEndsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EpochEndResult]
    def __init__(self, results: _Optional[_Iterable[_Union[EpochEndResult, _Mapping]]] = ...) -> None: ...

class FindCutsPartition(_message.Message):
    __slots__ = ("topic_id", "partition_id", "leader_epoch", "start_offset", "end_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class FindCutsRequest(_message.Message):
    __slots__ = ("partitions", "target_bytes")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TARGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[FindCutsPartition]
    target_bytes: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[FindCutsPartition, _Mapping]]] = ..., target_bytes: _Optional[int] = ...) -> None: ...

class Cut(_message.Message):
    __slots__ = ("offset", "size_bytes")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    offset: int
    size_bytes: int
    def __init__(self, offset: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class FindCutsResult(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "message", "cuts", "leader_epoch", "leader_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    message: str
    cuts: _containers.RepeatedCompositeFieldContainer[Cut]
    leader_epoch: int
    leader_id: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., cuts: _Optional[_Iterable[_Union[Cut, _Mapping]]] = ..., leader_epoch: _Optional[int] = ..., leader_id: _Optional[int] = ...) -> None: ...

class FindCutsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[FindCutsResult]
    def __init__(self, results: _Optional[_Iterable[_Union[FindCutsResult, _Mapping]]] = ...) -> None: ...

class InitProducerIdRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerIdResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class DescribeNodeRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _controller_pb2.TopicPartitions
    def __init__(self, partitions: _Optional[_Union[_controller_pb2.TopicPartitions, _Mapping]] = ...) -> None: ...

class ReplicaProgress(_message.Message):
    __slots__ = ("replica_id", "log_end_offset", "flushed_offset", "lag_records", "lag_ms", "broker_epoch", "lag_bytes")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    log_end_offset: int
    flushed_offset: int
    lag_records: int
    lag_ms: int
    broker_epoch: int
    lag_bytes: int
    def __init__(self, replica_id: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., flushed_offset: _Optional[int] = ..., lag_records: _Optional[int] = ..., lag_ms: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., lag_bytes: _Optional[int] = ...) -> None: ...

class LeaderView(_message.Message):
    __slots__ = ("partition_epoch", "epoch_start_offset", "maximal_isr", "elr", "min_insync_replicas", "recovering", "waiting_produces", "replicas")
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAXIMAL_ISR_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    MIN_INSYNC_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    RECOVERING_FIELD_NUMBER: _ClassVar[int]
    WAITING_PRODUCES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    partition_epoch: int
    epoch_start_offset: int
    maximal_isr: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    min_insync_replicas: int
    recovering: bool
    waiting_produces: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaProgress]
    def __init__(self, partition_epoch: _Optional[int] = ..., epoch_start_offset: _Optional[int] = ..., maximal_isr: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., min_insync_replicas: _Optional[int] = ..., recovering: bool = ..., waiting_produces: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaProgress, _Mapping]]] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("topic", "partition_id", "is_leader", "leader_epoch", "log_start_offset", "log_end_offset", "flushed_offset", "high_watermark", "isr", "state", "reason", "truncated_to", "leader", "size_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_TO_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    is_leader: bool
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    state: str
    reason: str
    truncated_to: int
    leader: LeaderView
    size_bytes: int
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., is_leader: bool = ..., leader_epoch: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., flushed_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., truncated_to: _Optional[int] = ..., leader: _Optional[_Union[LeaderView, _Mapping]] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class QuorumReplica(_message.Message):
    __slots__ = ("node_id", "end_offset")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    end_offset: int
    def __init__(self, node_id: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class DescribeNodeResponse(_message.Message):
    __slots__ = ("node_id", "incarnation_id", "state", "broker_epoch", "quorum_role", "quorum_epoch", "quorum_leader_id", "quorum_high_watermark", "quorum_end_offset", "quorum_replicas", "replicas", "rss_bytes", "version")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    QUORUM_ROLE_FIELD_NUMBER: _ClassVar[int]
    QUORUM_EPOCH_FIELD_NUMBER: _ClassVar[int]
    QUORUM_LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    QUORUM_HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    QUORUM_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUORUM_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    incarnation_id: bytes
    state: str
    broker_epoch: int
    quorum_role: str
    quorum_epoch: int
    quorum_leader_id: int
    quorum_high_watermark: int
    quorum_end_offset: int
    quorum_replicas: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    rss_bytes: int
    version: str
    def __init__(self, node_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., state: _Optional[str] = ..., broker_epoch: _Optional[int] = ..., quorum_role: _Optional[str] = ..., quorum_epoch: _Optional[int] = ..., quorum_leader_id: _Optional[int] = ..., quorum_high_watermark: _Optional[int] = ..., quorum_end_offset: _Optional[int] = ..., quorum_replicas: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., rss_bytes: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QuorumMember(_message.Message):
    __slots__ = ("node_id", "directory_id", "endpoint", "is_voter", "log_end_offset", "last_fetch_age_ms", "last_caught_up_age_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    IS_VOTER_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCH_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CAUGHT_UP_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: bytes
    endpoint: str
    is_voter: bool
    log_end_offset: int
    last_fetch_age_ms: int
    last_caught_up_age_ms: int
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., endpoint: _Optional[str] = ..., is_voter: bool = ..., log_end_offset: _Optional[int] = ..., last_fetch_age_ms: _Optional[int] = ..., last_caught_up_age_ms: _Optional[int] = ...) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("leader_id", "leader_epoch", "high_watermark", "log_start_offset", "log_end_offset", "is_dynamic", "members", "election_ms", "commit_ms_p50", "commit_ms_p99")
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_DYNAMIC_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ELECTION_MS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_P50_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_P99_FIELD_NUMBER: _ClassVar[int]
    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    is_dynamic: bool
    members: _containers.RepeatedCompositeFieldContainer[QuorumMember]
    election_ms: int
    commit_ms_p50: int
    commit_ms_p99: int
    def __init__(self, leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., is_dynamic: bool = ..., members: _Optional[_Iterable[_Union[QuorumMember, _Mapping]]] = ..., election_ms: _Optional[int] = ..., commit_ms_p50: _Optional[int] = ..., commit_ms_p99: _Optional[int] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("voter_id", "directory_id", "endpoint")
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    voter_id: int
    directory_id: bytes
    endpoint: str
    def __init__(self, voter_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., endpoint: _Optional[str] = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("voter_id", "directory_id")
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    voter_id: int
    directory_id: bytes
    def __init__(self, voter_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class AddVoterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveVoterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeConfigsRequest(_message.Message):
    __slots__ = ("resource_type", "resource_name")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ...) -> None: ...

class ConfigDescription(_message.Message):
    __slots__ = ("name", "value", "source")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class DescribeConfigsResponse(_message.Message):
    __slots__ = ("configs",)
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigDescription]
    def __init__(self, configs: _Optional[_Iterable[_Union[ConfigDescription, _Mapping]]] = ...) -> None: ...

class DescribeNodeConfigsRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    def __init__(self, node_id: _Optional[int] = ...) -> None: ...

class DescribeNodeConfigsResponse(_message.Message):
    __slots__ = ("node_id", "configs")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    configs: _containers.RepeatedCompositeFieldContainer[ConfigDescription]
    def __init__(self, node_id: _Optional[int] = ..., configs: _Optional[_Iterable[_Union[ConfigDescription, _Mapping]]] = ...) -> None: ...

class MoveReplicaRequest(_message.Message):
    __slots__ = ("topic", "partition_id", "path")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    path: str
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...

class MoveReplicaResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeLogDirsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LogDirReplica(_message.Message):
    __slots__ = ("topic", "partition_id", "size_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    size_bytes: int
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ReplicaMoveStatus(_message.Message):
    __slots__ = ("topic", "partition_id", "path", "copied_bytes", "missing_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    COPIED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MISSING_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    path: str
    copied_bytes: int
    missing_bytes: int
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., path: _Optional[str] = ..., copied_bytes: _Optional[int] = ..., missing_bytes: _Optional[int] = ...) -> None: ...

class LogDir(_message.Message):
    __slots__ = ("path", "error", "free_bytes", "replicas", "moves", "total_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    error: str
    free_bytes: int
    replicas: _containers.RepeatedCompositeFieldContainer[LogDirReplica]
    moves: _containers.RepeatedCompositeFieldContainer[ReplicaMoveStatus]
    total_bytes: int
    def __init__(self, path: _Optional[str] = ..., error: _Optional[str] = ..., free_bytes: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[LogDirReplica, _Mapping]]] = ..., moves: _Optional[_Iterable[_Union[ReplicaMoveStatus, _Mapping]]] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class DescribeLogDirsResponse(_message.Message):
    __slots__ = ("directories",)
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    directories: _containers.RepeatedCompositeFieldContainer[LogDir]
    def __init__(self, directories: _Optional[_Iterable[_Union[LogDir, _Mapping]]] = ...) -> None: ...

class LocateSegmentsRequest(_message.Message):
    __slots__ = ("topic_id", "partition_id", "leader_epoch", "start_offset", "end_offset", "boot_id")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    boot_id: str
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., boot_id: _Optional[str] = ...) -> None: ...

class SegmentSpan(_message.Message):
    __slots__ = ("path", "position", "end_position", "base_offset", "end_offset", "device", "inode", "modified_ns")
    PATH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    END_POSITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_NS_FIELD_NUMBER: _ClassVar[int]
    path: str
    position: int
    end_position: int
    base_offset: int
    end_offset: int
    device: int
    inode: int
    modified_ns: int
    def __init__(self, path: _Optional[str] = ..., position: _Optional[int] = ..., end_position: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., device: _Optional[int] = ..., inode: _Optional[int] = ..., modified_ns: _Optional[int] = ...) -> None: ...

class LocateSegmentsResponse(_message.Message):
    __slots__ = ("spans", "leader_epoch", "refusal", "is_complete")
    SPANS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    spans: _containers.RepeatedCompositeFieldContainer[SegmentSpan]
    leader_epoch: int
    refusal: str
    is_complete: bool
    def __init__(self, spans: _Optional[_Iterable[_Union[SegmentSpan, _Mapping]]] = ..., leader_epoch: _Optional[int] = ..., refusal: _Optional[str] = ..., is_complete: bool = ...) -> None: ...

class FindCoordinator(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class FindCoordinatorResponse(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class AssignedTopic(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class TopicNames(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class AssignedTopics(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[AssignedTopic]
    def __init__(self, values: _Optional[_Iterable[_Union[AssignedTopic, _Mapping]]] = ...) -> None: ...

class ConsumerHeartbeat(_message.Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "instance_id", "rack_id", "rebalance_timeout_ms", "subscribed_topics", "subscribed_regex", "server_assignor", "owned", "client_id")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_ID_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_REGEX_FIELD_NUMBER: _ClassVar[int]
    SERVER_ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str
    rack_id: str
    rebalance_timeout_ms: int
    subscribed_topics: TopicNames
    subscribed_regex: str
    server_assignor: str
    owned: AssignedTopics
    client_id: str
    def __init__(self, group_id: _Optional[str] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., instance_id: _Optional[str] = ..., rack_id: _Optional[str] = ..., rebalance_timeout_ms: _Optional[int] = ..., subscribed_topics: _Optional[_Union[TopicNames, _Mapping]] = ..., subscribed_regex: _Optional[str] = ..., server_assignor: _Optional[str] = ..., owned: _Optional[_Union[AssignedTopics, _Mapping]] = ..., client_id: _Optional[str] = ...) -> None: ...

class ConsumerHeartbeatResponse(_message.Message):
    __slots__ = ("member_id", "member_epoch", "heartbeat_interval_ms", "assignment")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: AssignedTopics
    def __init__(self, member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., assignment: _Optional[_Union[AssignedTopics, _Mapping]] = ...) -> None: ...

class WaitForGroupNews(_message.Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "wait_ms")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    member_id: str
    member_epoch: int
    wait_ms: int
    def __init__(self, group_id: _Optional[str] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class GroupNews(_message.Message):
    __slots__ = ("is_news",)
    IS_NEWS_FIELD_NUMBER: _ClassVar[int]
    is_news: bool
    def __init__(self, is_news: bool = ...) -> None: ...

class OffsetToCommit(_message.Message):
    __slots__ = ("partition", "offset", "leader_epoch", "metadata")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ...) -> None: ...

class TopicToCommit(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetToCommit]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[OffsetToCommit, _Mapping]]] = ...) -> None: ...

class CommitOffsets(_message.Message):
    __slots__ = ("group_id", "topics", "member_id", "instance_id", "member_epoch", "retention_ms")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    topics: _containers.RepeatedCompositeFieldContainer[TopicToCommit]
    member_id: str
    instance_id: str
    member_epoch: int
    retention_ms: int
    def __init__(self, group_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[TopicToCommit, _Mapping]]] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., retention_ms: _Optional[int] = ...) -> None: ...

class PartitionOutcome(_message.Message):
    __slots__ = ("partition", "error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: int
    error: _controller_pb2.ErrorDetail
    def __init__(self, partition: _Optional[int] = ..., error: _Optional[_Union[_controller_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class TopicOutcome(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping]]] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicOutcome]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicOutcome, _Mapping]]] = ...) -> None: ...

class TopicToFetch(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class TopicsToFetch(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[TopicToFetch]
    def __init__(self, values: _Optional[_Iterable[_Union[TopicToFetch, _Mapping]]] = ...) -> None: ...

class FetchOffsets(_message.Message):
    __slots__ = ("group_id", "topics", "member_id", "member_epoch")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    topics: TopicsToFetch
    member_id: str
    member_epoch: int
    def __init__(self, group_id: _Optional[str] = ..., topics: _Optional[_Union[TopicsToFetch, _Mapping]] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ...) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("partition", "offset", "leader_epoch", "metadata", "commit_timestamp")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ..., commit_timestamp: _Optional[int] = ...) -> None: ...

class TopicOffsets(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ...) -> None: ...

class FetchOffsetsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicOffsets]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicOffsets, _Mapping]]] = ...) -> None: ...

class DeleteGroup(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicToForget(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteOffsets(_message.Message):
    __slots__ = ("group_id", "topics")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    topics: _containers.RepeatedCompositeFieldContainer[TopicToForget]
    def __init__(self, group_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[TopicToForget, _Mapping]]] = ...) -> None: ...

class DeleteOffsetsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicOutcome]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicOutcome, _Mapping]]] = ...) -> None: ...

class ListGroups(_message.Message):
    __slots__ = ("states", "types")
    STATES_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, states: _Optional[_Iterable[str]] = ..., types: _Optional[_Iterable[str]] = ...) -> None: ...

class ListedGroup(_message.Message):
    __slots__ = ("group_id", "protocol_type", "state", "group_type")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GROUP_TYPE_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    protocol_type: str
    state: str
    group_type: str
    def __init__(self, group_id: _Optional[str] = ..., protocol_type: _Optional[str] = ..., state: _Optional[str] = ..., group_type: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[ListedGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[ListedGroup, _Mapping]]] = ...) -> None: ...

class DescribeGroup(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class DescribedMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_id", "client_host", "metadata", "assignment")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., metadata: _Optional[bytes] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class DescribedGroup(_message.Message):
    __slots__ = ("group_id", "state", "protocol_type", "protocol", "members")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: _containers.RepeatedCompositeFieldContainer[DescribedMember]
    def __init__(self, group_id: _Optional[str] = ..., state: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., members: _Optional[_Iterable[_Union[DescribedMember, _Mapping]]] = ...) -> None: ...

class DescribeConsumerGroup(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class DescribedConsumer(_message.Message):
    __slots__ = ("member_id", "instance_id", "rack_id", "member_epoch", "client_id", "client_host", "subscribed_topics", "subscribed_regex", "assignment", "target", "group_type")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_REGEX_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    GROUP_TYPE_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    rack_id: str
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topics: _containers.RepeatedScalarFieldContainer[str]
    subscribed_regex: str
    assignment: _containers.RepeatedCompositeFieldContainer[AssignedTopic]
    target: _containers.RepeatedCompositeFieldContainer[AssignedTopic]
    group_type: str
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., rack_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., subscribed_topics: _Optional[_Iterable[str]] = ..., subscribed_regex: _Optional[str] = ..., assignment: _Optional[_Iterable[_Union[AssignedTopic, _Mapping]]] = ..., target: _Optional[_Iterable[_Union[AssignedTopic, _Mapping]]] = ..., group_type: _Optional[str] = ...) -> None: ...

class DescribedConsumerGroup(_message.Message):
    __slots__ = ("group_id", "state", "epoch", "target_epoch", "assignor", "members")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: _containers.RepeatedCompositeFieldContainer[DescribedConsumer]
    def __init__(self, group_id: _Optional[str] = ..., state: _Optional[str] = ..., epoch: _Optional[int] = ..., target_epoch: _Optional[int] = ..., assignor: _Optional[str] = ..., members: _Optional[_Iterable[_Union[DescribedConsumer, _Mapping]]] = ...) -> None: ...

class ClientRequest(_message.Message):
    __slots__ = ("timeout_ms", "cluster_id", "forwarded", "metadata", "list_offsets", "init_producer_id", "describe_node", "describe_quorum", "add_voter", "remove_voter", "describe_configs", "delete_records", "epoch_ends", "move_replica", "describe_log_dirs", "describe_node_configs", "find_cuts", "locate_segments", "find_coordinator", "consumer_heartbeat", "commit_offsets", "fetch_offsets", "delete_group", "delete_offsets", "list_groups", "describe_group", "describe_consumer_group", "group_news")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    FORWARDED_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LIST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    INIT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NODE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ADD_VOTER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_VOTER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_ENDS_FIELD_NUMBER: _ClassVar[int]
    MOVE_REPLICA_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NODE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    FIND_CUTS_FIELD_NUMBER: _ClassVar[int]
    LOCATE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FIND_COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELETE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DELETE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LIST_GROUPS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUP_NEWS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    cluster_id: str
    forwarded: bool
    metadata: MetadataRequest
    list_offsets: ListOffsetsRequest
    init_producer_id: InitProducerIdRequest
    describe_node: DescribeNodeRequest
    describe_quorum: DescribeQuorumRequest
    add_voter: AddVoterRequest
    remove_voter: RemoveVoterRequest
    describe_configs: DescribeConfigsRequest
    delete_records: DeleteRecordsRequest
    epoch_ends: EpochEndsRequest
    move_replica: MoveReplicaRequest
    describe_log_dirs: DescribeLogDirsRequest
    describe_node_configs: DescribeNodeConfigsRequest
    find_cuts: FindCutsRequest
    locate_segments: LocateSegmentsRequest
    find_coordinator: FindCoordinator
    consumer_heartbeat: ConsumerHeartbeat
    commit_offsets: CommitOffsets
    fetch_offsets: FetchOffsets
    delete_group: DeleteGroup
    delete_offsets: DeleteOffsets
    list_groups: ListGroups
    describe_group: DescribeGroup
    describe_consumer_group: DescribeConsumerGroup
    group_news: WaitForGroupNews
    def __init__(self, timeout_ms: _Optional[int] = ..., cluster_id: _Optional[str] = ..., forwarded: bool = ..., metadata: _Optional[_Union[MetadataRequest, _Mapping]] = ..., list_offsets: _Optional[_Union[ListOffsetsRequest, _Mapping]] = ..., init_producer_id: _Optional[_Union[InitProducerIdRequest, _Mapping]] = ..., describe_node: _Optional[_Union[DescribeNodeRequest, _Mapping]] = ..., describe_quorum: _Optional[_Union[DescribeQuorumRequest, _Mapping]] = ..., add_voter: _Optional[_Union[AddVoterRequest, _Mapping]] = ..., remove_voter: _Optional[_Union[RemoveVoterRequest, _Mapping]] = ..., describe_configs: _Optional[_Union[DescribeConfigsRequest, _Mapping]] = ..., delete_records: _Optional[_Union[DeleteRecordsRequest, _Mapping]] = ..., epoch_ends: _Optional[_Union[EpochEndsRequest, _Mapping]] = ..., move_replica: _Optional[_Union[MoveReplicaRequest, _Mapping]] = ..., describe_log_dirs: _Optional[_Union[DescribeLogDirsRequest, _Mapping]] = ..., describe_node_configs: _Optional[_Union[DescribeNodeConfigsRequest, _Mapping]] = ..., find_cuts: _Optional[_Union[FindCutsRequest, _Mapping]] = ..., locate_segments: _Optional[_Union[LocateSegmentsRequest, _Mapping]] = ..., find_coordinator: _Optional[_Union[FindCoordinator, _Mapping]] = ..., consumer_heartbeat: _Optional[_Union[ConsumerHeartbeat, _Mapping]] = ..., commit_offsets: _Optional[_Union[CommitOffsets, _Mapping]] = ..., fetch_offsets: _Optional[_Union[FetchOffsets, _Mapping]] = ..., delete_group: _Optional[_Union[DeleteGroup, _Mapping]] = ..., delete_offsets: _Optional[_Union[DeleteOffsets, _Mapping]] = ..., list_groups: _Optional[_Union[ListGroups, _Mapping]] = ..., describe_group: _Optional[_Union[DescribeGroup, _Mapping]] = ..., describe_consumer_group: _Optional[_Union[DescribeConsumerGroup, _Mapping]] = ..., group_news: _Optional[_Union[WaitForGroupNews, _Mapping]] = ...) -> None: ...

class ClientResponse(_message.Message):
    __slots__ = ("error", "metadata", "list_offsets", "init_producer_id", "describe_node", "describe_quorum", "add_voter", "remove_voter", "describe_configs", "delete_records", "epoch_ends", "move_replica", "describe_log_dirs", "describe_node_configs", "find_cuts", "locate_segments", "find_coordinator", "consumer_heartbeat", "commit_offsets", "fetch_offsets", "delete_group", "delete_offsets", "list_groups", "describe_group", "describe_consumer_group", "group_news")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LIST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    INIT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NODE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ADD_VOTER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_VOTER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_ENDS_FIELD_NUMBER: _ClassVar[int]
    MOVE_REPLICA_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NODE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    FIND_CUTS_FIELD_NUMBER: _ClassVar[int]
    LOCATE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FIND_COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELETE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DELETE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LIST_GROUPS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUP_NEWS_FIELD_NUMBER: _ClassVar[int]
    error: _controller_pb2.ErrorDetail
    metadata: ClusterMetadata
    list_offsets: ListOffsetsResponse
    init_producer_id: InitProducerIdResponse
    describe_node: DescribeNodeResponse
    describe_quorum: DescribeQuorumResponse
    add_voter: AddVoterResponse
    remove_voter: RemoveVoterResponse
    describe_configs: DescribeConfigsResponse
    delete_records: DeleteRecordsResponse
    epoch_ends: EpochEndsResponse
    move_replica: MoveReplicaResponse
    describe_log_dirs: DescribeLogDirsResponse
    describe_node_configs: DescribeNodeConfigsResponse
    find_cuts: FindCutsResponse
    locate_segments: LocateSegmentsResponse
    find_coordinator: FindCoordinatorResponse
    consumer_heartbeat: ConsumerHeartbeatResponse
    commit_offsets: CommitOffsetsResponse
    fetch_offsets: FetchOffsetsResponse
    delete_group: DeleteGroupResponse
    delete_offsets: DeleteOffsetsResponse
    list_groups: ListGroupsResponse
    describe_group: DescribedGroup
    describe_consumer_group: DescribedConsumerGroup
    group_news: GroupNews
    def __init__(self, error: _Optional[_Union[_controller_pb2.ErrorDetail, _Mapping]] = ..., metadata: _Optional[_Union[ClusterMetadata, _Mapping]] = ..., list_offsets: _Optional[_Union[ListOffsetsResponse, _Mapping]] = ..., init_producer_id: _Optional[_Union[InitProducerIdResponse, _Mapping]] = ..., describe_node: _Optional[_Union[DescribeNodeResponse, _Mapping]] = ..., describe_quorum: _Optional[_Union[DescribeQuorumResponse, _Mapping]] = ..., add_voter: _Optional[_Union[AddVoterResponse, _Mapping]] = ..., remove_voter: _Optional[_Union[RemoveVoterResponse, _Mapping]] = ..., describe_configs: _Optional[_Union[DescribeConfigsResponse, _Mapping]] = ..., delete_records: _Optional[_Union[DeleteRecordsResponse, _Mapping]] = ..., epoch_ends: _Optional[_Union[EpochEndsResponse, _Mapping]] = ..., move_replica: _Optional[_Union[MoveReplicaResponse, _Mapping]] = ..., describe_log_dirs: _Optional[_Union[DescribeLogDirsResponse, _Mapping]] = ..., describe_node_configs: _Optional[_Union[DescribeNodeConfigsResponse, _Mapping]] = ..., find_cuts: _Optional[_Union[FindCutsResponse, _Mapping]] = ..., locate_segments: _Optional[_Union[LocateSegmentsResponse, _Mapping]] = ..., find_coordinator: _Optional[_Union[FindCoordinatorResponse, _Mapping]] = ..., consumer_heartbeat: _Optional[_Union[ConsumerHeartbeatResponse, _Mapping]] = ..., commit_offsets: _Optional[_Union[CommitOffsetsResponse, _Mapping]] = ..., fetch_offsets: _Optional[_Union[FetchOffsetsResponse, _Mapping]] = ..., delete_group: _Optional[_Union[DeleteGroupResponse, _Mapping]] = ..., delete_offsets: _Optional[_Union[DeleteOffsetsResponse, _Mapping]] = ..., list_groups: _Optional[_Union[ListGroupsResponse, _Mapping]] = ..., describe_group: _Optional[_Union[DescribedGroup, _Mapping]] = ..., describe_consumer_group: _Optional[_Union[DescribedConsumerGroup, _Mapping]] = ..., group_news: _Optional[_Union[GroupNews, _Mapping]] = ...) -> None: ...
