"""Every request that any node answers with a unary call, and every answer."""

from __future__ import annotations

from typing import TypeAlias

from replog.rpc.config_messages import DescribeConfigsRequest, DescribeConfigsResponse
from replog.rpc.log_dir_messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    MoveReplicaRequest,
    MoveReplicaResponse,
)
from replog.rpc.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    EpochEndsRequest,
    EpochEndsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from replog.rpc.metadata_messages import ClusterMetadata, MetadataRequest
from replog.rpc.node_messages import DescribeNodeRequest, DescribeNodeResponse
from replog.rpc.quorum_messages import (
    AddVoterRequest,
    AddVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
)

ClientRequest: TypeAlias = (
    MetadataRequest
    | ListOffsetsRequest
    | InitProducerIdRequest
    | DescribeNodeRequest
    | DescribeQuorumRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | DescribeConfigsRequest
    | DeleteRecordsRequest
    | EpochEndsRequest
    | MoveReplicaRequest
    | DescribeLogDirsRequest
)
ClientResponse: TypeAlias = (
    ClusterMetadata
    | ListOffsetsResponse
    | InitProducerIdResponse
    | DescribeNodeResponse
    | DescribeQuorumResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | DescribeConfigsResponse
    | DeleteRecordsResponse
    | EpochEndsResponse
    | MoveReplicaResponse
    | DescribeLogDirsResponse
)
