"""Every question that clients and nodes put to a node, and every answer.

What clients ask travels in Kafka's messages, or in our own APIs (`replog.client.protocol.questions`, `replog.protocol.private`);
what nodes ask one another has two messages and a field of each `oneof` in `proto/` (`make proto`), and a row of the table here.
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

NodeRequest: TypeAlias = (
    ListOffsetsRequest
    | InitProducerIdRequest
    | DescribeNodeRequest
    | DescribeQuorumRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | DeleteRecordsRequest
    | EpochEndsRequest
    | FindCutsRequest
    | MoveReplicaRequest
    | DescribeLogDirsRequest
    | DescribeConfigsRequest
    | DescribeNodeConfigsRequest
    | LocateSegmentsRequest
)
NodeResponse: TypeAlias = (
    ListOffsetsResponse
    | InitProducerIdResponse
    | DescribeNodeResponse
    | DescribeQuorumResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | DeleteRecordsResponse
    | EpochEndsResponse
    | FindCutsResponse
    | MoveReplicaResponse
    | DescribeLogDirsResponse
    | DescribeConfigsResponse
    | DescribeNodeConfigsResponse
    | LocateSegmentsResponse
)
"""What a node itself answers, whoever asks."""

NODE_KINDS: Final[Mapping[str, tuple[type, type]]] = {
    "describe_node": (DescribeNodeRequest, DescribeNodeResponse),
    "describe_quorum": (DescribeQuorumRequest, DescribeQuorumResponse),
    "add_voter": (AddVoterRequest, AddVoterResponse),
    "remove_voter": (RemoveVoterRequest, RemoveVoterResponse),
    "describe_node_configs": (DescribeNodeConfigsRequest, DescribeNodeConfigsResponse),
}
"""What nodes ask one another, with the answer, by the name that both have on the wire."""
