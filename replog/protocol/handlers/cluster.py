"""The brokers and the features of the cluster: DescribeCluster, UnregisterBroker, UpdateFeatures."""

from __future__ import annotations

from replog.controller.requests import FeatureUpdate, UnregisterBroker, UpdateFeatures
from replog.errors import ErrorCode, InvalidRequestError
from replog.metadata.records import BrokerEndpoint
from replog.protocol.handlers.metadata import cluster_operations, reachable, told_controller
from replog.protocol.handlers.node import Call, KafkaNode
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from replog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE_TYPES_FROM = 1
"""The first version of UpdateFeatures that names the type of an update (KIP-778)."""

UPGRADE, DOWNGRADES = 1, (2, 3)
"""Types of updates: only upwards; downwards too, safely or not."""

BROKERS, CONTROLLERS = 1, 2
"""Types of endpoints (KIP-919)."""


async def describe_cluster(node: KafkaNode, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    """Returns the brokers that clients can reach, and fenced ones if they are asked for."""
    if request.endpoint_type == CONTROLLERS:
        message = "this is a broker: leave the controllers out, or ask for the quorum (DescribeQuorum)"
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    if request.endpoint_type != BROKERS:
        message = f"there are no endpoints of type {request.endpoint_type}; 1 is that of brokers"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    endpoints = reachable(node, call.listener)
    fenced = _fenced(node, call.listener) if request.include_fenced_brokers else {}
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=told_controller(node, endpoints),
        brokers=[_broker(node, broker_id, at) for broker_id, at in sorted({**fenced, **endpoints}.items())],
        cluster_authorized_operations=cluster_operations(
            call.rights, are_asked=request.include_cluster_authorized_operations
        ),
    )


def _fenced(node: KafkaNode, listener: str) -> dict[int, BrokerEndpoint]:
    found = {one.broker_id: one.endpoint(listener) for one in node.image.brokers.values() if one.fenced}
    return {broker_id: at for broker_id, at in found.items() if at is not None}


def _broker(node: KafkaNode, broker_id: int, at: BrokerEndpoint) -> DescribeClusterResponse.DescribeClusterBroker:
    known = node.image.brokers[broker_id]
    return DescribeClusterResponse.DescribeClusterBroker(broker_id, at.host, at.port, known.rack, known.fenced)


async def unregister_broker(node: KafkaNode, request: UnregisterBrokerRequest, call: Call) -> UnregisterBrokerResponse:
    """Forgets a broker that is gone for good."""
    await node.change(UnregisterBroker(request.broker_id), request.timeout_ms, call.rights)
    return UnregisterBrokerResponse(error_message=None)


async def update_features(node: KafkaNode, request: UpdateFeaturesRequest, call: Call) -> UpdateFeaturesResponse:
    """Finalizes feature levels: all or none."""
    updates = tuple(
        FeatureUpdate(one.feature, one.max_version_level, _may_be_lowered(one, call.version))
        for one in request.feature_updates
    )
    if updates:
        await node.change(UpdateFeatures(updates, request.validate_only), request.timeout_ms, call.rights)
    results = [UpdateFeaturesResponse.UpdatableFeatureResult(one.name, error_message=None) for one in updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _may_be_lowered(update: UpdateFeaturesRequest.FeatureUpdateKey, version: int) -> bool:
    if version < UPGRADE_TYPES_FROM:
        return update.allow_downgrade
    if update.upgrade_type not in (UPGRADE, *DOWNGRADES):
        raise InvalidRequestError(
            f"{update.feature}: {update.upgrade_type} is no type of an update; 1 raises a level, 2 and 3 may lower it"
        )
    return update.upgrade_type in DOWNGRADES
