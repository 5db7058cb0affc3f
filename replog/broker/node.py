"""One node: controller, broker, or both, put together and kept alive.

Start order: log directories (locks, recovery) -> quorum -> server -> registration -> replicas, as the metadata log says.
Stop order: controlled shutdown -> server -> replicas -> quorum -> logs flushed, checkpoints, clean-shutdown marker.
A bug or a failed disk stops the node at once without the marker: the next start then recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from replog.broker.alter_partition import AlterPartitionSender
from replog.broker.cleaner import LogCleaner
from replog.broker.committed_log import LoadedSnapshot
from replog.broker.config import ServerConfig
from replog.broker.controller_channel import ControllerChannel
from replog.broker.controller_driver import ControllerDriver
from replog.broker.controller_registration import ControllerRegistrar
from replog.broker.environment import NodeEnvironment
from replog.broker.fetch_path import FetchPath
from replog.broker.fetchers import Fetchers
from replog.broker.flusher import LogFlusher
from replog.broker.image_queue import ImageQueue
from replog.broker.lifecycle import BrokerLifecycle
from replog.broker.log_keeper import LogKeeper
from replog.broker.loop_lag import LoopLag
from replog.broker.metadata_log import MetadataLog
from replog.broker.metadata_publisher import MetadataPublisher
from replog.broker.metadata_snapshots import MetadataSnapshots, SnapshotLimits
from replog.broker.produce_path import ProducePath
from replog.broker.producer_ids import ProducerIdAllocator
from replog.broker.quorum_driver import QuorumDriver, QuorumIdentity, QuorumSurroundings
from replog.broker.quorum_requests import QuorumRequests
from replog.broker.quorum_state_file import QuorumStateFile
from replog.broker.replica_logs import METADATA_TOPIC_ID
from replog.broker.replica_manager import ReplicaManager
from replog.broker.replica_moves import ReplicaMoves
from replog.broker.request_handlers import NodeParts, RequestHandlers
from replog.broker.sessions import ByteCredits, Fetches, Produces
from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.messages import CommittedRecords
from replog.controller.requests import RegisterController
from replog.errors import BrokerClosedError, ConfigError, DiskFullError, StorageError
from replog.log import METADATA_TOPIC, DiskLimits, Log, LogConfig, LogManager, RecoveryProgress
from replog.log.config import UNLIMITED
from replog.metadata.features import SUPPORTED_FEATURES
from replog.rpc.messages import Hello
from replog.rpc.transport import Server
from replog_quorum import QuorumConfig, Voter, VoterSet

if TYPE_CHECKING:
    from replog.broker.metrics.readings import ReadParts
    from replog.broker.metrics.service import MetricsService

CONTROLLED_SHUTDOWN_TIMEOUT_S = 5.0
DISK_THREADS = 4
COMMIT_NOTICE_MS = 10
"""How long other nodes may be without news of a commit, unless the next change brings it."""

METADATA_FETCH_WAIT_MS = 500
"""How long a leader of the quorum holds a fetch that finds nothing new."""

SERVER_STOP_GRACE_S = 0.2

_log = logging.getLogger(__name__)


class Node:
    """A running node.  Make it with `await Node.start(config)`, end it with `await node.stop()`.

    Invariants:
        - one incarnation id per process start;
        - after a failure nothing is acknowledged any more, and `wait_closed` raises the failure.
    """

    def __init__(self, config: ServerConfig, logs: LogManager, environment: NodeEnvironment) -> None:
        self.config = config
        self.incarnation_id = environment.new_uuid()
        self.cluster_id = logs.cluster_id
        self._environment = environment
        self._logs = logs
        self._fs = environment.fs
        self._clock = environment.clock
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._executor = environment.threads(DISK_THREADS, "replog-disk")
        self._flusher = LogFlusher(self._executor, self._fail, self._log_failed)
        self._transport = environment.transport
        self._loop_lag = LoopLag(environment.clock)
        self._leader: tuple[int | None, int] = (None, -1)
        self._server: Server | None = None
        self._metrics: MetricsService | None = None
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
            config: of the node.
            environment: its disks, clocks and network; None: the real ones.
            on_recovery: told how far the opening of the logs has come, in other threads.

        Raises:
            ConfigError: the port is taken.
            DirectoryLockedError, InconsistentClusterIdError, CorruptCheckpointError, CorruptRecordError: the data
                directory cannot be used; nothing in it was changed.
        """
        environment = environment or NodeEnvironment()
        loop = asyncio.get_running_loop()
        logs = await loop.run_in_executor(None, _open_logs, config, environment, on_recovery)
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
        self._metrics = _open_metrics(self.config)
        self._metadata_log = await asyncio.get_running_loop().run_in_executor(self._executor, self._open_metadata_log)
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
        self._snapshots = self._make_snapshots()
        self._channel = ControllerChannel(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            address_of=self._quorum.address_of,
            leader_id=lambda: self._leader[0],
            local=self._controller,
            transport=self._transport,
            clock=self._clock,
        )
        self._registrar = self._make_registrar()
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
            logs=self._logs,
            clock=self._clock,
            flusher=self._flusher,
            propose_isr=self._isr_sender.propose,
            in_thread=self._executor.submit,
            on_failure=self._fail,
        )
        self._lifecycle = self._make_lifecycle()
        self._manager.trouble.on_offline = self._lifecycle.hurry
        self._keeper = LogKeeper(config, self._logs, self._manager, self._executor, self._fail)
        self._cleaner = LogCleaner(config, self._logs, self._manager, self._fail)
        self._images = ImageQueue(self._manager, self._executor, self._metadata_applied, self._fail)
        self._manager.fetchers = Fetchers(
            config=config,
            driver=self._manager.driver,
            clock=self._clock,
            transport=self._transport,
            hello=self._hello,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            address_of=self._address_of,
            step=self._manager.step_follower,
            throttle=self._manager.follower_throttle,
            on_failure=self._fail,
        )
        self._manager.moves = ReplicaMoves(
            self._manager, self._logs, self._executor, self._environment.new_uuid, self._fail
        )
        self._produce_path = ProducePath(self._manager, self._lifecycle.refuses_because)
        self._fetch_path = FetchPath(self._manager, self._lifecycle.refuses_because)
        produces, fetches = self._measured_paths()
        self._producer_ids = ProducerIdAllocator(config.node_id, lambda: self._lifecycle.broker_epoch, self._channel)
        self._publisher = MetadataPublisher(config.node_id, self.incarnation_id, self._images.submit, self._fail)
        self._handlers = RequestHandlers(
            NodeParts(
                config=config,
                hello=self._hello(),
                address=self.address,
                leader=lambda: self._leader,
                controller=self._controller,
                channel=self._channel,
                quorum=self._quorum,
                quorum_requests=QuorumRequests(
                    config.node_id, self.cluster_id, self._quorum, self._transport, self._clock
                ),
                manager=self._manager,
                lifecycle=self._lifecycle,
                publisher=self._publisher,
                produces=produces,
                fetches=fetches,
                fetch_path=self._fetch_path,
                producer_ids=self._producer_ids,
                credits=ByteCredits(config.queued_max_request_bytes),
            )
        )

    def _start_parts(self) -> None:
        self._loop_lag.start()
        if self._metrics is not None:
            self._metrics.start(self._read_parts())
        if self._controller is not None:
            self._controller.start(self._quorum)
            self._registrar.start()
        self._manager.driver.start()
        self._quorum.start()
        self._snapshots.start()
        if self.config.is_broker:
            self._isr_sender.start()
            self._lifecycle.start()
            self._keeper.start()
            self._cleaner.start()

    def _measured_paths(self) -> tuple[Produces, Fetches]:
        """Where requests go: with metrics off straight into the paths."""
        metrics = self._metrics
        if metrics is None:
            return self._produce_path, self._fetch_path
        metrics.watch_flusher(self._flusher)
        return metrics.metered_produce(self._produce_path), metrics.metered_fetch(
            self._fetch_path, self._manager.driver
        )

    def _read_parts(self) -> ReadParts:
        from replog.broker.metrics.readings import ReadParts

        return ReadParts(
            manager=self._manager,
            produce_path=self._produce_path,
            fetch_path=self._fetch_path,
            lifecycle=self._lifecycle,
            quorum=self._quorum,
            loop_lag=self._loop_lag,
        )

    # ---- what users of a node see -------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """host:port that clients use."""
        if self._server is None:
            raise BrokerClosedError("the node does not listen")
        if self.config.advertised_listeners:
            return str(self.config.advertised_listeners[0])
        return str(replace(self.config.listeners[0], port=self._server.port))

    @property
    def metrics_address(self) -> str | None:
        """host:port that serves metrics; None: they are off."""
        return None if self._metrics is None else self._metrics.address

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
            await loop.run_in_executor(None, lambda: self._close_logs(orderly=orderly and self._failure is None))
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
        if not config.is_controller:
            return None
        core = Controller(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            config=ControllerConfig(
                broker_session_timeout_ms=config.broker_session_timeout_ms,
                default_replication_factor=config.default_replication_factor,
                num_partitions=config.num_partitions,
                min_insync_replicas=config.min_insync_replicas,
                unclean_leader_election_enable=config.unclean_leader_election_enable,
                flush_policy=config.flush_policy,
                auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
                leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
                metadata_max_idle_interval_ms=config.metadata_max_idle_interval_ms,
            ),
            rng=self._environment.new_rng(),
        )
        return ControllerDriver(core, self._clock, self._transport, self._hello, self._loop_lag, self._fail)

    def _make_quorum(self) -> QuorumDriver:
        config = self.config
        identity = QuorumIdentity(
            node_id=config.node_id,
            directory_id=self._logs.directories[config.log_dir].meta.directory_id,
            endpoint=self._voters.get(config.node_id, self.address),
            voters=VoterSet(tuple(Voter(voter_id, None, self._voters[voter_id]) for voter_id in sorted(self._voters))),
            config=QuorumConfig(
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
                election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
                fetch_max_wait_ms=min(
                    METADATA_FETCH_WAIT_MS,
                    config.controller_quorum_fetch_timeout_ms // 2,
                    config.controller_quorum_request_timeout_ms // 2,
                ),
                commit_notice_ms=COMMIT_NOTICE_MS,
            ),
        )
        surroundings = QuorumSurroundings(
            transport=self._transport,
            hello=self._hello,
            clock=self._clock,
            rng=self._environment.new_rng(),
            executor=self._executor,
            flusher=self._flusher,
            append_linger_ms=config.controller_quorum_append_linger_ms,
            on_failure=self._fail,
        )
        state_file = QuorumStateFile(self._fs, f"{self._metadata_log.log.directory}/quorum-state", self._make_room)
        return QuorumDriver(identity, self._metadata_log, state_file, surroundings, self)

    def _open_metadata_log(self) -> MetadataLog:
        """Blocks for as long as the disk needs."""
        config = self.config
        log = self._logs.open_log(
            METADATA_TOPIC,
            0,
            METADATA_TOPIC_ID,
            LogConfig(
                segment_bytes=config.metadata_log_segment_bytes, retention_ms=UNLIMITED, retention_bytes=UNLIMITED
            ),
            now_ms=self._clock.wall_ms(),
            directory=config.log_dir,
        )
        return MetadataLog(self._fs, log, self._clock, self._make_room)

    def _make_snapshots(self) -> MetadataSnapshots:
        config = self.config
        home = self._logs.directories[config.log_dir]
        return MetadataSnapshots(
            SnapshotLimits(
                bytes_between=config.metadata_log_max_record_bytes_between_snapshots,
                interval_ms=config.metadata_log_max_snapshot_interval_ms,
                retention_bytes=config.metadata_max_retention_bytes,
                retention_ms=config.metadata_max_retention_ms,
            ),
            self._quorum,
            self._clock,
            self._executor,
            home.prepare_log_start_offsets,
            self._fail,
        )

    def _make_registrar(self) -> ControllerRegistrar:
        host, _, port = self.address.rpartition(":")
        registration = RegisterController(
            controller_id=self.config.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            host=host,
            port=int(port),
            supported_features=SUPPORTED_FEATURES,
        )
        return ControllerRegistrar(registration, self._channel, self._fail)

    def _make_lifecycle(self) -> BrokerLifecycle:
        host, _, port = self.address.rpartition(":")
        return BrokerLifecycle(
            config=self.config,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            log_dirs=self._logs.directory_ids,
            previous_broker_epoch=self._logs.previous_broker_epoch,
            host=host,
            port=int(port),
            channel=self._channel,
            clock=self._clock,
            metadata_offset=lambda: self._manager.image.end_offset,
            awaited_ends=self._manager.awaited_ends,
            offline_replicas=self._manager.trouble.reported,
            on_reported=lambda reported, offset: self._manager.driver.submit(
                lambda: self._manager.trouble.controller_knows(reported, offset)
            ),
            on_failure=self._fail,
        )

    def _make_room(self) -> bool:
        """The metadata log met a full disk: whether there was a reserve to give back."""
        home = self._logs.home_of(METADATA_TOPIC, 0)
        return home is not None and home.space.make_room()

    def _log_failed(self, log: Log, error: StorageError) -> None:
        if log is self._metadata_log.log:
            self._fail(error)
        else:
            self._manager.driver.submit(lambda: self._manager.trouble.log_failed(log, error))

    async def _stop_tasks(self) -> None:
        if self._server is not None:
            await self._server.stop(SERVER_STOP_GRACE_S)
        if self._metrics is not None:
            await self._metrics.stop()
        if not hasattr(self, "_publisher"):
            return
        if self._manager.moves is not None:
            await self._manager.moves.stop()
        await self._keeper.stop()
        await self._cleaner.stop()
        if self._manager.fetchers is not None:
            await self._manager.fetchers.stop()
        await self._isr_sender.stop()
        await self._registrar.stop()
        await self._lifecycle.stop()
        await self._manager.stop()
        await self._images.stop()
        await self._snapshots.stop()
        await self._quorum.stop()
        if self._controller is not None:
            await self._controller.stop()
        await self._channel.close()
        await self._loop_lag.stop()
        await self._flusher.stop()

    def _close_logs(self, *, orderly: bool) -> None:
        """In a thread; blocks for as long as the disk needs."""
        now_ms = self._clock.wall_ms()
        if not orderly:
            with contextlib.suppress(StorageError):
                self._logs.close(broker_epoch=None, now_ms=now_ms)
            return
        try:
            self._logs.checkpoint_high_watermarks(self._manager.known_high_watermarks())
        except DiskFullError as error:
            _log.warning("%s", error)  # the older ones are still there
        except BaseException:
            self._logs.close(broker_epoch=None, now_ms=now_ms)
            raise
        # without a registration nothing was changed here: the promise of the incarnation before still holds
        registered = self._lifecycle.broker_epoch >= 0
        epoch = self._lifecycle.broker_epoch if registered else self._logs.previous_broker_epoch
        self._logs.close(broker_epoch=epoch, now_ms=now_ms)

    # ---- the quorum's listener --------------------------------------------------------------------------------------

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        if self._controller is not None:
            self._controller.on_snapshot(snapshot)
        self._publisher.on_snapshot(snapshot)

    def on_committed(self, batch: CommittedRecords) -> None:
        if self._controller is not None:
            self._controller.on_committed(batch)
        self._publisher.on_committed(batch)

    def on_caught_up(self, _high_watermark: int) -> None:
        self._publisher.on_caught_up()
        self._snapshots.image_published(self._publisher.image)

    def on_control_records(self, next_offset: int) -> None:
        if self._controller is not None:
            self._controller.on_control_records(next_offset)

    def on_became_leader(self, epoch: int, next_offset: int) -> None:
        if self._controller is not None:
            self._controller.on_became_leader(epoch, next_offset)

    def on_lost_leadership(self, epoch: int) -> None:
        if self._controller is not None:
            self._controller.on_lost_leadership(epoch)

    def on_leader_changed(self, leader_id: int | None, epoch: int) -> None:
        self._leader = (leader_id, epoch)
        self._publisher.notify()

    def _metadata_applied(self) -> None:
        if self._manager.awaited_ends():
            self._lifecycle.hurry()

    def _address_of(self, broker_id: int) -> str | None:
        broker = self._publisher.image.brokers.get(broker_id)
        return None if broker is None else f"{broker.host}:{broker.port}"

    def _hello(self) -> Hello:
        return Hello(self.cluster_id, self.config.node_id, self.incarnation_id)


def _open_metrics(config: ServerConfig) -> MetricsService | None:
    """Takes the port of the metrics, where they are wanted.

    Raises:
        ConfigError: the port cannot be bound, or the library is missing.
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
            'metrics.listener needs the library prometheus-client: pip install "replog[metrics]", or leave the key out',
        ) from error
    return MetricsService(config.metrics_listener)


def _open_logs(
    config: ServerConfig, environment: NodeEnvironment, on_recovery: Callable[[RecoveryProgress], None] | None
) -> LogManager:
    """Opens every log directory and, after an unclean stop, recovers everything.

    A replica or a directory that cannot be opened is offline, unless the node cannot go on without it.
    """
    logs = LogManager.open(
        environment.fs,
        config.log_dirs,
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        now_ms=environment.clock.wall_ms(),
        new_directory_id=environment.new_uuid,
        limits=DiskLimits(
            config.log_dir_warn_free_bytes, config.log_dir_read_only_free_bytes, config.log_dir_reserve_bytes
        ),
        recovery_threads=config.num_recovery_threads_per_data_dir,
        on_progress=on_recovery,
        monotonic_ms=environment.clock.now_ms,
        threads=environment.threads,
    )
    for told in logs.finished_moves.told:
        _log.warning("%s", told)
    for path, error in logs.unopened.items():
        _log.critical("log directory %s is offline: %s", path, error)
    for (topic, partition_id), problem in logs.offline.items():
        _log.error("replica %s-%d cannot be opened: %s", topic, partition_id, problem)
    return logs
