"""`SyncAdmin`: `Admin` without async."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from replog.client.admin import DEFAULT_TIMEOUT_MS, Admin
from replog.client.cluster import VISIBLE_WITHIN_MS
from replog.client.loop_thread import SyncClient
from replog.client.partition_description import PartitionDescription
from replog.client.reassignments import Reassignments
from replog.client.types import EpochEndOffset, OffsetAndTimestamp, TopicPartition
from replog.controller.messages import NewTopic, TopicResult
from replog.controller.requests import PartitionResult
from replog.metadata.records import ElectionType, ResourceType
from replog.rpc.config_messages import ConfigDescription
from replog.rpc.log_dir_messages import LogDir
from replog.rpc.metadata_messages import ClusterMetadata, TopicInfo
from replog.rpc.node_messages import DescribeNodeResponse
from replog.rpc.quorum_messages import DescribeQuorumResponse
from replog.rpc.transport import Transport


class SyncAdmin(SyncClient[Admin]):
    """`Admin` without async; arguments and errors are the same."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "replog-admin",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        transport: Transport | None = None,
    ) -> None:
        super().__init__(Admin(bootstrap_servers, client_id=client_id, timeout_ms=timeout_ms, transport=transport))

    def close(self) -> None:
        """As `Admin.close`.  Calling it again does nothing."""
        self._end(self._client.close)

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> tuple[TopicResult, ...]:
        """As `Admin.create_topics`."""
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
        """As `Admin.create_topic`."""
        return self._run(
            lambda: self._client.create_topic(
                name, num_partitions, replication_factor, configs, assignments=assignments, timeout_ms=timeout_ms
            )
        )

    def delete_topic(self, name: str, *, timeout_ms: int | None = None) -> None:
        """As `Admin.delete_topic`."""
        self._run(lambda: self._client.delete_topic(name, timeout_ms=timeout_ms))

    def list_topics(self, *, timeout_ms: int | None = None) -> list[str]:
        """As `Admin.list_topics`."""
        return self._run(lambda: self._client.list_topics(timeout_ms=timeout_ms))

    def describe_topics(
        self, names: Iterable[str], *, visible_within_ms: int = VISIBLE_WITHIN_MS
    ) -> dict[str, TopicInfo]:
        """As `Admin.describe_topics`."""
        return self._run(lambda: self._client.describe_topics(names, visible_within_ms=visible_within_ms))

    def alter_topic_configs(self, topic: str, configs: Mapping[str, object], *, timeout_ms: int | None = None) -> None:
        """As `Admin.alter_topic_configs`."""
        self._run(lambda: self._client.alter_topic_configs(topic, configs, timeout_ms=timeout_ms))

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterMetadata:
        """As `Admin.describe_cluster`."""
        return self._run(lambda: self._client.describe_cluster(timeout_ms=timeout_ms))

    def describe_node(
        self, broker: int | str, *, partitions: Iterable[tuple[str, int]] | None = None, timeout_ms: int | None = None
    ) -> DescribeNodeResponse:
        """As `Admin.describe_node`."""
        return self._run(lambda: self._client.describe_node(broker, partitions=partitions, timeout_ms=timeout_ms))

    def describe_node_configs(self, node: int | str, *, timeout_ms: int | None = None) -> tuple[ConfigDescription, ...]:
        """As `Admin.describe_node_configs`."""
        return self._run(lambda: self._client.describe_node_configs(node, timeout_ms=timeout_ms))

    def describe_log_dirs(self, broker: int | str, *, timeout_ms: int | None = None) -> tuple[LogDir, ...]:
        """As `Admin.describe_log_dirs`."""
        return self._run(lambda: self._client.describe_log_dirs(broker, timeout_ms=timeout_ms))

    def move_replica(
        self, topic: str, partition: int, *, broker: int | str, path: str, timeout_ms: int | None = None
    ) -> None:
        """As `Admin.move_replica`."""
        self._run(lambda: self._client.move_replica(topic, partition, broker=broker, path=path, timeout_ms=timeout_ms))

    def describe_partition(
        self, topic: str, partition: int, *, timeout_ms: int | None = None, visible_within_ms: int = VISIBLE_WITHIN_MS
    ) -> PartitionDescription:
        """As `Admin.describe_partition`."""
        return self._run(
            lambda: self._client.describe_partition(
                topic, partition, timeout_ms=timeout_ms, visible_within_ms=visible_within_ms
            )
        )

    def describe_reassignments(
        self, since: Reassignments | None = None, *, timeout_ms: int | None = None
    ) -> Reassignments:
        """As `Admin.describe_reassignments`."""
        return self._run(lambda: self._client.describe_reassignments(since, timeout_ms=timeout_ms))

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """As `Admin.list_offsets`."""
        return self._run(lambda: self._client.list_offsets(timestamps, timeout_ms=timeout_ms))

    def delete_records(
        self, offsets: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """As `Admin.delete_records`."""
        return self._run(lambda: self._client.delete_records(offsets, timeout_ms=timeout_ms))

    def epoch_ends(
        self, epochs: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, EpochEndOffset | None]:
        """As `Admin.epoch_ends`."""
        return self._run(lambda: self._client.epoch_ends(epochs, timeout_ms=timeout_ms))

    def wait_until_ready(self, *, brokers: int = 1, timeout_ms: int | None = None) -> ClusterMetadata:
        """As `Admin.wait_until_ready`."""
        return self._run(lambda: self._client.wait_until_ready(brokers=brokers, timeout_ms=timeout_ms))

    def wait_until_in_sync(self, topic: str, *, timeout_ms: int | None = None) -> TopicInfo:
        """As `Admin.wait_until_in_sync`."""
        return self._run(lambda: self._client.wait_until_in_sync(topic, timeout_ms=timeout_ms))

    def wait_for_topic(
        self, name: str, predicate: Callable[[TopicInfo], bool], *, timeout_ms: int | None = None, what: str = ""
    ) -> TopicInfo:
        """As `Admin.wait_for_topic`."""
        return self._run(lambda: self._client.wait_for_topic(name, predicate, timeout_ms=timeout_ms, what=what))

    def alter_configs(
        self,
        resource: tuple[ResourceType, str],
        configs: Mapping[str, object],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """As `Admin.alter_configs`."""
        self._run(
            lambda: self._client.alter_configs(resource, configs, validate_only=validate_only, timeout_ms=timeout_ms)
        )

    def describe_configs(
        self, resource: tuple[ResourceType, str], *, timeout_ms: int | None = None
    ) -> tuple[ConfigDescription, ...]:
        """As `Admin.describe_configs`."""
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
        """As `Admin.create_partitions`."""
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
        """As `Admin.elect_leaders`."""
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
        """As `Admin.reassign_partitions`."""
        return self._run(
            lambda: self._client.reassign_partitions(
                replicas, allow_replication_factor_change=allow_replication_factor_change, timeout_ms=timeout_ms
            )
        )

    def list_reassignments(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """As `Admin.list_reassignments`."""
        return self._run(lambda: self._client.list_reassignments(timeout_ms=timeout_ms))

    def drain_broker(self, broker_id: int, *, drained: bool = True, timeout_ms: int | None = None) -> int:
        """As `Admin.drain_broker`."""
        return self._run(lambda: self._client.drain_broker(broker_id, drained=drained, timeout_ms=timeout_ms))

    def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """As `Admin.unregister_broker`."""
        self._run(lambda: self._client.unregister_broker(broker_id, timeout_ms=timeout_ms))

    def update_features(
        self, levels: Mapping[str, int], *, allow_downgrade: bool = False, timeout_ms: int | None = None
    ) -> None:
        """As `Admin.update_features`."""
        self._run(lambda: self._client.update_features(levels, allow_downgrade=allow_downgrade, timeout_ms=timeout_ms))

    def describe_quorum(self, *, timeout_ms: int | None = None) -> DescribeQuorumResponse:
        """As `Admin.describe_quorum`."""
        return self._run(lambda: self._client.describe_quorum(timeout_ms=timeout_ms))

    def add_voter(self, voter_id: int, directory_id: UUID, endpoint: str, *, timeout_ms: int | None = None) -> None:
        """As `Admin.add_voter`."""
        self._run(lambda: self._client.add_voter(voter_id, directory_id, endpoint, timeout_ms=timeout_ms))

    def remove_voter(self, voter_id: int, directory_id: UUID | None = None, *, timeout_ms: int | None = None) -> None:
        """As `Admin.remove_voter`."""
        self._run(lambda: self._client.remove_voter(voter_id, directory_id, timeout_ms=timeout_ms))
