"""`SyncAdmin`: `Admin` without async."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from replog.client.admin.admin import Admin
from replog.client.admin.group_descriptions import GroupDescription, PartitionLag
from replog.client.admin.partition_description import PartitionDescription
from replog.client.admin.reassignments import Reassignments
from replog.client.cluster.view import VISIBLE_WITHIN_MS
from replog.client.sync.loop_thread import SyncClient, made_like
from replog.client.types import EpochEndOffset, OffsetAndTimestamp, TopicPartition
from replog.controller.requests import NewTopic, PartitionResult, TopicResult
from replog.coordinator.describing.requests import ListedGroup
from replog.errors import ReplogError
from replog.metadata.records import ElectionType, ResourceType
from replog.rpc.config_messages import ConfigDescription
from replog.rpc.log_dir_messages import LogDir
from replog.rpc.metadata_messages import ClusterMetadata, TopicInfo
from replog.rpc.node_messages import DescribeNodeResponse
from replog.rpc.quorum_messages import DescribeQuorumResponse


class SyncAdmin(SyncClient[Admin]):
    """`Admin` without async; arguments and errors are the same."""

    @made_like(Admin)
    def __init__(self, client: Admin) -> None:
        super().__init__(client)

    def close(self) -> None:
        """Closes the connections, as `Admin.close` does.  Calling it again does nothing."""
        self._end(self._client.close)

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> tuple[TopicResult, ...]:
        """Creates several topics, each for itself, as `Admin.create_topics` does."""
        return self._run(lambda: self._client.create_topics(topics, validate_only=validate_only, timeout_ms=timeout_ms))

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
        *,
        assignments: Sequence[Sequence[int]] = (),
        timeout_ms: int | None = None,
    ) -> TopicInfo:
        """Creates one topic and waits until all its partitions have leaders, as `Admin.create_topic` does."""
        return self._run(
            lambda: self._client.create_topic(
                name, num_partitions, replication_factor, configs, assignments=assignments, timeout_ms=timeout_ms
            )
        )

    def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> tuple[TopicResult, ...]:
        """Deletes several topics, each for itself, as `Admin.delete_topics` does."""
        return self._run(lambda: self._client.delete_topics(names, timeout_ms=timeout_ms))

    def delete_topic(self, name: str, *, timeout_ms: int | None = None) -> None:
        """Deletes a topic and waits until it is gone, as `Admin.delete_topic` does."""
        self._run(lambda: self._client.delete_topic(name, timeout_ms=timeout_ms))

    def list_topics(self, *, timeout_ms: int | None = None) -> list[str]:
        """Returns the names of all topics, sorted, as `Admin.list_topics` does."""
        return self._run(lambda: self._client.list_topics(timeout_ms=timeout_ms))

    def describe_topics(
        self, names: Iterable[str], *, visible_within_ms: int = VISIBLE_WITHIN_MS
    ) -> dict[str, TopicInfo]:
        """Returns partitions, leaders, ISRs and configs, by topic name, as `Admin.describe_topics` does."""
        return self._run(lambda: self._client.describe_topics(names, visible_within_ms=visible_within_ms))

    def alter_topic_configs(self, topic: str, configs: Mapping[str, object], *, timeout_ms: int | None = None) -> None:
        """Sets configs of a topic, as `Admin.alter_topic_configs` does."""
        self._run(lambda: self._client.alter_topic_configs(topic, configs, timeout_ms=timeout_ms))

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterMetadata:
        """Asks anew for brokers, controller and topics, as `Admin.describe_cluster` does."""
        return self._run(lambda: self._client.describe_cluster(timeout_ms=timeout_ms))

    def describe_node(
        self, broker: int | str, *, partitions: Iterable[tuple[str, int]] | None = None, timeout_ms: int | None = None
    ) -> DescribeNodeResponse:
        """Returns what one process says about itself, as `Admin.describe_node` does."""
        return self._run(lambda: self._client.describe_node(broker, partitions=partitions, timeout_ms=timeout_ms))

    def describe_node_configs(self, node: int | str, *, timeout_ms: int | None = None) -> tuple[ConfigDescription, ...]:
        """Returns every configuration that one node goes by, as `Admin.describe_node_configs` does."""
        return self._run(lambda: self._client.describe_node_configs(node, timeout_ms=timeout_ms))

    def describe_log_dirs(self, broker: int | str, *, timeout_ms: int | None = None) -> tuple[LogDir, ...]:
        """Returns the log directories of one broker, as `Admin.describe_log_dirs` does."""
        return self._run(lambda: self._client.describe_log_dirs(broker, timeout_ms=timeout_ms))

    def move_replica(
        self, topic: str, partition: int, *, broker: int | str, path: str, timeout_ms: int | None = None
    ) -> None:
        """Asks a broker to move a replica to another of its log directories, as `Admin.move_replica` does."""
        self._run(lambda: self._client.move_replica(topic, partition, broker=broker, path=path, timeout_ms=timeout_ms))

    def describe_partition(
        self, topic: str, partition: int, *, timeout_ms: int | None = None, visible_within_ms: int = VISIBLE_WITHIN_MS
    ) -> PartitionDescription:
        """Asks the leader and all replicas about a partition, as `Admin.describe_partition` does."""
        return self._run(
            lambda: self._client.describe_partition(
                topic, partition, timeout_ms=timeout_ms, visible_within_ms=visible_within_ms
            )
        )

    def describe_reassignments(
        self, since: Reassignments | None = None, *, timeout_ms: int | None = None
    ) -> Reassignments:
        """Returns how far the reassignments under way are, as `Admin.describe_reassignments` does."""
        return self._run(lambda: self._client.describe_reassignments(since, timeout_ms=timeout_ms))

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Looks up one offset per partition, as `Admin.list_offsets` does."""
        return self._run(lambda: self._client.list_offsets(timestamps, timeout_ms=timeout_ms))

    def delete_records(
        self, offsets: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes what is below the offsets, as `Admin.delete_records` does."""
        return self._run(lambda: self._client.delete_records(offsets, timeout_ms=timeout_ms))

    def epoch_ends(
        self, epochs: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, EpochEndOffset | None]:
        """Looks up where leader epochs end in the leaders' logs, as `Admin.epoch_ends` does."""
        return self._run(lambda: self._client.epoch_ends(epochs, timeout_ms=timeout_ms))

    def wait_until_ready(self, *, brokers: int = 1, timeout_ms: int | None = None) -> ClusterMetadata:
        """Waits until enough brokers are unfenced and there is a controller, as `Admin.wait_until_ready` does."""
        return self._run(lambda: self._client.wait_until_ready(brokers=brokers, timeout_ms=timeout_ms))

    def wait_until_in_sync(self, topic: str, *, timeout_ms: int | None = None) -> TopicInfo:
        """Waits until every partition has a leader and all replicas in the ISR, as `Admin.wait_until_in_sync` does."""
        return self._run(lambda: self._client.wait_until_in_sync(topic, timeout_ms=timeout_ms))

    def wait_for_topic(
        self, name: str, predicate: Callable[[TopicInfo], bool], *, timeout_ms: int | None = None, what: str = ""
    ) -> TopicInfo:
        """Waits until the topic's metadata satisfies `predicate`, as `Admin.wait_for_topic` does."""
        return self._run(lambda: self._client.wait_for_topic(name, predicate, timeout_ms=timeout_ms, what=what))

    def alter_configs(
        self,
        resource: tuple[ResourceType, str],
        configs: Mapping[str, object],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets configurations of a topic, a broker or the cluster, as `Admin.alter_configs` does."""
        self._run(
            lambda: self._client.alter_configs(resource, configs, validate_only=validate_only, timeout_ms=timeout_ms)
        )

    def describe_configs(
        self, resource: tuple[ResourceType, str], *, timeout_ms: int | None = None
    ) -> tuple[ConfigDescription, ...]:
        """Returns every configuration in force for a resource, as `Admin.describe_configs` does."""
        return self._run(lambda: self._client.describe_configs(resource, timeout_ms=timeout_ms))

    def create_partitions(
        self,
        topic: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Gives a topic more partitions, as `Admin.create_partitions` does."""
        self._run(
            lambda: self._client.create_partitions(
                topic, count, assignments=assignments, validate_only=validate_only, timeout_ms=timeout_ms
            )
        )

    def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int | None = None,
    ) -> tuple[PartitionResult, ...]:
        """Lets partitions be led by their first replica, or, unclean, by any, as `Admin.elect_leaders` does."""
        return self._run(
            lambda: self._client.elect_leaders(partitions, election_type=election_type, timeout_ms=timeout_ms)
        )

    def reassign_partitions(
        self,
        replicas: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> tuple[PartitionResult, ...]:
        """Moves partitions; returns when the wish is committed, as `Admin.reassign_partitions` does."""
        return self._run(
            lambda: self._client.reassign_partitions(
                replicas, allow_replication_factor_change=allow_replication_factor_change, timeout_ms=timeout_ms
            )
        )

    def list_reassignments(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """Returns the partitions that are moving, as `Admin.list_reassignments` does."""
        return self._run(lambda: self._client.list_reassignments(timeout_ms=timeout_ms))

    def drain_broker(self, broker_id: int, *, drained: bool = True, timeout_ms: int | None = None) -> int:
        """Marks a broker as one to be emptied, or lets it be used again, as `Admin.drain_broker` does."""
        return self._run(lambda: self._client.drain_broker(broker_id, drained=drained, timeout_ms=timeout_ms))

    def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Forgets a broker that is gone for good, as `Admin.unregister_broker` does."""
        self._run(lambda: self._client.unregister_broker(broker_id, timeout_ms=timeout_ms))

    def update_features(
        self, levels: Mapping[str, int], *, allow_downgrade: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Finalizes feature levels, all or none, as `Admin.update_features` does."""
        self._run(lambda: self._client.update_features(levels, allow_downgrade=allow_downgrade, timeout_ms=timeout_ms))

    def describe_quorum(self, *, timeout_ms: int | None = None) -> DescribeQuorumResponse:
        """Returns the leader, the voters and the observers, as `Admin.describe_quorum` does."""
        return self._run(lambda: self._client.describe_quorum(timeout_ms=timeout_ms))

    def add_voter(self, voter_id: int, directory_id: UUID, endpoint: str, *, timeout_ms: int | None = None) -> None:
        """Lets an observer vote, once it has caught up, as `Admin.add_voter` does."""
        self._run(lambda: self._client.add_voter(voter_id, directory_id, endpoint, timeout_ms=timeout_ms))

    def remove_voter(self, voter_id: int, directory_id: UUID | None = None, *, timeout_ms: int | None = None) -> None:
        """Takes a vote away, as `Admin.remove_voter` does."""
        self._run(lambda: self._client.remove_voter(voter_id, directory_id, timeout_ms=timeout_ms))

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: int | None = None
    ) -> tuple[ListedGroup, ...]:
        """Returns the groups of the cluster, as `Admin.list_groups` does."""
        return self._run(lambda: self._client.list_groups(states=states, types=types, timeout_ms=timeout_ms))

    def describe_groups(self, names: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, GroupDescription]:
        """Returns state, coordinator, epochs and members of groups, as `Admin.describe_groups` does."""
        return self._run(lambda: self._client.describe_groups(names, timeout_ms=timeout_ms))

    def group_offsets(self, group: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Returns the committed offsets of a group, as `Admin.group_offsets` does."""
        return self._run(lambda: self._client.group_offsets(group, timeout_ms=timeout_ms))

    def group_lag(self, group: str, *, timeout_ms: int | None = None) -> tuple[PartitionLag, ...]:
        """Returns how far a group has come in every partition, as `Admin.group_lag` does."""
        return self._run(lambda: self._client.group_lag(group, timeout_ms=timeout_ms))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> None:
        """Commits offsets for a group without members, as `Admin.alter_group_offsets` does."""
        self._run(lambda: self._client.alter_group_offsets(group, offsets, timeout_ms=timeout_ms))

    def delete_groups(self, names: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, ReplogError | None]:
        """Forgets groups without members, each for itself, as `Admin.delete_groups` does."""
        return self._run(lambda: self._client.delete_groups(names, timeout_ms=timeout_ms))

    def delete_group_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ReplogError | None]:
        """Forgets what a group has committed of partitions, as `Admin.delete_group_offsets` does."""
        return self._run(lambda: self._client.delete_group_offsets(group, partitions, timeout_ms=timeout_ms))
