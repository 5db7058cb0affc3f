"""Clients: `Admin`, `Producer` and `Consumer` on asyncio, and the same without it (`SyncAdmin`, ...).

Nothing here loads gRPC: that is for nodes among themselves.
"""

from replog.client.admin.admin import Admin
from replog.client.admin.group_descriptions import GroupDescription, MemberDescription, PartitionLag
from replog.client.admin.partition_description import PartitionDescription, ReplicaDescription
from replog.client.admin.reassignments import CopyProgress, PartitionReassignment, Reassignments
from replog.client.cluster.view import ClusterView
from replog.client.consumer.consumer import Consumer
from replog.client.consumer.group_settings import AssignmentListener
from replog.client.producer.batch import BulkDelivery, Delivery
from replog.client.producer.partitioner import DefaultPartitioner, Partitioner
from replog.client.producer.producer import Producer
from replog.client.sync.admin import SyncAdmin
from replog.client.sync.consumer import SyncConsumer
from replog.client.sync.loop_thread import LoopThread
from replog.client.sync.producer import SyncBulkDelivery, SyncDelivery, SyncProducer
from replog.client.types import (
    ConsumerRecord,
    DeliveredRange,
    FetchedBatches,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)
from replog.controller.messages import NewTopic
from replog.records import murmur2
from replog.rpc.metadata_messages import ClusterMetadata, PartitionInfo, TopicInfo

__all__ = [
    "Admin",
    "AssignmentListener",
    "BulkDelivery",
    "ClusterMetadata",
    "ClusterView",
    "Consumer",
    "ConsumerRecord",
    "CopyProgress",
    "DefaultPartitioner",
    "DeliveredRange",
    "Delivery",
    "FetchedBatches",
    "GroupDescription",
    "LoopThread",
    "MemberDescription",
    "NewTopic",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "PartitionInfo",
    "PartitionLag",
    "PartitionReassignment",
    "Partitioner",
    "Producer",
    "Reassignments",
    "RecordMetadata",
    "ReplicaDescription",
    "SyncAdmin",
    "SyncBulkDelivery",
    "SyncConsumer",
    "SyncDelivery",
    "SyncProducer",
    "TopicInfo",
    "TopicPartition",
    "murmur2",
]
