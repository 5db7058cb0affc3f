"""What a node takes hold of before its parts are made: log directories, ports, threads for the disk, the metadata log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from replog.access.authorizer import Authorizer
from replog.broker.node.client_ports import ClientPorts
from replog.broker.node.core_settings import disk_limits, metadata_log_config
from replog.broker.node.environment import NodeEnvironment
from replog.broker.quorum.metadata_log import MetadataLog
from replog.broker.replicas.logs import METADATA_TOPIC_ID
from replog.config.security_keys import INTER_BROKER, METRICS
from replog.config.server import ServerConfig
from replog.config.server_keys import InterBrokerTransport
from replog.errors import ConfigError, DiskFullError
from replog.host.extras import install_command
from replog.log import METADATA_TOPIC, LogManager, RecoveryProgress
from replog.metadata.records import BrokerEndpoint
from replog.rpc.messages import Hello
from replog.rpc.node_tls import NodeTls
from replog.rpc.transport import PeerTransport
from replog.tcp.certificates import Certificates
from replog.tcp.node_names import NodeName
from replog.tcp.tls_settings import PortProtocol

if TYPE_CHECKING:
    from replog.broker.metrics.service import MetricsService

_log = logging.getLogger(__name__)

DISK_THREADS = 4


class NodeResources(Struct, frozen=True, kw_only=True):
    """What the parts of one node are made from.

    Attributes:
        config: The configuration of the node.
        environment: Its disks, clocks and network.
        peers: The way to other nodes.
        incarnation_id: The id of this run of the process.
        logs: The open log directories.
        metadata_log: The open metadata log.
        executor: The threads for the disk.
        address: The host:port that other nodes use.
        clients: The ports at which clients are served.
        metrics: What Prometheus reads; None: metrics are off.
        on_failure: The function that ends the node because of a bug or a failed disk.
        authorizer: What decides who may do what.
    """

    config: ServerConfig
    environment: NodeEnvironment
    peers: PeerTransport
    incarnation_id: UUID
    logs: LogManager
    metadata_log: MetadataLog
    executor: Executor
    address: str
    clients: ClientPorts
    metrics: MetricsService | None
    on_failure: Callable[[BaseException], None]
    authorizer: Authorizer

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self.logs.cluster_id

    @property
    def endpoints(self) -> tuple[BrokerEndpoint, ...]:
        """Where this node serves clients."""
        return self.clients.endpoints

    def hello(self) -> Hello:
        """Makes the first message of every stream of this node."""
        return Hello(self.cluster_id, self.config.node_id, self.incarnation_id)

    def make_room(self) -> bool:
        """Gives the reserve back where the metadata log met a full disk; returns whether there was one."""
        return make_room(self.logs)


def open_logs(
    config: ServerConfig, environment: NodeEnvironment, on_recovery: Callable[[RecoveryProgress], None] | None
) -> LogManager:
    """Opens every log directory and, after an unclean stop, recovers every log.

    A replica or a log directory that cannot be opened is offline, unless the node cannot go on without it.
    """
    logs = LogManager.open(
        environment.fs,
        config.log_dirs,
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        now_ms=environment.clock.wall_ms(),
        new_directory_id=environment.new_uuid,
        limits=disk_limits(config),
        recovery_threads=config.num_recovery_threads_per_data_dir,
        on_progress=on_recovery,
        monotonic_ms=environment.clock.now_ms,
        threads=environment.threads,
    )
    for path in logs.set_aside:
        _log.warning("%s: a newer one is in another log directory; remove it if it is not needed", path)
    for told in logs.finished_moves.told:
        _log.warning("%s", told)
    for path, error in logs.unopened.items():
        _log.critical("log directory %s is offline: %s", path, error)
    for (topic, partition_id), problem in logs.offline.items():
        _log.error("replica %s-%d cannot be opened: %s", topic, partition_id, problem)
    return logs


def open_metadata_log(config: ServerConfig, environment: NodeEnvironment, logs: LogManager) -> MetadataLog:
    """Opens the metadata log; blocks for as long as the disk needs.

    The checkpoint names it before the node can vote: a node that has lost it must not begin anew under the same id.
    """
    log = logs.open_log(
        METADATA_TOPIC,
        0,
        METADATA_TOPIC_ID,
        metadata_log_config(config),
        now_ms=environment.clock.wall_ms(),
        directory=config.log_dir,
    )
    home = logs.directories[config.log_dir]
    if (METADATA_TOPIC, 0) not in home.recovery_points:
        with contextlib.suppress(DiskFullError):  # a disk that is full now says so when something is written
            home.checkpoint_recovery_points()
    return MetadataLog(environment.fs, log, environment.clock, partial(make_room, logs))


def make_room(logs: LogManager) -> bool:
    """Gives the reserve back where the metadata log met a full disk; returns whether there was one."""
    home = logs.home_of(METADATA_TOPIC, 0)
    return home is not None and home.space.make_room()


def node_tls(config: ServerConfig, cluster_id: str) -> NodeTls | None:
    """Returns what a node proves to others, and whom it believes; None: nodes speak plain text.

    Args:
        config: The configuration of the node.
        cluster_id: The id of the cluster, which its log directories know.

    Raises:
        ConfigError: A certificate cannot be used, or is not that of this node.
    """
    if not config.nodes_speak_tls:
        return None
    return NodeTls(
        NodeName(cluster_id, config.node_id),
        config.tls_settings_of(INTER_BROKER),
        dials=config.security_inter_broker_protocol is PortProtocol.SSL,
        accepts_plain=PortProtocol.PLAINTEXT in config.accepted_from_nodes,
        is_over_grpc=config.inter_broker_transport is InterBrokerTransport.GRPC,
    )


def open_client_ports(config: ServerConfig, environment: NodeEnvironment) -> ClientPorts:
    """Takes the ports for clients: all or none.

    Raises:
        ConfigError: One cannot be bound, or its certificate cannot be used.
    """
    with contextlib.ExitStack() as taken:
        ports = []
        for each in config.listeners:
            port = environment.bind_tcp(each.endpoint.host, each.endpoint.port)
            taken.callback(port.close)
            ports.append(port)
        found = ClientPorts(config, ports)
        taken.pop_all()
    return found


def open_metrics(config: ServerConfig) -> MetricsService | None:
    """Takes the port of the metrics, where they are wanted.

    Raises:
        ConfigError: The port cannot be bound, its certificate cannot be used, or the library is missing.
    """
    if config.metrics_listener is None:
        return None
    try:
        from replog.broker.metrics.service import MetricsService
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise ConfigError(
            "metrics.listener",
            str(config.metrics_listener),
            f"metrics.listener needs the library prometheus-client: {install_command('metrics')}, or leave the key out",
        ) from error
    is_tls = config.metrics_security_protocol is PortProtocol.SSL
    certificates = Certificates(config.tls_settings_of(METRICS), METRICS) if is_tls else None
    return MetricsService(config.metrics_listener, certificates)
