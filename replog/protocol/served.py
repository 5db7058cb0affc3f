"""The table of the APIs that are served.  An API that is not in it is not advertised; a request for it ends the connection.

A new API is a row here and functions in `handlers/`: one that answers, one that answers a request which failed as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from replog.protocol.handlers import (
    cluster,
    configs,
    consumer_groups,
    group_members,
    group_offsets,
    groups,
    log_dirs,
    producers,
    quorum,
    reassignments,
    topic_partitions,
    topics,
)
from replog.protocol.handlers.coordinators import find_coordinator, refuse_find_coordinator
from replog.protocol.handlers.fetch import fetch, refuse_fetch
from replog.protocol.handlers.metadata import has_no_error, metadata, refuse_metadata
from replog.protocol.handlers.node import Call, Failure, KafkaNode
from replog.protocol.handlers.offsets import (
    list_offsets,
    offset_for_leader_epoch,
    refuse_list_offsets,
    refuse_offset_for_leader_epoch,
)
from replog.protocol.handlers.produce import produce, refuse_produce
from replog.protocol.handlers.producer_ids import LAST_VERSION, init_producer_id, refuse_init_producer_id
from replog.protocol.private import PRIVATE_APIS, PrivateApi
from replog.protocol.private_answers import handler, refuse_private
from replog.rpc.request_limits import MAX_PARTITIONS
from replog.wire.messages.add_raft_voter import AddRaftVoterRequest
from replog.wire.messages.alter_configs import AlterConfigsRequest
from replog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from replog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from replog.wire.messages.create_partitions import CreatePartitionsRequest
from replog.wire.messages.create_topics import CreateTopicsRequest
from replog.wire.messages.delete_groups import DeleteGroupsRequest
from replog.wire.messages.delete_records import DeleteRecordsRequest
from replog.wire.messages.delete_topics import DeleteTopicsRequest
from replog.wire.messages.describe_cluster import DescribeClusterRequest
from replog.wire.messages.describe_configs import DescribeConfigsRequest
from replog.wire.messages.describe_groups import DescribeGroupsRequest
from replog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from replog.wire.messages.describe_producers import DescribeProducersRequest
from replog.wire.messages.describe_quorum import DescribeQuorumRequest
from replog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from replog.wire.messages.elect_leaders import ElectLeadersRequest
from replog.wire.messages.fetch import FetchRequest
from replog.wire.messages.find_coordinator import FindCoordinatorRequest
from replog.wire.messages.heartbeat import HeartbeatRequest
from replog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest
from replog.wire.messages.join_group import JoinGroupRequest
from replog.wire.messages.leave_group import LeaveGroupRequest
from replog.wire.messages.list_config_resources import ListConfigResourcesRequest
from replog.wire.messages.list_groups import ListGroupsRequest
from replog.wire.messages.list_offsets import ListOffsetsRequest
from replog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from replog.wire.messages.metadata import MetadataRequest
from replog.wire.messages.offset_commit import OffsetCommitRequest
from replog.wire.messages.offset_delete import OffsetDeleteRequest
from replog.wire.messages.offset_fetch import OffsetFetchRequest
from replog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from replog.wire.messages.produce import ProduceRequest
from replog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from replog.wire.messages.sync_group import SyncGroupRequest
from replog.wire.messages.unregister_broker import UnregisterBrokerRequest
from replog.wire.messages.update_features import UpdateFeaturesRequest
from replog.wire.primitives import ELEMENTS_MAX, Reader, Writer

BATCH_ELEMENTS_MAX = 2 * MAX_PARTITIONS
"""The most elements of a Produce: it is read and begun in one piece, so that none overtakes another.  As many as partitions may be,
each in a topic of its own.  Of fewer topics a request with a few more partitions has an answer that says so."""

READ_AT_ONCE_BYTES = 16 << 10
"""Size up to which a request is read at once; a larger one, with hundreds of names, is left to a thread unless it may overlap."""


class Request(Protocol):
    """The class of a request, as it is generated."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def read(cls, r: Reader, version: int) -> Any: ...


class Response(Protocol):
    """The answer to a request, as it is generated."""

    def write(self, w: Writer, version: int) -> None: ...


class Served(Struct, frozen=True):
    """One API.

    Attributes:
        request: The class of its requests, or one of our own APIs; their versions are served.
        handle: The function that answers.  It may raise whatever is a `ReplogError`.
        refuse: The function that answers where the request failed as a whole.
        advertised_from: The first version that is advertised, where that is not the first that is served.
        last_version: The last version that is served, where the class has later ones.
        overlapping_bytes_max: The size of the largest request that may be in flight beside others of its connection: it
            takes its place among them before it waits for anything, so that none overtakes another.  0: none may.
        is_repeated: The function that says of an answer whether all equal requests get it, until the metadata change; None:
            no answer is repeated.
        elements_max: The most elements that the arrays of a request may have together; a request with more ends the
            connection.
        has_records: Whether its answers have records, and a share of the memory for those.
    """

    request: type[Request] | PrivateApi
    handle: Callable[[KafkaNode, Any, Call], Awaitable[Response]]
    refuse: Callable[[Any, Failure], Response]
    advertised_from: int | None = None
    last_version: int | None = None
    overlapping_bytes_max: int = 0
    is_repeated: Callable[[Any], bool] | None = None
    elements_max: int = ELEMENTS_MAX
    has_records: bool = False

    @property
    def key(self) -> int:
        """The key of the API."""
        return self.request.API_KEY

    @property
    def name(self) -> str:
        """The name of the API, as Kafka's documentation has it."""
        return self.request.__name__.removesuffix("Request")

    @property
    def versions(self) -> range:
        """The versions that are served."""
        known = self.request.VERSIONS
        return known if self.last_version is None else range(known.start, self.last_version + 1)

    @property
    def advertised(self) -> range:
        """The versions that clients are told."""
        served = self.versions
        return served if self.advertised_from is None else range(self.advertised_from, served.stop)


SERVED: tuple[Served, ...] = (
    # librdkafka compresses no more if the lowest version of Produce is above 0 (KAFKA-18659)
    Served(
        ProduceRequest,
        produce,
        refuse_produce,
        advertised_from=0,
        overlapping_bytes_max=sys.maxsize,
        elements_max=BATCH_ELEMENTS_MAX,
    ),
    Served(FetchRequest, fetch, refuse_fetch, has_records=True),
    Served(ListOffsetsRequest, list_offsets, refuse_list_offsets),
    Served(OffsetForLeaderEpochRequest, offset_for_leader_epoch, refuse_offset_for_leader_epoch),
    Served(InitProducerIdRequest, init_producer_id, refuse_init_producer_id, last_version=LAST_VERSION),
    Served(MetadataRequest, metadata, refuse_metadata, is_repeated=has_no_error),
    Served(CreateTopicsRequest, topics.create_topics, topics.refuse_create_topics),
    Served(DeleteTopicsRequest, topics.delete_topics, topics.refuse_delete_topics),
    Served(CreatePartitionsRequest, topics.create_partitions, topics.refuse_create_partitions),
    Served(DeleteRecordsRequest, topics.delete_records, topics.refuse_delete_records),
    Served(DescribeTopicPartitionsRequest, topic_partitions.describe, topic_partitions.refuse),
    Served(DescribeConfigsRequest, configs.describe_configs, configs.refuse_describe_configs),
    Served(IncrementalAlterConfigsRequest, configs.incremental_alter_configs, configs.refuse_incremental_alter_configs),
    Served(AlterConfigsRequest, configs.alter_configs, configs.refuse_alter_configs),
    Served(ListConfigResourcesRequest, configs.list_config_resources, configs.refuse_list_config_resources),
    Served(FindCoordinatorRequest, find_coordinator, refuse_find_coordinator),
    Served(
        OffsetCommitRequest,
        group_offsets.offset_commit,
        group_offsets.refuse_offset_commit,
        last_version=group_offsets.LAST_VERSION,
        overlapping_bytes_max=group_offsets.OVERLAPPING_BYTES_MAX,
    ),
    Served(
        OffsetFetchRequest,
        group_offsets.offset_fetch,
        group_offsets.refuse_offset_fetch,
        last_version=group_offsets.LAST_VERSION,
    ),
    Served(OffsetDeleteRequest, group_offsets.offset_delete, group_offsets.refuse_offset_delete),
    Served(DeleteGroupsRequest, groups.delete_groups, groups.refuse_delete_groups),
    Served(ListGroupsRequest, groups.list_groups, groups.refuse_list_groups),
    Served(DescribeGroupsRequest, groups.describe_groups, groups.refuse_describe_groups),
    Served(ConsumerGroupDescribeRequest, consumer_groups.describe, consumer_groups.refuse_describe),
    Served(ConsumerGroupHeartbeatRequest, consumer_groups.heartbeat, consumer_groups.refuse_heartbeat),
    Served(JoinGroupRequest, group_members.join_group, group_members.refuse_join_group),
    Served(SyncGroupRequest, group_members.sync_group, group_members.refuse_sync_group),
    Served(HeartbeatRequest, group_members.heartbeat, group_members.refuse_heartbeat),
    Served(LeaveGroupRequest, group_members.leave_group, group_members.refuse_leave_group),
    Served(DescribeClusterRequest, cluster.describe_cluster, cluster.refuse_describe_cluster),
    Served(UnregisterBrokerRequest, cluster.unregister_broker, cluster.refuse_unregister_broker),
    Served(UpdateFeaturesRequest, cluster.update_features, cluster.refuse_update_features),
    Served(ElectLeadersRequest, reassignments.elect_leaders, reassignments.refuse_elect_leaders),
    Served(AlterPartitionReassignmentsRequest, reassignments.alter, reassignments.refuse_alter),
    Served(ListPartitionReassignmentsRequest, reassignments.list_moving, reassignments.refuse_list),
    Served(DescribeQuorumRequest, quorum.describe_quorum, quorum.refuse_describe_quorum),
    Served(AddRaftVoterRequest, quorum.add_raft_voter, quorum.refuse_add_raft_voter),
    Served(RemoveRaftVoterRequest, quorum.remove_raft_voter, quorum.refuse_remove_raft_voter),
    Served(DescribeLogDirsRequest, log_dirs.describe_log_dirs, log_dirs.refuse_describe_log_dirs),
    Served(AlterReplicaLogDirsRequest, log_dirs.alter_replica_log_dirs, log_dirs.refuse_alter_replica_log_dirs),
    Served(DescribeProducersRequest, producers.describe_producers, producers.refuse_describe_producers),
    *(Served(api, handler(api), refuse_private) for api in PRIVATE_APIS.values()),
)
"""All but ApiVersions, which tells of them (`KafkaServer`)."""
