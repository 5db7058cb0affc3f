"""One node: controller, broker, or both, started, kept alive and ended; `assembly` makes its parts.

Start order: log directories (locks, recovery) -> quorum -> server -> registration -> replicas, as the metadata log says.
Stop order: controlled shutdown -> server -> replicas -> quorum -> logs flushed, checkpoints, clean-shutdown marker.
A bug or a failed disk stops the node at once without the marker: the next start then recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self

from replog.broker.companion import Companion
from replog.broker.node.assembly import assemble
from replog.broker.node.client_ports import ClientPorts
from replog.broker.node.console import open_console
from replog.broker.node.core_settings import authorizer
from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.links import PartLinks
from replog.broker.node.parts import NodeParts
from replog.broker.node.resources import (
    DISK_THREADS,
    NodeResources,
    node_tls,
    open_client_ports,
    open_logs,
    open_metadata_log,
    open_metrics,
)
from replog.broker.replicas.log_keeper import known_high_watermarks
from replog.broker.tasks import finished
from replog.config.server import ServerConfig
from replog.errors import BrokerClosedError, DiskFullError, StorageError
from replog.log import LogManager, RecoveryProgress
from replog.rpc.transport import Server

if TYPE_CHECKING:
    from replog.broker.metrics.readings import ReadParts
    from replog.broker.metrics.service import MetricsService

CONTROLLED_SHUTDOWN_TIMEOUT_S = 5.0
SERVER_STOP_GRACE_S = 0.2

_log = logging.getLogger(__name__)


class Node:
    """A running node.  Make it with `await Node.start(config)`, end it with `await node.stop()`.

    Attributes:
        console: The console beside it; None: there is none.

    Invariants:
        - one incarnation id per process start;
        - after a failure nothing is acknowledged any more, and `wait_closed` raises the failure.
    """

    def __init__(self, config: ServerConfig, logs: LogManager, environment: NodeEnvironment) -> None:
        self.config = config
        self.logs = logs
        self.incarnation_id = environment.new_uuid()
        self.cluster_id = logs.cluster_id
        self._environment = environment
        self._executor = environment.threads(DISK_THREADS, "replog-disk")
        self._server: Server | None = None
        self._clients: ClientPorts | None = None
        self._metrics: MetricsService | None = None
        self.console: Companion | None = None
        self._parts: NodeParts | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: BaseException | None = None
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        config: ServerConfig,
        *,
        environment: NodeEnvironment | None = None,
        on_recovery: Callable[[RecoveryProgress], None] | None = None,
        make_links: Callable[[Self, NodeResources], PartLinks] | None = None,
    ) -> Self:
        """Starts a node; returns when it listens.  `wait_until_ready` waits for its place in the cluster.

        Args:
            config: The configuration of the node.
            environment: The disks, clocks and network of the node; None for the real ones.
            on_recovery: The function that is told, in other threads, how far the opening of the logs has come.
            make_links: A function that makes what joins the parts, for whoever wants to hear what they tell each other;
                None: `PartLinks`.

        Raises:
            ConfigError: The port is taken.
            DirectoryLockedError, InconsistentClusterIdError, CorruptCheckpointError, CorruptRecordError: A log
                directory cannot be used; nothing in it was changed.
        """
        environment = environment or NodeEnvironment()
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(None, open_logs, config, environment, on_recovery)
        try:
            logs = await finished(opening)
        except asyncio.CancelledError:
            if not opening.cancelled() and opening.exception() is None:
                opening.result().close(broker_epoch=None, now_ms=environment.clock.wall_ms())
            raise
        node = cls(config, logs, environment)
        try:
            await node._start(PartLinks if make_links is None else partial(make_links, node))
        except GeneratorExit:
            raise  # whoever closes a coroutine, as a simulation does with a process that dies, runs nothing to its end
        except BaseException:
            await node.abort()
            raise
        return node

    async def _start(self, make_links: Callable[[NodeResources], PartLinks]) -> None:
        config, environment, loop = self.config, self._environment, asyncio.get_running_loop()
        clients = self._clients = open_client_ports(config, environment)
        peers = environment.peers(config.inter_broker_transport, node_tls(config, self.cluster_id))
        self._server = peers.bind(config.peer_listener.host, config.peer_listener.port)
        self._metrics = open_metrics(config)
        self.console = open_console(config, clients.local_address)
        resources = NodeResources(
            config=config,
            environment=environment,
            peers=peers.transport,
            incarnation_id=self.incarnation_id,
            logs=self.logs,
            metadata_log=await finished(
                loop.run_in_executor(self._executor, open_metadata_log, config, environment, self.logs)
            ),
            executor=self._executor,
            address=self.peer_address,
            clients=clients,
            metrics=self._metrics,
            on_failure=self._fail,
            authorizer=authorizer(config),
        )
        parts = self._parts = assemble(resources, make_links)
        await self._server.start(parts.requests.peer_handlers)
        self._start_parts(parts)
        requests, lifecycle = parts.requests, parts.replicas.lifecycle
        await clients.start(requests.kafka_node, requests.credits, lambda: lifecycle.is_running)
        if self.console is not None:
            self.console.start()

    def _start_parts(self, parts: NodeParts) -> None:
        metadata, replicas = parts.metadata, parts.replicas
        parts.loop_lag.start()
        if self._metrics is not None:
            self._metrics.start(_read_parts(parts, self._clients, self._server))
        if metadata.controller is not None:
            metadata.controller.start(metadata.quorum)
            metadata.registrar.start()
        replicas.stepper.driver.start()
        metadata.quorum.start()
        metadata.snapshots.start()
        if self.config.is_broker:
            replicas.isr_sender.start()
            replicas.lifecycle.start()
            replicas.keeper.start()
            replicas.cleaner.start()

    # ---- what users of a node see -------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """host:port that clients use."""
        if self._clients is None:
            raise BrokerClosedError("the node does not listen")
        return self._clients.address

    @property
    def client_addresses(self) -> tuple[str, ...]:
        """What the clients of each listener use: NAME://host:port, without the name for that of PLAINTEXT."""
        return () if self._clients is None else self._clients.addresses

    @property
    def peer_address(self) -> str:
        """host:port that other nodes use."""
        if self._server is None:
            raise BrokerClosedError("the node does not listen")
        return str(self.config.told_peer_listener(self._server.port))

    @property
    def parts(self) -> NodeParts:
        """The parts, for those who look into a node: tests and simulations."""
        if self._parts is None:
            raise BrokerClosedError("the node has not started")
        return self._parts

    @property
    def metrics_address(self) -> str | None:
        """host:port that serves metrics; None: they are off."""
        return None if self._metrics is None else self._metrics.address

    async def wait_until_ready(self) -> None:
        """Waits until this broker is registered, caught up and unfenced; raises what stopped the node.

        A node that is a controller only is ready when it has started.
        """
        if not self.config.is_broker:
            return
        ready = asyncio.ensure_future(self.parts.replicas.lifecycle.wait_until_running())
        try:
            await asyncio.wait({ready, self._closed}, return_when=asyncio.FIRST_COMPLETED)
            if self._closed.done():
                self._closed.result()
        finally:
            ready.cancel()

    async def wait_closed(self) -> None:
        """Waits until the node has stopped; raises what stopped it, if that was a failure."""
        await asyncio.shield(self._closed)

    async def stop(self) -> None:
        """Stops in order and leaves the clean-shutdown marker; after a failure, waits for the end that is under way.

        Raises:
            StorageError: A log could not be closed in order; there is no marker.
        """
        await self._end(orderly=True)

    async def abort(self) -> None:
        """Stops at once, as a crash would, but frees the lock and the port.  No marker: the next start recovers."""
        await self._end(orderly=False)

    # ---- the end ------------------------------------------------------------------------------------------------------

    async def _end(self, *, orderly: bool) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._run_end(orderly=orderly), name="node-end")
        await asyncio.shield(self._ending)

    async def _run_end(self, *, orderly: bool) -> None:
        try:
            try:
                if orderly and self.config.is_broker:
                    await self.parts.replicas.lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_TIMEOUT_S)
                await self._stop_tasks()
            except Exception as error:
                self._failure = self._failure or error  # no marker: something may not have stopped
                raise
            finally:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, lambda: self._close_logs(orderly=orderly and self._failure is None))
        except Exception as error:
            self._set_closed(error)
            raise
        finally:
            self._executor.shutdown()
            self._set_closed(None)

    def _fail(self, error: BaseException) -> None:
        """Ends the node because of a bug or a failed disk; nothing is acknowledged any more."""
        if self._failure is not None:
            return
        _log.critical("the node stops: %s", error, exc_info=error)
        self._failure = error
        self._set_closed(error)
        if self._parts is not None:
            self._parts.replicas.stepper.driver.halt()
        if self._ending is None:
            self._ending = asyncio.create_task(self._run_end(orderly=False), name="node-end")

    def _set_closed(self, error: BaseException | None) -> None:
        if self._closed.done():
            return
        if error is None:
            self._closed.set_result(None)
        else:
            self._closed.set_exception(error)
            self._closed.exception()  # it is logged; whether anybody waits for it is their choice

    async def _stop_tasks(self) -> None:
        console_end = None if self.console is None else asyncio.ensure_future(self.console.stop())
        try:
            if self._server is not None:
                await self._server.stop(SERVER_STOP_GRACE_S)
            if self._clients is not None:
                await self._clients.stop()
            if self._metrics is not None:
                await self._metrics.stop()
            if self._parts is not None:
                await _stop_parts(self._parts)
        finally:
            if console_end is not None:
                await console_end

    def _close_logs(self, *, orderly: bool) -> None:
        """Closes all logs; it runs in a thread, and blocks for as long as the disk needs."""
        now_ms = self._environment.clock.wall_ms()
        if not orderly:
            with contextlib.suppress(StorageError):
                self.logs.close(broker_epoch=None, now_ms=now_ms)
            return
        replicas = self.parts.replicas
        try:
            self.logs.checkpoint_high_watermarks(known_high_watermarks(replicas.stepper.replicas.values()))
        except DiskFullError as error:
            _log.warning("%s", error)  # the older ones are still there
        except BaseException:
            self.logs.close(broker_epoch=None, now_ms=now_ms)
            raise
        # without a registration nothing was changed here: the promise of the incarnation before still holds
        registered = replicas.lifecycle.broker_epoch >= 0
        epoch = replicas.lifecycle.broker_epoch if registered else self.logs.previous_broker_epoch
        self.logs.close(broker_epoch=epoch, now_ms=now_ms)


async def _stop_parts(parts: NodeParts) -> None:
    """Stops one part after the other, all of them whatever one of them raises."""
    metadata, replicas, coordinating = parts.metadata, parts.replicas, parts.requests.coordinating
    stops = [
        replicas.manager.moves.stop,
        replicas.keeper.stop,
        replicas.cleaner.stop,
        replicas.fetchers.stop,
        replicas.isr_sender.stop,
        metadata.registrar.stop,
        replicas.lifecycle.stop,
        parts.requests.produce_path.stop,
        replicas.manager.stop,
        parts.requests.marker_sender.stop,
        coordinating.groups.stop,
        coordinating.transactions.stop,
        coordinating.shards.stop,
        coordinating.calls.close,
        replicas.images.stop,
        metadata.snapshots.stop,
        metadata.quorum.stop,
        *([] if metadata.controller is None else [metadata.controller.stop]),
        metadata.channel.close,
        parts.loop_lag.stop,
        parts.flusher.stop,
    ]
    async with contextlib.AsyncExitStack() as stack:
        for stop in reversed(stops):
            stack.push_async_callback(stop)


def _read_parts(parts: NodeParts, clients: ClientPorts | None, server: Server | None) -> ReadParts:
    """Returns the parts that metrics read."""
    from replog.broker.metrics.readings import ReadParts

    return ReadParts(
        stepper=parts.replicas.stepper,
        produce_path=parts.requests.produce_path,
        fetch_path=parts.requests.fetch_path,
        deletions=parts.requests.deletions,
        shards=parts.requests.coordinating.shards,
        lifecycle=parts.replicas.lifecycle,
        quorum=parts.metadata.quorum,
        controller=parts.metadata.controller,
        loop_lag=parts.loop_lag,
        authorizer=parts.requests.kafka_node.authorizer,
        read_kafka=None if clients is None else clients.read,
        refused_nodes=lambda: 0 if server is None else server.refused_count,
    )
