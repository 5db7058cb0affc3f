from replog.pb.v1 import controller_pb2 as _controller_pb2
from replog.pb.v1 import quorum_pb2 as _quorum_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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

class FetchResponseFrame(_message.Message):
    __slots__ = ("header", "hello", "payload")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    header: FetchResponse
    hello: _quorum_pb2.Hello
    payload: bytes
    def __init__(self, header: _Optional[_Union[FetchResponse, _Mapping]] = ..., hello: _Optional[_Union[_quorum_pb2.Hello, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class FetchRequests(_message.Message):
    __slots__ = ("hello", "requests")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    hello: _quorum_pb2.Hello
    requests: _containers.RepeatedCompositeFieldContainer[FetchRequest]
    def __init__(self, hello: _Optional[_Union[_quorum_pb2.Hello, _Mapping]] = ..., requests: _Optional[_Iterable[_Union[FetchRequest, _Mapping]]] = ...) -> None: ...

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

class LateTransaction(_message.Message):
    __slots__ = ("topic", "partition_id", "producer_id", "first_offset", "silent_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_id: int
    producer_id: int
    first_offset: int
    silent_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., first_offset: _Optional[int] = ..., silent_ms: _Optional[int] = ...) -> None: ...

class DescribeNodeResponse(_message.Message):
    __slots__ = ("node_id", "incarnation_id", "state", "broker_epoch", "quorum_role", "quorum_epoch", "quorum_leader_id", "quorum_high_watermark", "quorum_end_offset", "quorum_replicas", "replicas", "rss_bytes", "version", "wall_ms", "open_files", "open_files_max", "late_transactions")
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
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_MAX_FIELD_NUMBER: _ClassVar[int]
    LATE_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
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
    wall_ms: int
    open_files: int
    open_files_max: int
    late_transactions: _containers.RepeatedCompositeFieldContainer[LateTransaction]
    def __init__(self, node_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., state: _Optional[str] = ..., broker_epoch: _Optional[int] = ..., quorum_role: _Optional[str] = ..., quorum_epoch: _Optional[int] = ..., quorum_leader_id: _Optional[int] = ..., quorum_high_watermark: _Optional[int] = ..., quorum_end_offset: _Optional[int] = ..., quorum_replicas: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., rss_bytes: _Optional[int] = ..., version: _Optional[str] = ..., wall_ms: _Optional[int] = ..., open_files: _Optional[int] = ..., open_files_max: _Optional[int] = ..., late_transactions: _Optional[_Iterable[_Union[LateTransaction, _Mapping]]] = ...) -> None: ...

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

class ConfigDescription(_message.Message):
    __slots__ = ("name", "value", "source")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

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

class NamedPartitions(_message.Message):
    __slots__ = ("topic", "partition_ids")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionRefusal(_message.Message):
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

class PartitionRefusals(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[PartitionRefusal]
    def __init__(self, values: _Optional[_Iterable[_Union[PartitionRefusal, _Mapping]]] = ...) -> None: ...

class Marker(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "coordinator_epoch", "is_commit", "bumps_epochs", "topics")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_COMMIT_FIELD_NUMBER: _ClassVar[int]
    BUMPS_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    bumps_epochs: bool
    topics: _containers.RepeatedCompositeFieldContainer[NamedPartitions]
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., is_commit: bool = ..., bumps_epochs: bool = ..., topics: _Optional[_Iterable[_Union[NamedPartitions, _Mapping]]] = ...) -> None: ...

class WriteMarkersRequest(_message.Message):
    __slots__ = ("markers",)
    MARKERS_FIELD_NUMBER: _ClassVar[int]
    markers: _containers.RepeatedCompositeFieldContainer[Marker]
    def __init__(self, markers: _Optional[_Iterable[_Union[Marker, _Mapping]]] = ...) -> None: ...

class WriteMarkersResponse(_message.Message):
    __slots__ = ("refusals",)
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    refusals: _containers.RepeatedCompositeFieldContainer[PartitionRefusals]
    def __init__(self, refusals: _Optional[_Iterable[_Union[PartitionRefusals, _Mapping]]] = ...) -> None: ...

class JoinTransactionRequest(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "only_verifies", "topics")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ONLY_VERIFIES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    only_verifies: bool
    topics: _containers.RepeatedCompositeFieldContainer[NamedPartitions]
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., only_verifies: bool = ..., topics: _Optional[_Iterable[_Union[NamedPartitions, _Mapping]]] = ...) -> None: ...

class JoinTransactionResponse(_message.Message):
    __slots__ = ("refusals",)
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    refusals: _containers.RepeatedCompositeFieldContainer[PartitionRefusal]
    def __init__(self, refusals: _Optional[_Iterable[_Union[PartitionRefusal, _Mapping]]] = ...) -> None: ...

class NodeRequest(_message.Message):
    __slots__ = ("timeout_ms", "cluster_id", "forwarded", "client", "describe_node", "describe_quorum", "add_voter", "remove_voter", "describe_node_configs", "write_markers", "join_transaction")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    FORWARDED_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NODE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ADD_VOTER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_VOTER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NODE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    WRITE_MARKERS_FIELD_NUMBER: _ClassVar[int]
    JOIN_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    cluster_id: str
    forwarded: bool
    client: _controller_pb2.ClientIdentity
    describe_node: DescribeNodeRequest
    describe_quorum: DescribeQuorumRequest
    add_voter: AddVoterRequest
    remove_voter: RemoveVoterRequest
    describe_node_configs: DescribeNodeConfigsRequest
    write_markers: WriteMarkersRequest
    join_transaction: JoinTransactionRequest
    def __init__(self, timeout_ms: _Optional[int] = ..., cluster_id: _Optional[str] = ..., forwarded: bool = ..., client: _Optional[_Union[_controller_pb2.ClientIdentity, _Mapping]] = ..., describe_node: _Optional[_Union[DescribeNodeRequest, _Mapping]] = ..., describe_quorum: _Optional[_Union[DescribeQuorumRequest, _Mapping]] = ..., add_voter: _Optional[_Union[AddVoterRequest, _Mapping]] = ..., remove_voter: _Optional[_Union[RemoveVoterRequest, _Mapping]] = ..., describe_node_configs: _Optional[_Union[DescribeNodeConfigsRequest, _Mapping]] = ..., write_markers: _Optional[_Union[WriteMarkersRequest, _Mapping]] = ..., join_transaction: _Optional[_Union[JoinTransactionRequest, _Mapping]] = ...) -> None: ...

class NodeResponse(_message.Message):
    __slots__ = ("error", "describe_node", "describe_quorum", "add_voter", "remove_voter", "describe_node_configs", "write_markers", "join_transaction")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NODE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ADD_VOTER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_VOTER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NODE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    WRITE_MARKERS_FIELD_NUMBER: _ClassVar[int]
    JOIN_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    error: _controller_pb2.ErrorDetail
    describe_node: DescribeNodeResponse
    describe_quorum: DescribeQuorumResponse
    add_voter: AddVoterResponse
    remove_voter: RemoveVoterResponse
    describe_node_configs: DescribeNodeConfigsResponse
    write_markers: WriteMarkersResponse
    join_transaction: JoinTransactionResponse
    def __init__(self, error: _Optional[_Union[_controller_pb2.ErrorDetail, _Mapping]] = ..., describe_node: _Optional[_Union[DescribeNodeResponse, _Mapping]] = ..., describe_quorum: _Optional[_Union[DescribeQuorumResponse, _Mapping]] = ..., add_voter: _Optional[_Union[AddVoterResponse, _Mapping]] = ..., remove_voter: _Optional[_Union[RemoveVoterResponse, _Mapping]] = ..., describe_node_configs: _Optional[_Union[DescribeNodeConfigsResponse, _Mapping]] = ..., write_markers: _Optional[_Union[WriteMarkersResponse, _Mapping]] = ..., join_transaction: _Optional[_Union[JoinTransactionResponse, _Mapping]] = ...) -> None: ...
