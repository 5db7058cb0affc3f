"""No request ends a node: each is answered or refused, and afterwards the same node serves, in the same epoch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from uuid import UUID

import pytest
from hostile_requests import hostile
from test_broker_node import Running, node

from replog.controller import messages as controller
from replog.errors import ErrorCode, ReplogError
from replog.metadata.records import ElectionType, ResourceType, SupportedFeature
from replog.pb.v1 import controller_pb2, data_pb2
from replog.rpc import calls
from replog.rpc.client_messages import ClientRequest
from replog.rpc.config_messages import DescribeConfigsRequest
from replog.rpc.grpc_transport import SERVICE
from replog.rpc.log_dir_messages import DescribeLogDirsRequest, MoveReplicaRequest
from replog.rpc.messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    EpochEndPartition,
    EpochEndsRequest,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from replog.rpc.metadata_messages import MetadataRequest, TopicInfo
from replog.rpc.node_messages import DescribeNodeRequest
from replog.rpc.quorum_messages import AddVoterRequest, DescribeQuorumRequest, RemoveVoterRequest
from replog.testing import SimulatedFileSystem

TIMEOUT_MS = 2_000
STRANGER = 77


def controller_templates(topic: TopicInfo, broker_epoch: int) -> list[controller.ControllerRequest]:
    """One good request of each kind; of some, one more that is refused late."""
    replica = controller.OfflineReplica(UUID(int=7), 0)
    features = (SupportedFeature("metadata.version", 1, 2),)
    register = controller.RegisterBroker(
        STRANGER, "c", UUID(int=3), "127.0.0.1", 9, (UUID(int=4),), "rack", -1, features, 1
    )
    change = controller.PartitionIsrChange(topic.topic_id, 0, 0, 0, (controller.IsrMember(1, broker_epoch),))
    partition = controller.TopicPartition("t", 0)
    configs = (controller.AlterableConfig("retention.ms", controller.ConfigOperation.SET, "5"),)
    return [
        register,
        controller.Heartbeat(1, broker_epoch, 5, offline_replicas=(replica,)),
        controller.AlterPartition(1, broker_epoch, (change,)),
        controller.CreateTopics(
            (controller.NewTopic("new", 1, 1, configs=(controller.ConfigEntry("retention.ms", "5"),)),),
            validate_only=True,
        ),
        controller.CreateTopics((controller.NewTopic("placed", assignments=((1,),)),), validate_only=True),
        controller.CreatePartitions((controller.NewPartitions("t", 2, ((1,),)),), validate_only=True),
        controller.DeleteTopics(("missing",)),
        controller.AlterConfigs((controller.AlterConfigsResource(ResourceType.TOPIC, "t", configs),)),
        controller.AlterConfigs((controller.AlterConfigsResource(ResourceType.BROKER, "1", configs),)),
        controller.AllocateProducerIds(1, broker_epoch),
        controller.ReportReplicas(1, broker_epoch, (controller.ReplicaEnd(topic.topic_id, 0, 0, 1),)),
        controller.ElectLeaders(ElectionType.PREFERRED, (partition,)),
        controller.AlterPartitionReassignments((controller.Reassignment("t", 0, (1,)),)),
        controller.UnregisterBroker(STRANGER),
        controller.DrainBroker(STRANGER, drained=True),
        controller.UpdateFeatures((controller.FeatureUpdate("metadata.version", 2),), validate_only=True),
        controller.RegisterController(STRANGER, "c", UUID(int=3), "127.0.0.1", 9, features),
    ]


def client_templates(topic: TopicInfo) -> list[ClientRequest]:
    topic_id = topic.topic_id
    return [
        MetadataRequest(("t",)),
        ListOffsetsRequest((ListOffsetsPartition(topic_id, 0, 5, 0),)),
        EpochEndsRequest((EpochEndPartition(topic_id, 0, 0, 0),)),
        DeleteRecordsRequest((DeleteRecordsPartition(topic_id, 0, 0, 0),)),
        InitProducerIdRequest(),
        DescribeNodeRequest((controller.TopicPartition("t", 0),)),
        DescribeQuorumRequest(),
        AddVoterRequest(STRANGER, UUID(int=9), "127.0.0.1:9"),
        RemoveVoterRequest(STRANGER, UUID(int=9)),
        DescribeConfigsRequest(ResourceType.TOPIC, "t"),
        MoveReplicaRequest("t", 0, "/data"),
        DescribeLogDirsRequest(),
    ]


def controller_requests(topic: TopicInfo, broker_epoch: int) -> Iterator[tuple[str, bytes]]:
    for template in controller_templates(topic, broker_epoch):
        body = calls.encode_controller_request(template, cluster_id="c", timeout_ms=TIMEOUT_MS)
        yield from hostile(controller_pb2.ControllerRequest.FromString(body))


def client_requests(topic: TopicInfo) -> Iterator[tuple[str, bytes]]:
    for template in client_templates(topic):
        body = calls.encode_client_request(template, cluster_id="c", timeout_ms=TIMEOUT_MS)
        yield from hostile(data_pb2.ClientRequest.FromString(body))
