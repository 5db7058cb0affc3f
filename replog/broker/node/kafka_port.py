"""The TCP port at which one node serves Kafka's clients."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from replog.broker.metrics.readings import KafkaReading
from replog.broker.tasks import watched_task
from replog.byte_semaphore import ByteSemaphore
from replog.config.kinds import Endpoint
from replog.config.server import ServerConfig
from replog.kafka.connection import RequestServer
from replog.kafka.handlers.node import KafkaNode
from replog.kafka.listener import Listener, ListenerLimits, bind
from replog.kafka.request_counts import RequestCounts
from replog.kafka.server import KafkaServer
from replog.metadata.records import KAFKA_LISTENER, BrokerEndpoint

_log = logging.getLogger(__name__)


class KafkaPort:
    """Has its port from the beginning, and listens once the node serves.

    Args:
        config: The configuration of the node; `kafka_listener` is set.

    Attributes:
        endpoint: The address that clients are told.
        address: The same as host:port.

    Raises:
        ConfigError: The port is taken, or the address is not this machine's.
    """

    def __init__(self, config: ServerConfig, listener: Endpoint) -> None:
        self._bound: socket.socket | None = bind(listener.host, listener.port)
        port: int = self._bound.getsockname()[1]
        told = config.kafka_advertised_listener or Endpoint(listener.host, port)
        self.endpoint = BrokerEndpoint(KAFKA_LISTENER, told.host, told.port)
        self.address = str(told)
        self._server: KafkaServer | None = None
        self._listener: Listener | None = None
        self._starting: asyncio.Task[None] | None = None

    def start(
        self,
        node: KafkaNode,
        request_bytes: ByteSemaphore,
        is_serving: Callable[[], Awaitable[None]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Begins to listen as soon as the node serves: before, clients are refused and go to another broker.

        Args:
            node: The node that answers.
            request_bytes: The bytes of requests that the node holds together.
            is_serving: The function that waits until the node serves.
            on_failure: The function that is told of a bug in this.
        """
        server = self._server = KafkaServer(node)
        listener = Listener(RequestServer(server.serve, server.may_overlap), ListenerLimits(), request_bytes)
        self._starting = watched_task(self._listen(listener, is_serving), name="kafka-port", on_failure=on_failure)

    async def _listen(self, listener: Listener, is_serving: Callable[[], Awaitable[None]]) -> None:
        await is_serving()
        bound, self._bound = self._bound, None
        if bound is None:
            return
        self._listener = listener
        await listener.start(bound)
        _log.info("Kafka's clients are served at %s", self.address)

    def read(self) -> KafkaReading:
        """Returns what its clients do and did."""
        listener, server = self._listener, self._server
        return KafkaReading(
            connections=0 if listener is None else len(listener),
            accepted=0 if listener is None else listener.accepted_count,
            ended=0 if listener is None else listener.ended_count,
            counts=RequestCounts() if server is None else server.counts,
        )

    async def stop(self) -> None:
        """Ends all connections, and gives the port back."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self._listener is not None:
            await self._listener.stop()
