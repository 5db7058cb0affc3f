"""The TCP ports at which one node serves clients: one for each of `listeners`."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

from replog.broker.node.logins import Logins
from replog.broker.process import descriptor_limit
from replog.config.kinds import Endpoint, NamedEndpoint
from replog.config.security_keys import LISTENER_PREFIX
from replog.config.server import ServerConfig
from replog.errors import BrokerNotAvailableError
from replog.metadata.config_keys import (
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    ConfigKey,
    address_counts,
)
from replog.metadata.image import CLUSTER_DEFAULTS
from replog.metadata.records import BrokerEndpoint, ResourceType, SecurityProtocol
from replog.protocol.handlers.node import KafkaNode
from replog.protocol.server import KafkaServer, RequestCounts
from replog.tcp.certificates import Certificates
from replog.tcp.connection import ConnectionLimits, RequestServer
from replog.tcp.connection_rates import ConnectionRateLimits
from replog.tcp.listener import Listener, ListenerLimits
from replog.tcp.port import Port
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore

if TYPE_CHECKING:
    from replog.broker.metrics.readings import KafkaReading

READING_BYTES = 128 << 20
"""Of large messages of clients that are being read, before the memory of requests holds them."""

Configs: TypeAlias = Mapping[tuple[ResourceType, str], Mapping[str, str]]
"""What is set of each resource, by key."""

_log = logging.getLogger(__name__)


def limits_within(
    descriptors_max: int,
    config: ServerConfig,
    of_address: Callable[[str], float | None],
    changed: Mapping[str, str] = MappingProxyType({}),
) -> ListenerLimits:
    """Returns how many connections there may be where a process may open so many descriptors: half are left for the logs.

    Args:
        descriptors_max: The most descriptors of the process.
        config: The configuration of the node.
        of_address: The function that returns how many connections may come from an address in a second; None: any number.
        changed: What was set while the cluster runs, and counts before the configuration of the node, by key.
    """

    def number(key: ConfigKey, of_file: int) -> int:
        return int(changed.get(key.cluster_name, of_file))

    def of_listeners(key: ConfigKey) -> dict[str, int]:
        own = {**{f"{LISTENER_PREFIX}{each.name}": each.value for each in config.listener_name}, **changed}
        named = {each.name: f"{LISTENER_PREFIX}{each.name.lower()}.{key.cluster_name}" for each in config.listeners}
        return {listener: int(cast("int | str", own[name])) for listener, name in named.items() if name in own}

    overrides = changed.get(MAX_CONNECTIONS_PER_IP_OVERRIDES.cluster_name)
    of_single = config.max_connections_per_ip_overrides if overrides is None else address_counts(overrides)
    connections_max = max(1, min(number(MAX_CONNECTIONS, config.max_connections), descriptors_max // 2))
    idle_ms = config.connections_max_idle_ms
    return ListenerLimits(
        connections_max,
        min(number(MAX_CONNECTIONS_PER_IP, config.max_connections_per_ip), connections_max),
        min(ListenerLimits().unknown_max, max(1, connections_max // 2)),  # strangers leave room for others
        ConnectionLimits(idle_s=math.inf if idle_ms < 0 else max(1, idle_ms) / 1000),
        by_address={each.address: each.count for each in of_single},
        by_listener=of_listeners(MAX_CONNECTIONS),
        rates=ConnectionRateLimits(
            number(MAX_CONNECTION_CREATION_RATE, config.max_connection_creation_rate),
            of_listeners(MAX_CONNECTION_CREATION_RATE),
            of_address,
        ),
    )


class LimitsInForce:
    """How many connections there may be by what is set now, in the metadata and in the file of the node.

    Args:
        config: The configuration of the node.
        node: The node, whose metadata have what is set.
        of_address: The function that returns how many connections may come from an address in a second; None: any number.
    """

    def __init__(self, config: ServerConfig, node: KafkaNode, of_address: Callable[[str], float | None]) -> None:
        self._config = config
        self._node = node
        self._of_address = of_address
        self._configs: Configs | None = None
        self._limits = limits_within(descriptor_limit(), config, of_address)

    def __call__(self) -> ListenerLimits:
        """Returns the limits; the same object until a configuration changes."""
        try:
            configs = self._node.image.configs
        except BrokerNotAvailableError:  # it has not read the metadata since its start
            return self._limits
        if configs is not self._configs:
            self._configs = configs
            of_broker = configs.get((ResourceType.BROKER, str(self._config.node_id)), {})
            changed = {**configs.get(CLUSTER_DEFAULTS, {}), **of_broker}
            self._limits = limits_within(descriptor_limit(), self._config, self._of_address, changed)
        return self._limits


class ClientPorts:
    """Has its ports from the beginning; our own clients are served as soon as the node's parts run, others when it serves.

    Args:
        config: The configuration of the node.
        ports: The ports that are bound, each for the listener in its place of `listeners`.

    Raises:
        ConfigError: A certificate cannot be used.

    Attributes:
        endpoints: The addresses that clients are told.
        address: That of the first listener, as host:port.
        addresses: Those of all listeners, as NAME://host:port.
        local_address: The host:port at which processes of this machine reach it, whatever clients are told.
    """

    def __init__(self, config: ServerConfig, ports: Sequence[Port]) -> None:
        self.endpoints = tuple(map(partial(_endpoint, config), config.listeners, ports))
        first = self.endpoints[0]
        self.address = str(Endpoint(first.host, first.port))
        self.addresses = tuple(str(NamedEndpoint(each.name, Endpoint(each.host, each.port))) for each in self.endpoints)
        bound = config.client_listener
        host = ("::1" if ":" in bound.host else "127.0.0.1") if bound.is_wildcard else bound.host
        self.local_address = str(Endpoint(host, ports[0].port))
        self._bound = list(ports)
        self._certificates = [_certificates(config, each.name) for each in config.listeners]
        self._server: KafkaServer | None = None
        self._config = config
        self._logins: Logins | None = None
        self._listener: Listener | None = None

    async def start(self, node: KafkaNode, request_bytes: ByteSemaphore, is_serving: Callable[[], bool]) -> None:
        """Begins to listen.

        Args:
            node: The node that answers clients.
            request_bytes: The bytes of requests that the node holds together.
            is_serving: The function that says whether the node serves (`replog.protocol.server.KafkaServer`).

        Raises:
            ConfigError: Another process began to listen there after a port was bound, or tokens cannot be verified.
        """
        if not self._bound:
            return
        server = self._server = KafkaServer(node, is_serving)
        limits = LimitsInForce(self._config, node, server.quotas.connection_rate)
        reading_room = TransferRoom(READING_BYTES)
        requests = RequestServer(server.serve, server.may_overlap, server.carries_records)
        logins = self._logins = Logins(self._config, node, server)
        self._listener = Listener(requests, limits, request_bytes, reading_room)
        for endpoint, certificates in zip(self.endpoints, self._certificates, strict=True):
            make_login = await logins.begin(endpoint.name)
            await self._listener.start(self._bound.pop(0), endpoint.name, certificates, make_login)

    def read(self) -> KafkaReading:
        """Returns what its clients do and did, for the metrics."""
        from replog.broker.metrics.readings import KafkaReading

        listener, server = self._listener, self._server
        return KafkaReading(
            connections=0 if listener is None else len(listener),
            accepted=0 if listener is None else listener.accepted_count,
            ended=0 if listener is None else listener.ended_count,
            refused=Counter() if listener is None else listener.refused_counts,
            held={} if listener is None else listener.held_counts,
            throttled_s={} if server is None else server.quotas.throttled_s,
            counts=RequestCounts() if server is None else server.counts,
        )

    async def stop(self) -> None:
        """Ends all connections, and gives the ports back."""
        while self._bound:
            self._bound.pop().close()
        if self._listener is not None:
            await self._listener.stop()
        if self._logins is not None:
            self._logins.stop()


def _certificates(config: ServerConfig, name: str) -> Certificates | None:
    """Returns what a listener proves, and whom it believes; None: it speaks plain text.

    Raises:
        ConfigError: A file cannot be used.
    """
    protocol = config.protocol_of(name)
    if protocol is not None and not protocol.is_tls:
        return None
    return Certificates(config.tls_settings_of(name), name)


def _endpoint(config: ServerConfig, listener: NamedEndpoint, port: Port) -> BrokerEndpoint:
    """Returns what the clients of a listener are told."""
    told = config.told_client_listener(listener, port.port)
    protocol = config.protocol_of(listener.name) or SecurityProtocol.PLAINTEXT  # each has one: `check_together`
    return BrokerEndpoint(listener.name, told.host, told.port, protocol)
