"""One node: controller, broker, or both, started, kept alive and ended; `assembly` has its parts.

Start order: log directories (locks, recovery) -> quorum -> server -> registration -> replicas, as the metadata log says.
Stop order: controlled shutdown -> server -> replicas -> quorum -> logs flushed, checkpoints, clean-shutdown marker.
A bug or a failed disk stops the node at once without the marker: the next start then recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Self

from replog.broker.node.assembly import NodeAssembly
from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.resources import open_logs, open_metrics
from replog.broker.replicas.log_keeper import known_high_watermarks
from replog.config.server import ServerConfig
from replog.errors import DiskFullError, StorageError
from replog.log import LogManager, RecoveryProgress

CONTROLLED_SHUTDOWN_TIMEOUT_S = 5.0
SERVER_STOP_GRACE_S = 0.2

_log = logging.getLogger(__name__)


class Node(NodeAssembly):
    """A running node.  Make it with `await Node.start(config)`, end it with `await node.stop()`.

    Invariants:
        - one incarnation id per process start;
        - after a failure nothing is acknowledged any more, and `wait_closed` raises the failure.
    """

    def __init__(self, config: ServerConfig, logs: LogManager, environment: NodeEnvironment) -> None:
        super().__init__(config, logs, environment)
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
    ) -> Self:
        """Starts a node; returns when it listens.  `wait_until_ready` waits for its place in the cluster.

        Args:
            config: The configuration of the node.
            environment: The disks, clocks and network of the node; None for the real ones.
            on_recovery: The function that is told, in other threads, how far the opening of the logs has come.

        Raises:
            ConfigError: The port is taken.
            DirectoryLockedError, InconsistentClusterIdError, CorruptCheckpointError, CorruptRecordError: A log
                directory cannot be used; nothing in it was changed.
        """
        environment = environment or NodeEnvironment()
        loop = asyncio.get_running_loop()
        logs = await loop.run_in_executor(None, open_logs, config, environment, on_recovery)
        node = cls(config, logs, environment)
        try:
            await node._start()
        except BaseException:
            await node.abort()
            raise
        return node

    async def _start(self) -> None:
        endpoint = self.config.listeners[0]
        self._server = self._environment.bind(endpoint.host, endpoint.port)
        self._metrics = open_metrics(self.config)
        self._build(await asyncio.get_running_loop().run_in_executor(self._executor, self._open_metadata_log))
        await self._server.start(self._handlers)
        self._start_parts()

    # ---- what users of a node see -------------------------------------------------------------------------------------

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
        ready = asyncio.ensure_future(self._lifecycle.wait_until_running())
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
                    await self._lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_TIMEOUT_S)
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
        self._stepper.driver.halt()
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
        if self._server is not None:
            await self._server.stop(SERVER_STOP_GRACE_S)
        if self._metrics is not None:
            await self._metrics.stop()
        await self._stop_parts()

    def _close_logs(self, *, orderly: bool) -> None:
        """Closes all logs; it runs in a thread, and blocks for as long as the disk needs."""
        now_ms = self._clock.wall_ms()
        if not orderly:
            with contextlib.suppress(StorageError):
                self._logs.close(broker_epoch=None, now_ms=now_ms)
            return
        try:
            self._logs.checkpoint_high_watermarks(known_high_watermarks(self._stepper.replicas.values()))
        except DiskFullError as error:
            _log.warning("%s", error)  # the older ones are still there
        except BaseException:
            self._logs.close(broker_epoch=None, now_ms=now_ms)
            raise
        # without a registration nothing was changed here: the promise of the incarnation before still holds
        registered = self._lifecycle.broker_epoch >= 0
        epoch = self._lifecycle.broker_epoch if registered else self._logs.previous_broker_epoch
        self._logs.close(broker_epoch=epoch, now_ms=now_ms)
