"""The parts that a node consists of, as `assembly` has made and joined them."""

from __future__ import annotations

from msgspec import Struct

from replog.broker.controller.broker_lifecycle import BrokerLifecycle
from replog.broker.controller.channel import ControllerChannel
from replog.broker.controller.driver import ControllerDriver
from replog.broker.controller.registration import ControllerRegistrar
from replog.broker.coordinator.coordinators import Coordinators
from replog.broker.coordinator.shards import Shards
from replog.broker.disk.flusher import LogFlusher
from replog.broker.loop_lag import LoopLag
from replog.broker.quorum.driver import QuorumDriver
from replog.broker.quorum.metadata_log import MetadataLog
from replog.broker.quorum.metadata_publisher import MetadataPublisher
from replog.broker.quorum.metadata_snapshots import MetadataSnapshots
from replog.broker.replicas.alter_partition import AlterPartitionSender
from replog.broker.replicas.cleaner import LogCleaner
from replog.broker.replicas.fetchers import Fetchers
from replog.broker.replicas.image_queue import ImageQueue
from replog.broker.replicas.log_keeper import LogKeeper
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_path import FetchPath
from replog.broker.requests.handlers import RequestHandlers
from replog.broker.requests.kafka_node import LocalKafkaNode
from replog.broker.requests.peer_handlers import PeerRequestHandlers
from replog.broker.requests.produce_path import ProducePath
from replog.broker.requests.producer_ids import ProducerIdAllocator
from replog.broker.requests.record_deletions import RecordDeletions
from replog.broker.transactions.broker_calls import BrokerCalls
from replog.broker.transactions.marker_sender import MarkerSender
from replog.broker.transactions.verifier import JoinVerifier
from replog.waiting.byte_semaphore import ByteSemaphore


class MetadataParts(Struct, frozen=True, kw_only=True):
    """What decides on metadata, and the way to it.

    Attributes:
        log: The metadata log; the quorum is its only owner.
        controller: The controller of this node; None where it has none.
    """

    log: MetadataLog
    controller: ControllerDriver | None
    quorum: QuorumDriver
    snapshots: MetadataSnapshots
    channel: ControllerChannel
    registrar: ControllerRegistrar


class ReplicaParts(Struct, frozen=True, kw_only=True):
    """What holds data, and keeps it as the metadata says."""

    isr_sender: AlterPartitionSender
    stepper: ReplicaStepper
    manager: ReplicaManager
    lifecycle: BrokerLifecycle
    images: ImageQueue
    keeper: LogKeeper
    cleaner: LogCleaner
    fetchers: Fetchers
    publisher: MetadataPublisher


class CoordinatingParts(Struct, frozen=True, kw_only=True):
    """The coordinators of a node.

    Attributes:
        groups: The coordinators of groups.
        transactions: The coordinators of transactions.
        shards: The shards of both.
        calls: The way to other brokers.
        joins: What asks coordinators of transactions, here or on other brokers.
    """

    groups: Coordinators
    transactions: Coordinators
    shards: Shards
    calls: BrokerCalls
    joins: JoinVerifier


class RequestParts(Struct, frozen=True, kw_only=True):
    """The paths by which requests come in.

    Attributes:
        handlers: What serves clients.
        peer_handlers: What serves other nodes.
        credits: The byte credits of all requests together.
        coordinators: The coordinators of groups.
        coordinating: All coordinators.
        marker_sender: What has the markers of decided transactions written.
        kafka_node: What Kafka's clients are served from.
    """

    produce_path: ProducePath
    fetch_path: FetchPath
    deletions: RecordDeletions
    producer_ids: ProducerIdAllocator
    handlers: RequestHandlers
    peer_handlers: PeerRequestHandlers
    credits: ByteSemaphore
    coordinators: Coordinators
    coordinating: CoordinatingParts
    marker_sender: MarkerSender
    kafka_node: LocalKafkaNode


class NodeParts(Struct, frozen=True, kw_only=True):
    """Every part of one node."""

    flusher: LogFlusher
    loop_lag: LoopLag
    metadata: MetadataParts
    replicas: ReplicaParts
    requests: RequestParts
