"""The cluster as clients see it: brokers, topics and partitions, asked for once or watched.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from replog.controller.requests import ConfigEntry
from replog.metadata.records import BrokerEndpoint
from replog.waiting.asks import Asks


class BrokerInfo(Struct, frozen=True):
    """One broker, as clients see it; `endpoints`: where it serves clients of other protocols, as Kafka's."""

    broker_id: int
    host: str
    port: int
    broker_epoch: int
    fenced: bool
    rack: str | None = None
    drained: bool = False
    in_controlled_shutdown: bool = False
    endpoints: tuple[BrokerEndpoint, ...] = ()


class PartitionInfo(Struct, frozen=True, array_like=True):
    """One partition.  Clients are sent hundreds of thousands: values without names; a new field goes to the end."""

    partition_id: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


class TopicInfo(Struct, frozen=True):
    """One topic, as clients see it.

    A new field goes into `proto/` by the same name (`make proto`), and is filled in `metadata_views` of the broker; one that is
    neither of a partition nor a configuration must count as a change there, or clients that watch never see it change.
    """

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    configs: tuple[ConfigEntry, ...] = ()


class ClusterMetadata(Struct, frozen=True):
    """A broker's view of the cluster.  `controller_id` -1: unknown, or the broker is cut off and may tell of the past.

    `metadata_offset` -1: brokers of Apache Kafka, which do not tell it.
    """

    cluster_id: str
    metadata_offset: int
    controller_id: int
    controller_epoch: int
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]


class MetadataRequest(Asks["ClusterMetadata"], frozen=True):
    """Brokers, controller, and the topics that are named: as many as fit into one answer are for the caller to choose."""

    topics: tuple[str, ...] = ()


class WatchRequest(Struct, frozen=True):
    """Everything, in steps of a bounded size, or what changed since.

    Attributes:
        known_offset: The `metadata_offset` of the image the client has; 0 or less: none.
        follow: Whether the watch goes on with every change; else it ends with the first image.
    """

    known_offset: int = 0
    follow: bool = True


class WaitForMetadata(Struct, frozen=True):
    """The steps to the next image that a client does not know; none where nothing changes for `wait_ms`.

    Attributes:
        known_offset: The `metadata_offset` of the image the client has; 0 or less: none.
        controller_id, controller_epoch: The controller that this broker told the client; None: it has told nothing yet.
        wait_ms: How long to wait for a change; 0: not at all.
    """

    known_offset: int = 0
    controller_id: int | None = None
    controller_epoch: int | None = None
    wait_ms: int = 0


class MetadataUpdate(Struct, frozen=True):
    """One step of the metadata watch; the steps up to one with `is_last` lead from one image to the next.

    The first steps start from the image of the request's `known_offset`, or from nothing.

    Attributes:
        metadata_offset: The offset of the image that the steps lead to; below `known_offset` the sender is behind,
            and the receiver keeps its image.
        controller_id: The same as in `ClusterMetadata`.
        topics: The changed topics with all their configs.  Of one that was known under the same id the changed
            partitions, of another all of them, which may be spread over several steps.
        deleted_topics: The names of deleted topics; they go before `topics` come, which may have the same names.
        is_full: Whether the image starts from nothing.
    """

    cluster_id: str
    metadata_offset: int
    controller_id: int
    controller_epoch: int
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]
    deleted_topics: tuple[str, ...] = ()
    is_full: bool = False
    is_last: bool = True
