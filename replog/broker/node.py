"""One node: controller, broker, or both, put together and kept alive.

Start order: log directory (lock, recovery) -> quorum -> server -> registration -> replicas, as the metadata log says.
Stop order: controlled shutdown -> server -> replicas -> quorum -> logs flushed, checkpoints, clean-shutdown marker.
A bug or a failed disk stops the node at once without the marker: the next start then recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from uuid import UUID

from replog.broker.alter_partition import AlterPartitionSender
from replog.broker.clock import Clock, SystemClock
from replog.broker.config import ServerConfig
from replog.broker.controller_channel import ControllerChannel
from replog.broker.controller_driver import ControllerDriver
from replog.broker.fetch_path import FetchPath
from replog.broker.fetchers import Fetchers
from replog.broker.flusher import LogFlusher
from replog.broker.lifecycle import BrokerLifecycle
from replog.broker.metadata_publisher import MetadataPublisher
from replog.broker.produce_path import ProducePath
from replog.broker.producer_ids import ProducerIdAllocator
from replog.broker.quorum_driver import QuorumDriver
from replog.broker.replica_manager import METADATA_TOPIC_ID, ReplicaManager
from replog.broker.request_handlers import NodeParts, RequestHandlers
from replog.broker.sessions import ByteCredits
from replog.broker.tasks import watched_task
from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.messages import (
    CommittedRecords,
)
from replog.errors import (
    BrokerClosedError,
    StorageError,
)
from replog.log import LogConfig, LogDirectory
from replog.metadata.delta import LocalChanges
from replog.metadata.image import MetadataImage
from replog.rpc.grpc_transport import GrpcServer, GrpcTransport, bind
from replog.rpc.messages import (
    Hello,
)
from replog_checkpoints import FileSystem, OsFileSystem
from replog_quorum import QuorumConfig

METADATA_TOPIC = "__cluster_metadata"
CONTROLLED_SHUTDOWN_TIMEOUT_S = 5.0
SERVER_STOP_GRACE_S = 0.2

_log = logging.getLogger(__name__)


class Node:
    """A running node.  Make it with `await Node.start(config)`, end it with `await node.stop()`.

    Invariants:
        - one incarnation id per process start;
        - after a failure nothing is acknowledged any more, and `wait_closed` raises the failure.
    """

    def __init__(self, config: ServerConfig, directory: LogDirectory, fs: FileSystem, clock: Clock) -> None:
        self.config = config
        self.incarnation_id = UUID(bytes=secrets.token_bytes(16), version=4)
        self.cluster_id = directory.meta.cluster_id
        self._directory = directory
        self._fs = fs
        self._clock = clock
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._executor = ThreadPoolExecutor(max_workers=4, thread_name_prefix="replog-disk")
        self._flusher = LogFlusher(self._executor, self._fail)
        self._transport = GrpcTransport()
        self._leader: tuple[int | None, int] = (None, -1)
        self._timers: list[asyncio.Task[None]] = []
        self._server: GrpcServer | None = None
        self._failure: BaseException | None = None
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, config: ServerConfig, *, fs: FileSystem | None = None, clock: Clock | None = None) -> Node:
        """Starts a node; returns when it listens.  `wait_until_ready` waits for its place in the cluster.

        Raises:
            ConfigError: the port is taken.
            DirectoryLockedError, InconsistentClusterIdError, CorruptCheckpointError, CorruptRecordError: the data
                directory cannot be used; nothing in it was changed.
        """
        fs = fs or OsFileSystem()
        clock = clock or SystemClock()
        loop = asyncio.get_running_loop()
        directory = await loop.run_in_executor(None, _open_directory, config, fs, clock)
        node = cls(config, directory, fs, clock)
        try:
            await node._start()
        except BaseException:
            await node.abort()
            raise
        return node

    async def _start(self) -> None:
        endpoint = self.config.listeners[0]
        self._server = bind(endpoint.host, endpoint.port)
        self._build()
        await self._server.start(self._handlers)
        self._start_parts()

    def _build(self) -> None:
        config = self.config
        self._voters = {v.voter_id: str(v.endpoint) for v in config.controller_quorum_voters}
        if not self._voters:
            self._voters = {config.node_id: self.address}
        self._controller = self._make_controller()
        self._quorum = self._make_quorum()
        self._channel = ControllerChannel(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            voters=self._voters,
            leader_id=lambda: self._leader[0],
            local=self._controller,
            transport=self._transport,
            clock=self._clock,
        )
        self._isr_sender = AlterPartitionSender(
            broker_id=config.node_id,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            channel=self._channel,
            on_answer=lambda key, proposal_id, result: self._manager.driver.submit(
                lambda: self._manager.handle_isr_answer(key, proposal_id, result)
            ),
            on_failure=self._fail,
        )
        self._manager = ReplicaManager(
            config=config,
            directory=self._directory,
            clock=self._clock,
            flusher=self._flusher,
            propose_isr=self._isr_sender.propose,
            on_failure=self._fail,
        )
        self._lifecycle = self._make_lifecycle()
        self._manager.fetchers = Fetchers(
            config=config,
            driver=self._manager.driver,
            clock=self._clock,
            transport=self._transport,
            hello=self._hello,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            address_of=self._address_of,
            step=self._manager.step_follower,
            on_failure=self._fail,
        )
        self._produce_path = ProducePath(self._manager, self._lifecycle.refuses_because)
        self._fetch_path = FetchPath(self._manager, self._lifecycle.refuses_because)
        self._producer_ids = ProducerIdAllocator(config.node_id, lambda: self._lifecycle.broker_epoch, self._channel)
        self._publisher = MetadataPublisher(config.node_id, self.incarnation_id, self._apply_metadata)
        self._handlers = RequestHandlers(
            NodeParts(
                config=config,
                hello=self._hello(),
                address=self.address,
                leader=lambda: self._leader,
                controller=self._controller,
                channel=self._channel,
                quorum=self._quorum,
                manager=self._manager,
                lifecycle=self._lifecycle,
                publisher=self._publisher,
                produce_path=self._produce_path,
                fetch_path=self._fetch_path,
                producer_ids=self._producer_ids,
                credits=ByteCredits(config.queued_max_request_bytes),
            )
        )

    def _start_parts(self) -> None:
        if self._controller is not None:
            self._controller.start(self._quorum)
        self._manager.driver.start()
        self._quorum.start()
        if self.config.is_broker:
            self._isr_sender.start()
            self._lifecycle.start()
            self._timers = self._start_timers()

    # ---- what users of a node see -------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """host:port that clients use."""
        if self._server is None:
            raise BrokerClosedError("the node does not listen")
        if self.config.advertised_listeners:
            return str(self.config.advertised_listeners[0])
        return str(replace(self.config.listeners[0], port=self._server.port))

    async def wait_until_ready(self) -> None:
        """Returns when this broker is registered, caught up and unfenced; raises what stopped the node.

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
        """Returns when the node has stopped; raises what stopped it, if that was a failure."""
        await asyncio.shield(self._closed)

    async def stop(self) -> None:
        """Stops in order and leaves the clean-shutdown marker; after a failure, waits for the end that is under way.

        Raises:
            StorageError: a log could not be closed in order; there is no marker.
        """
        await self._end(orderly=True)

    async def abort(self) -> None:
        """Stops at once, as a crash would, but frees the lock and the port.  No marker: the next start recovers."""
        await self._end(orderly=False)

    async def _end(self, *, orderly: bool) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._run_end(orderly=orderly), name="node-end")
        await asyncio.shield(self._ending)

    async def _run_end(self, *, orderly: bool) -> None:
        try:
            if orderly and self.config.is_broker:
                await self._lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_TIMEOUT_S)
            await self._stop_tasks()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, lambda: self._close_directory(orderly=orderly and self._failure is None))
        except Exception as error:
            self._set_closed(error)
            raise
        finally:
            self._executor.shutdown()
            self._set_closed(None)

    def _fail(self, error: BaseException) -> None:
        """A bug or a failed disk: nothing is acknowledged any more, and the node ends by itself."""
        if self._failure is not None:
            return
        _log.critical("the node stops: %s", error, exc_info=error)
        self._failure = error
        self._set_closed(error)
        self._manager.driver.halt()
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

    # ---- parts --------------------------------------------------------------------------------------------------------

    def _make_controller(self) -> ControllerDriver | None:
        config = self.config
        if not config.is_controller or config.node_id not in self._voters:
            return None
        core = Controller(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            config=ControllerConfig(
                broker_session_timeout_ms=config.broker_session_timeout_ms,
                default_replication_factor=config.default_replication_factor,
                num_partitions=config.num_partitions,
                min_insync_replicas=config.min_insync_replicas,
            ),
            rng=Random(secrets.randbits(128)),  # noqa: S311 -- for time-outs and ids, not for secrets
        )
        return ControllerDriver(core, self._clock, self._fail)

    def _make_quorum(self) -> QuorumDriver:
        config = self.config
        log = self._directory.open_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, LogConfig(), now_ms=self._clock.wall_ms())
        return QuorumDriver(
            node_id=config.node_id,
            voters=self._voters,
            log=log,
            fs=self._fs,
            state_path=f"{log.directory}/quorum-state",
            config=QuorumConfig(
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
                election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            ),
            transport=self._transport,
            hello=self._hello,
            clock=self._clock,
            rng=Random(secrets.randbits(128)),  # noqa: S311 -- for time-outs and ids, not for secrets
            executor=self._executor,
            flusher=self._flusher,
            listener=self,
            on_failure=self._fail,
        )

    def _make_lifecycle(self) -> BrokerLifecycle:
        host, _, port = self.address.rpartition(":")
        return BrokerLifecycle(
            config=self.config,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            directory_id=self._directory.meta.directory_id,
            previous_broker_epoch=self._directory.previous_broker_epoch,
            host=host,
            port=int(port),
            channel=self._channel,
            clock=self._clock,
            metadata_offset=lambda: self._publisher.image.end_offset,
            applied_offset=lambda: self._manager.image.end_offset,
            awaited_ends=self._manager.awaited_ends,
            on_failure=self._fail,
        )

    def _start_timers(self) -> list[asyncio.Task[None]]:
        config, manager = self.config, self._manager
        work = [
            (config.replica_high_watermark_checkpoint_interval_ms, manager.checkpoint_high_watermarks),
            (config.log_flush_offset_checkpoint_interval_ms, manager.checkpoint_recovery_points),
            (config.log_flush_start_offset_checkpoint_interval_ms, manager.checkpoint_log_start_offsets),
            (config.log_retention_check_interval_ms, manager.delete_old_segments),
        ]
        if config.log_flush_interval_ms is not None:
            work.append((config.log_flush_interval_ms, manager.flush_all))
        return [
            watched_task(self._every(ms, run), name=f"every-{run.__name__}", on_failure=self._fail) for ms, run in work
        ]

    async def _every(self, interval_ms: int, run: Callable[[], None]) -> None:
        """Runs `run` on the driver at an interval; a storage failure stops the node."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            self._manager.driver.submit(run)

    async def _stop_tasks(self) -> None:
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(SERVER_STOP_GRACE_S)
        if not hasattr(self, "_publisher"):
            return
        if self._manager.fetchers is not None:
            await self._manager.fetchers.stop()
        await self._isr_sender.stop()
        await self._lifecycle.stop()
        await self._manager.stop()
        await self._quorum.stop()
        if self._controller is not None:
            await self._controller.stop()
        await self._channel.close()
        await self._flusher.stop()

    def _close_directory(self, *, orderly: bool) -> None:
        """In a thread; blocks for as long as the disk needs."""
        now_ms = self._clock.wall_ms()
        if not orderly:
            with contextlib.suppress(StorageError):
                self._directory.close(broker_epoch=None, now_ms=now_ms)
            return
        try:
            self._manager.checkpoint_high_watermarks()
        except BaseException:
            self._directory.close(broker_epoch=None, now_ms=now_ms)
            raise
        # without a registration nothing was changed here: the promise of the incarnation before still holds
        registered = self._lifecycle.broker_epoch >= 0
        epoch = self._lifecycle.broker_epoch if registered else self._directory.previous_broker_epoch
        self._directory.close(broker_epoch=epoch, now_ms=now_ms)

    # ---- the quorum's listener --------------------------------------------------------------------------------------

    def on_committed(self, batch: CommittedRecords) -> None:
        if self._controller is not None:
            self._controller.on_committed(batch)
        self._publisher.on_committed(batch)

    def on_caught_up(self, _high_watermark: int) -> None:
        self._publisher.on_caught_up()

    def on_became_leader(self, epoch: int, next_offset: int) -> None:
        if self._controller is not None:
            self._controller.on_became_leader(epoch, next_offset)

    def on_lost_leadership(self, epoch: int) -> None:
        if self._controller is not None:
            self._controller.on_lost_leadership(epoch)

    def on_leader_changed(self, leader_id: int | None, epoch: int) -> None:
        self._leader = (leader_id, epoch)
        self._publisher.notify()

    def _apply_metadata(self, image: MetadataImage, changes: LocalChanges, changed_brokers: tuple[int, ...]) -> None:
        def apply() -> None:
            if not self._manager.image.brokers:  # the first image
                self._manager.set_strays_aside(image)
            self._manager.apply(image, changes, changed_brokers)
            if self._manager.awaited_ends():
                self._lifecycle.hurry()

        self._manager.driver.submit(apply)

    def _address_of(self, broker_id: int) -> str | None:
        broker = self._publisher.image.brokers.get(broker_id)
        return None if broker is None else f"{broker.host}:{broker.port}"

    def _hello(self) -> Hello:
        return Hello(self.cluster_id, self.config.node_id, self.incarnation_id)


def _open_directory(config: ServerConfig, fs: FileSystem, clock: Clock) -> LogDirectory:
    """Opens and, after an unclean stop, recovers everything.

    Raises:
        StorageError: a replica is damaged below its recovery point; nothing in it was changed.
    """
    now_ms = clock.wall_ms()
    directory = LogDirectory.open(
        fs, config.log_dir, cluster_id=config.cluster_id, node_id=config.node_id, now_ms=now_ms
    )
    for (topic, partition_id), error in directory.offline.items():
        directory.close(now_ms=now_ms, broker_epoch=None)
        raise StorageError(
            f"replica {topic}-{partition_id} of {config.log_dir} cannot be opened: {error}. Nothing in it was changed. "
            "If other brokers have this partition, move its folder away and start again: it is fetched anew."
        ) from error
    return directory
