"""Every request that any node answers with a unary call, and every answer.

A new one: two messages and a field of each `oneof` in `proto/` (`make proto`), structs by their names, a row of the table
here, a case in `broker.requests.handlers`, a method of `client.admin` and of `client.sync.admin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from replog.coordinator.consumers.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    DeleteGroup,
    DeleteGroupResponse,
    GroupNews,
    WaitForGroupNews,
)
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribeGroup,
    ListGroups,
    ListGroupsResponse,
)
from replog.coordinator.offsets.requests import (
    CommitOffsets,
    CommitOffsetsResponse,
    DeleteOffsets,
    DeleteOffsetsResponse,
    FetchOffsets,
    FetchOffsetsResponse,
)
from replog.rpc.config_messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeNodeConfigsRequest,
    DescribeNodeConfigsResponse,
)
from replog.rpc.group_messages import FindCoordinator, FindCoordinatorResponse
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

GroupRequest: TypeAlias = (
    ConsumerHeartbeat
    | WaitForGroupNews
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DeleteGroup
    | DescribeGroup
    | DescribeConsumerGroup
)
"""What the coordinator of a group is asked."""

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
    | FindCoordinator
    | ListGroups
    | GroupRequest
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
    | FindCoordinatorResponse
    | ConsumerHeartbeatResponse
    | GroupNews
    | CommitOffsetsResponse
    | FetchOffsetsResponse
    | DeleteGroupResponse
    | DeleteOffsetsResponse
    | ListGroupsResponse
    | DescribedGroup
    | DescribedConsumerGroup
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
    "find_coordinator": (FindCoordinator, FindCoordinatorResponse),
    "consumer_heartbeat": (ConsumerHeartbeat, ConsumerHeartbeatResponse),
    "commit_offsets": (CommitOffsets, CommitOffsetsResponse),
    "fetch_offsets": (FetchOffsets, FetchOffsetsResponse),
    "delete_group": (DeleteGroup, DeleteGroupResponse),
    "delete_offsets": (DeleteOffsets, DeleteOffsetsResponse),
    "list_groups": (ListGroups, ListGroupsResponse),
    "describe_group": (DescribeGroup, DescribedGroup),
    "describe_consumer_group": (DescribeConsumerGroup, DescribedConsumerGroup),
    "group_news": (WaitForGroupNews, GroupNews),
}
"""Request and answer by the name that both have on the wire."""
