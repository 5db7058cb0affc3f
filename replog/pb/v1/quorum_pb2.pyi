from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EpochEnd(_message.Message):
    __slots__ = ("epoch", "end_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    end_offset: int
    def __init__(self, epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("correlation_id", "voter_id", "replica_id", "replica_epoch", "last_epoch", "last_offset", "pre_vote", "replica_directory_id", "voter_directory_id")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    voter_id: int
    replica_id: int
    replica_epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool
    replica_directory_id: bytes
    voter_directory_id: bytes
    def __init__(self, correlation_id: _Optional[int] = ..., voter_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., replica_epoch: _Optional[int] = ..., last_epoch: _Optional[int] = ..., last_offset: _Optional[int] = ..., pre_vote: bool = ..., replica_directory_id: _Optional[bytes] = ..., voter_directory_id: _Optional[bytes] = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "error", "leader_id", "leader_epoch", "vote_granted", "leader_endpoint")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VOTE_GRANTED_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    error: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool
    leader_endpoint: str
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., error: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., vote_granted: bool = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class BeginQuorumEpochRequest(_message.Message):
    __slots__ = ("correlation_id", "voter_id", "leader_id", "leader_epoch", "voter_directory_id", "leader_endpoint")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    voter_id: int
    leader_id: int
    leader_epoch: int
    voter_directory_id: bytes
    leader_endpoint: str
    def __init__(self, correlation_id: _Optional[int] = ..., voter_id: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class BeginQuorumEpochResponse(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "error", "leader_id", "leader_epoch", "leader_endpoint")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    error: int
    leader_id: int
    leader_epoch: int
    leader_endpoint: str
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., error: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class EndQuorumEpochRequest(_message.Message):
    __slots__ = ("correlation_id", "voter_id", "leader_id", "leader_epoch", "preferred_candidates", "voter_directory_id")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    voter_id: int
    leader_id: int
    leader_epoch: int
    preferred_candidates: _containers.RepeatedScalarFieldContainer[int]
    voter_directory_id: bytes
    def __init__(self, correlation_id: _Optional[int] = ..., voter_id: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., preferred_candidates: _Optional[_Iterable[int]] = ..., voter_directory_id: _Optional[bytes] = ...) -> None: ...

class EndQuorumEpochResponse(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "error", "leader_id", "leader_epoch", "leader_endpoint")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    error: int
    leader_id: int
    leader_epoch: int
    leader_endpoint: str
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., error: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class QuorumFetchRequest(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "leader_epoch", "fetch_offset", "last_fetched_epoch", "high_watermark", "max_wait_ms", "leader_time_ms", "replica_directory_id")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    leader_time_ms: int
    replica_directory_id: bytes
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., leader_time_ms: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ...) -> None: ...

class QuorumFetchResponse(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "error", "leader_id", "leader_epoch", "high_watermark", "log_start_offset", "diverging", "leader_time_ms", "snapshot_id", "batches", "leader_endpoint")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    LEADER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    error: int
    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    diverging: EpochEnd
    leader_time_ms: int
    snapshot_id: EpochEnd
    batches: bytes
    leader_endpoint: str
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., error: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., diverging: _Optional[_Union[EpochEnd, _Mapping]] = ..., leader_time_ms: _Optional[int] = ..., snapshot_id: _Optional[_Union[EpochEnd, _Mapping]] = ..., batches: _Optional[bytes] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "replica_directory_id", "leader_epoch", "snapshot_id", "position", "max_bytes", "leader_time_ms")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    replica_directory_id: bytes
    leader_epoch: int
    snapshot_id: EpochEnd
    position: int
    max_bytes: int
    leader_time_ms: int
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., leader_epoch: _Optional[int] = ..., snapshot_id: _Optional[_Union[EpochEnd, _Mapping]] = ..., position: _Optional[int] = ..., max_bytes: _Optional[int] = ..., leader_time_ms: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "error", "leader_id", "leader_epoch", "snapshot_id", "size", "position", "leader_time_ms", "data", "leader_endpoint")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    error: int
    leader_id: int
    leader_epoch: int
    snapshot_id: EpochEnd
    size: int
    position: int
    leader_time_ms: int
    data: bytes
    leader_endpoint: str
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., error: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., snapshot_id: _Optional[_Union[EpochEnd, _Mapping]] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., leader_time_ms: _Optional[int] = ..., data: _Optional[bytes] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class Voter(_message.Message):
    __slots__ = ("voter_id", "directory_id", "endpoint")
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    voter_id: int
    directory_id: bytes
    endpoint: str
    def __init__(self, voter_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., endpoint: _Optional[str] = ...) -> None: ...

class UpdateVoterRequest(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "leader_epoch", "voter")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    leader_epoch: int
    voter: Voter
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., voter: _Optional[_Union[Voter, _Mapping]] = ...) -> None: ...

class UpdateVoterResponse(_message.Message):
    __slots__ = ("correlation_id", "replica_id", "error", "leader_id", "leader_epoch", "leader_endpoint")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    replica_id: int
    error: int
    leader_id: int
    leader_epoch: int
    leader_endpoint: str
    def __init__(self, correlation_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., error: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class QuorumEnvelope(_message.Message):
    __slots__ = ("hello", "vote_request", "vote_response", "begin_request", "begin_response", "end_request", "end_response", "fetch_request", "fetch_response", "fetch_snapshot_request", "fetch_snapshot_response", "update_voter_request", "update_voter_response")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_REQUEST_FIELD_NUMBER: _ClassVar[int]
    BEGIN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    END_REQUEST_FIELD_NUMBER: _ClassVar[int]
    END_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FETCH_REQUEST_FIELD_NUMBER: _ClassVar[int]
    FETCH_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FETCH_SNAPSHOT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    FETCH_SNAPSHOT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_VOTER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    UPDATE_VOTER_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    vote_request: VoteRequest
    vote_response: VoteResponse
    begin_request: BeginQuorumEpochRequest
    begin_response: BeginQuorumEpochResponse
    end_request: EndQuorumEpochRequest
    end_response: EndQuorumEpochResponse
    fetch_request: QuorumFetchRequest
    fetch_response: QuorumFetchResponse
    fetch_snapshot_request: FetchSnapshotRequest
    fetch_snapshot_response: FetchSnapshotResponse
    update_voter_request: UpdateVoterRequest
    update_voter_response: UpdateVoterResponse
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote_response: _Optional[_Union[VoteResponse, _Mapping]] = ..., begin_request: _Optional[_Union[BeginQuorumEpochRequest, _Mapping]] = ..., begin_response: _Optional[_Union[BeginQuorumEpochResponse, _Mapping]] = ..., end_request: _Optional[_Union[EndQuorumEpochRequest, _Mapping]] = ..., end_response: _Optional[_Union[EndQuorumEpochResponse, _Mapping]] = ..., fetch_request: _Optional[_Union[QuorumFetchRequest, _Mapping]] = ..., fetch_response: _Optional[_Union[QuorumFetchResponse, _Mapping]] = ..., fetch_snapshot_request: _Optional[_Union[FetchSnapshotRequest, _Mapping]] = ..., fetch_snapshot_response: _Optional[_Union[FetchSnapshotResponse, _Mapping]] = ..., update_voter_request: _Optional[_Union[UpdateVoterRequest, _Mapping]] = ..., update_voter_response: _Optional[_Union[UpdateVoterResponse, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("cluster_id", "node_id", "incarnation_id", "client_id", "min_api_version", "max_api_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_API_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_API_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    incarnation_id: bytes
    client_id: str
    min_api_version: int
    max_api_version: int
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., client_id: _Optional[str] = ..., min_api_version: _Optional[int] = ..., max_api_version: _Optional[int] = ...) -> None: ...
