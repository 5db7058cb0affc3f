"""Every request that any node answers with a unary call, and every answer.

A new one: two messages and a field of each `oneof` in `proto/` (`make proto`), dataclasses by their names, a row of the table
here, a case in `broker.requests.handlers`, a method of `client.admin` and of `client.sync.admin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from replog.rpc.config_messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeNodeConfigsRequest,
    DescribeNodeConfigsResponse,
)
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
    FindCutsRequest,
    FindCutsResponse,
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
from replog.rpc.segment_messages import LocateSegmentsRequest, LocateSegmentsResponse

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
    | FindCutsRequest
    | MoveReplicaRequest
    | DescribeLogDirsRequest
    | DescribeNodeConfigsRequest
    | LocateSegmentsRequest
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
    | FindCutsResponse
    | MoveReplicaResponse
    | DescribeLogDirsResponse
    | DescribeNodeConfigsResponse
    | LocateSegmentsResponse
)

CLIENT_KINDS: Final[Mapping[str, tuple[type, type]]] = {
    "metadata": (MetadataRequest, ClusterMetadata),
    "list_offsets": (ListOffsetsRequest, ListOffsetsResponse),
    "init_producer_id": (InitProducerIdRequest, InitProducerIdResponse),
    "describe_node": (DescribeNodeRequest, DescribeNodeResponse),
    "describe_quorum": (DescribeQuorumRequest, DescribeQuorumResponse),
    "add_voter": (AddVoterRequest, AddVoterResponse),
    "remove_voter": (RemoveVoterRequest, RemoveVoterResponse),
    "describe_configs": (DescribeConfigsRequest, DescribeConfigsResponse),
    "delete_records": (DeleteRecordsRequest, DeleteRecordsResponse),
    "epoch_ends": (EpochEndsRequest, EpochEndsResponse),
    "find_cuts": (FindCutsRequest, FindCutsResponse),
    "move_replica": (MoveReplicaRequest, MoveReplicaResponse),
    "describe_log_dirs": (DescribeLogDirsRequest, DescribeLogDirsResponse),
    "describe_node_configs": (DescribeNodeConfigsRequest, DescribeNodeConfigsResponse),
    "locate_segments": (LocateSegmentsRequest, LocateSegmentsResponse),
}
"""Request and answer by the name that both have on the wire."""
