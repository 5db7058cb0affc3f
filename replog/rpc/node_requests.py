"""Every question that a node itself answers, and every answer.

What clients ask travels in Kafka's messages, or in our own APIs (`replog.client.protocol.questions`, `replog.protocol.private`);
what nodes ask one another has two messages and a field of each `oneof` in `proto/` (`make proto`).
A class of questions says in its base what answers it (`Asks`).
"""

from __future__ import annotations

from typing import TypeAlias

from replog.access.principal import Envelope
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
from replog.rpc.node_messages import (
    AddVoterRequest,
    AddVoterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeNodeConfigsRequest,
    DescribeNodeConfigsResponse,
    DescribeNodeRequest,
    DescribeNodeResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    LocateSegmentsRequest,
    LocateSegmentsResponse,
    MoveReplicaRequest,
    MoveReplicaResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
)
from replog.rpc.transaction_messages import (
    JoinTransactionRequest,
    JoinTransactionResponse,
    WriteMarkersRequest,
    WriteMarkersResponse,
)

VoterChange: TypeAlias = AddVoterRequest | RemoveVoterRequest
"""What clients ask the leader of the metadata quorum for, by way of any node: in an envelope alone."""

NodeRequest: TypeAlias = (
    ListOffsetsRequest
    | InitProducerIdRequest
    | DescribeNodeRequest
    | DescribeQuorumRequest
    | Envelope[VoterChange]
    | DeleteRecordsRequest
    | EpochEndsRequest
    | FindCutsRequest
    | MoveReplicaRequest
    | DescribeLogDirsRequest
    | DescribeConfigsRequest
    | DescribeNodeConfigsRequest
    | LocateSegmentsRequest
    | WriteMarkersRequest
    | JoinTransactionRequest
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
    | WriteMarkersResponse
    | JoinTransactionResponse
)
"""What a node itself answers, whoever asks."""
