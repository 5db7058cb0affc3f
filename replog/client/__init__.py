"""Clients: `Admin`, `Producer` and `Consumer` on asyncio, and the same without it (`SyncAdmin`, ...).

Nothing here loads gRPC: that is for nodes among themselves.  Each name loads what it needs when it is first used: who produces
loads no consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from replog.host.late_names import late_names

if TYPE_CHECKING:
    from replog.access.entries import AclEntry, AclFilter, AclOperation, PatternType, Permission, ResourceKind
    from replog.client.admin.admin import Admin
    from replog.client.admin.group_descriptions import GroupDescription, MemberDescription, PartitionLag
    from replog.client.admin.partition_description import PartitionDescription, ReplicaDescription
    from replog.client.admin.reassignments import CopyProgress, PartitionReassignment, Reassignments
    from replog.client.admin.transactions import HangingTransaction
    from replog.client.cluster.view import ClusterView
    from replog.client.consumer.consumer import Consumer
    from replog.client.consumer.group_settings import AssignmentListener
    from replog.client.producer.batch import BulkDelivery, Delivery
    from replog.client.producer.partitioner import DefaultPartitioner, Partitioner
    from replog.client.producer.producer import Producer
    from replog.client.producer.transaction import Transaction
    from replog.client.protocol.transactions import TransactionDetails, TransactionListing
    from replog.client.security.security import Security
    from replog.client.sync.admin import SyncAdmin
    from replog.client.sync.consumer import SyncConsumer
    from replog.client.sync.loop_thread import LoopThread
    from replog.client.sync.producer import SyncBulkDelivery, SyncDelivery, SyncProducer, SyncTransaction
    from replog.client.tracing import trace_context, trace_headers
    from replog.client.types import (
        ConsumerRecord,
        DeliveredRange,
        FetchedBatches,
        GroupMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )
    from replog.controller.requests import NewTopic
    from replog.records import murmur2
    from replog.rpc.metadata_messages import ClusterMetadata, PartitionInfo, TopicInfo

__all__ = [
    "AclEntry",
    "AclFilter",
    "AclOperation",
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
    "GroupMetadata",
    "HangingTransaction",
    "LoopThread",
    "MemberDescription",
    "NewTopic",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "PartitionInfo",
    "PartitionLag",
    "PartitionReassignment",
    "Partitioner",
    "PatternType",
    "Permission",
    "Producer",
    "Reassignments",
    "RecordMetadata",
    "ReplicaDescription",
    "ResourceKind",
    "Security",
    "SyncAdmin",
    "SyncBulkDelivery",
    "SyncConsumer",
    "SyncDelivery",
    "SyncProducer",
    "SyncTransaction",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "TransactionDetails",
    "TransactionListing",
    "murmur2",
    "trace_context",
    "trace_headers",
]

_HOMES: Final[Mapping[str, str]] = {
    "AclEntry": "replog.access.entries",
    "AclFilter": "replog.access.entries",
    "AclOperation": "replog.access.entries",
    "Admin": "replog.client.admin.admin",
    "AssignmentListener": "replog.client.consumer.group_settings",
    "BulkDelivery": "replog.client.producer.batch",
    "ClusterMetadata": "replog.rpc.metadata_messages",
    "ClusterView": "replog.client.cluster.view",
    "Consumer": "replog.client.consumer.consumer",
    "ConsumerRecord": "replog.client.types",
    "CopyProgress": "replog.client.admin.reassignments",
    "DefaultPartitioner": "replog.client.producer.partitioner",
    "DeliveredRange": "replog.client.types",
    "Delivery": "replog.client.producer.batch",
    "FetchedBatches": "replog.client.types",
    "GroupDescription": "replog.client.admin.group_descriptions",
    "GroupMetadata": "replog.client.types",
    "HangingTransaction": "replog.client.admin.transactions",
    "LoopThread": "replog.client.sync.loop_thread",
    "MemberDescription": "replog.client.admin.group_descriptions",
    "NewTopic": "replog.controller.requests",
    "OffsetAndTimestamp": "replog.client.types",
    "PartitionDescription": "replog.client.admin.partition_description",
    "PartitionInfo": "replog.rpc.metadata_messages",
    "PartitionLag": "replog.client.admin.group_descriptions",
    "PartitionReassignment": "replog.client.admin.reassignments",
    "Partitioner": "replog.client.producer.partitioner",
    "PatternType": "replog.access.entries",
    "Permission": "replog.access.entries",
    "Producer": "replog.client.producer.producer",
    "Reassignments": "replog.client.admin.reassignments",
    "RecordMetadata": "replog.client.types",
    "ReplicaDescription": "replog.client.admin.partition_description",
    "ResourceKind": "replog.access.entries",
    "Security": "replog.client.security.security",
    "SyncAdmin": "replog.client.sync.admin",
    "SyncBulkDelivery": "replog.client.sync.producer",
    "SyncConsumer": "replog.client.sync.consumer",
    "SyncDelivery": "replog.client.sync.producer",
    "SyncProducer": "replog.client.sync.producer",
    "SyncTransaction": "replog.client.sync.producer",
    "TopicInfo": "replog.rpc.metadata_messages",
    "TopicPartition": "replog.client.types",
    "Transaction": "replog.client.producer.transaction",
    "TransactionDetails": "replog.client.protocol.transactions",
    "TransactionListing": "replog.client.protocol.transactions",
    "murmur2": "replog.records",
    "trace_context": "replog.client.tracing",
    "trace_headers": "replog.client.tracing",
}

__getattr__, __dir__ = late_names(__name__, _HOMES)
