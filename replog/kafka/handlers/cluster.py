"""DescribeCluster: the brokers that clients can reach."""

from __future__ import annotations

from replog.errors import ErrorCode
from replog.kafka.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED, reachable, told_controller
from replog.kafka.handlers.node import Call, Failure, KafkaNode
from replog.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2
"""Types of endpoints (KIP-919)."""


async def describe_cluster(node: KafkaNode, request: DescribeClusterRequest, _call: Call) -> DescribeClusterResponse:
    """Returns the brokers that clients can reach; those that are fenced are not among them."""
    if request.endpoint_type == CONTROLLERS:
        message = "this is a broker: leave the controllers out, or ask for the quorum (DescribeQuorum)"
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    if request.endpoint_type != BROKERS:
        message = f"there are no endpoints of type {request.endpoint_type}; 1 is that of brokers"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    endpoints = reachable(node)
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=told_controller(node, endpoints),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id, at.host, at.port, node.image.brokers[broker_id].rack
            )
            for broker_id, at in endpoints.items()
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def refuse_describe_cluster(_request: DescribeClusterRequest, failure: Failure) -> DescribeClusterResponse:
    """Returns the answer to a request that failed."""
    return DescribeClusterResponse(error_code=failure.code, error_message=failure.message)
