"""The parts of a node, and how they are joined.

    quorum <-> controller                   who leads, what the metadata is
       | commits
    publisher -> images -> manager          replicas, as the metadata says
                             | fetchers, moves, keeper, cleaner
    handlers -> produce path, fetch path    what clients and other brokers ask

Nothing runs before all are made: what one part needs of a later one it asks for through a function.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from replog.broker.controller.broker_lifecycle import BrokerLifecycle
from replog.broker.controller.channel import ControllerChannel
from replog.broker.controller.driver import ControllerDriver
from replog.broker.controller.registration import ControllerRegistrar
from replog.broker.disk.flusher import LogFlusher
from replog.broker.loop_lag import LoopLag
from replog.broker.node.core_settings import controller_config, metadata_log_config, quorum_config, snapshot_limits
from replog.broker.node.environment import NodeEnvironment
from replog.broker.quorum.committed_log import LoadedSnapshot
from replog.broker.quorum.driver import QuorumDriver, QuorumIdentity, QuorumSurroundings
from replog.broker.quorum.metadata_log import MetadataLog
from replog.broker.quorum.metadata_publisher import MetadataPublisher
from replog.broker.quorum.metadata_snapshots import MetadataSnapshots
from replog.broker.quorum.requests import QuorumRequests
from replog.broker.quorum.state_file import QuorumStateFile
from replog.broker.replicas.alter_partition import AlterPartitionSender
from replog.broker.replicas.cleaner import LogCleaner
from replog.broker.replicas.fetchers import Fetchers
from replog.broker.replicas.image_queue import ImageQueue
from replog.broker.replicas.log_keeper import LogKeeper
from replog.broker.replicas.logs import METADATA_TOPIC_ID
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.replicas.views import has_awaited_ends
from replog.broker.requests.fetch_path import FetchPath
from replog.broker.requests.handlers import NodeParts, RequestHandlers
from replog.broker.requests.produce_path import ProducePath
from replog.broker.requests.producer_ids import ProducerIdAllocator
from replog.broker.requests.sessions import Fetches, Produces
from replog.byte_semaphore import ByteSemaphore
from replog.config.server import ServerConfig
from replog.controller.controller import Controller
from replog.controller.messages import CommittedRecords
from replog.controller.requests import RegisterController
from replog.errors import BrokerClosedError, StorageError
from replog.log import METADATA_TOPIC, Log, LogManager
from replog.metadata.features import SUPPORTED_FEATURES
from replog.rpc.messages import Hello
from replog.rpc.transport import Server
from replog_quorum import Voter, VoterSet

if TYPE_CHECKING:
    from replog.broker.metrics.readings import ReadParts
    from replog.broker.metrics.service import MetricsService

DISK_THREADS = 4


class NodeAssembly(ABC):
    """Makes the parts of a node, starts and stops them; whether and when is for `Node`.

    It is what the quorum tells of commits and of leadership, which it hands on.
    """

    def __init__(self, config: ServerConfig, logs: LogManager, environment: NodeEnvironment) -> None:
        self.config = config
        self.incarnation_id = environment.new_uuid()
        self.cluster_id = logs.cluster_id
        self._environment = environment
        self._logs = logs
        self._fs = environment.fs
        self._clock = environment.clock
        self._executor = environment.threads(DISK_THREADS, "replog-disk")
        self._flusher = LogFlusher(self._executor, self._fail, self._log_failed)
        self._transport = environment.transport
        self._loop_lag = LoopLag(environment.clock)
        self._leader: tuple[int | None, int] = (None, -1)
        self._server: Server | None = None
        self._metrics: MetricsService | None = None
        self._is_built = False

    @property
    def address(self) -> str:
        """host:port that clients use."""
        if self._server is None:
            raise BrokerClosedError("the node does not listen")
        if self.config.advertised_listeners:
            return str(self.config.advertised_listeners[0])
        return str(replace(self.config.listeners[0], port=self._server.port))

    @abstractmethod
    def _fail(self, error: BaseException) -> None:
        """Ends the node because of a bug or a failed disk: nothing is acknowledged any more."""

    # ---- making -------------------------------------------------------------------------------------------------------

    def _build(self, metadata_log: MetadataLog) -> None:
        """Makes every part; the server is bound already, for parts say where it listens."""
        self._metadata_log = metadata_log
        self._build_quorum()
        self._build_replicas()
        self._build_paths()
        self._is_built = True

    def _build_quorum(self) -> None:
        """Makes what decides on metadata, and the way to it."""
        self._controller = self._make_controller()
        self._quorum = self._make_quorum()
        self._snapshots = self._make_snapshots()
        self._channel = self._make_channel()
        self._registrar = self._make_registrar()

    def _build_replicas(self) -> None:
        """Makes what holds data, and keeps it as the metadata says."""
        config = self.config
        self._isr_sender = self._make_isr_sender()
        stepper = self._stepper = ReplicaStepper(
            config=config,
            logs=self._logs,
            clock=self._clock,
            flusher=self._flusher,
            propose_isr=self._isr_sender.propose,
            on_failure=self._fail,
        )
        self._manager = ReplicaManager(stepper, self._logs, self._executor, self._environment.new_uuid, self._fail)
        self._lifecycle = self._make_lifecycle()
        stepper.trouble.on_offline = self._lifecycle.hurry
        self._images = ImageQueue(
            self._manager,
            self._executor,
            self._metadata_applied,
            self._fail,
            self._has_seen_removal,
        )
        self._keeper = LogKeeper(config, self._logs, stepper, self._images.retry_roles, self._executor, self._fail)
        self._cleaner = LogCleaner(config, self._logs, stepper, self._fail)
        stepper.fetchers = self._make_fetchers()
        self._publisher: MetadataPublisher = MetadataPublisher(
            config.node_id, self.incarnation_id, self._images.submit, self._fail
        )

    def _build_paths(self) -> None:
        """Makes the paths by which requests come in."""
        self._produce_path = ProducePath(self._stepper, self._lifecycle.refuses_because, self._images.run_later)
        self._fetch_path = FetchPath(self._stepper, self._lifecycle.refuses_because, self._images.run_later)
        self._producer_ids = ProducerIdAllocator(
            self.config.node_id, lambda: self._lifecycle.broker_epoch, self._channel
        )
        self._handlers = self._make_handlers(*self._measured_paths())

    def _measured_paths(self) -> tuple[Produces, Fetches]:
        """Returns where requests go: with metrics off straight into the paths."""
        metrics = self._metrics
        if metrics is None:
            return self._produce_path, self._fetch_path
        metrics.watch_flusher(self._flusher)
        return metrics.metered_produce(self._produce_path), metrics.metered_fetch(
            self._fetch_path, self._stepper.driver
        )

    def _make_controller(self) -> ControllerDriver | None:
        config = self.config
        if not config.is_controller:
            return None
        core = Controller(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            config=controller_config(config),
            rng=self._environment.new_rng(),
        )
        return ControllerDriver(core, self._clock, self._transport, self._hello, self._loop_lag, self._fail)

    def _make_quorum(self) -> QuorumDriver:
        config = self.config
        voters = {voter.voter_id: str(voter.endpoint) for voter in config.controller_quorum_voters}
        if not voters:
            voters = {config.node_id: self.address}
        identity = QuorumIdentity(
            node_id=config.node_id,
            directory_id=self._logs.directories[config.log_dir].meta.directory_id,
            endpoint=voters.get(config.node_id, self.address),
            voters=VoterSet(tuple(Voter(voter_id, None, voters[voter_id]) for voter_id in sorted(voters))),
            config=quorum_config(config),
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
        """Opens the metadata log; blocks for as long as the disk needs."""
        config = self.config
        log = self._logs.open_log(
            METADATA_TOPIC,
            0,
            METADATA_TOPIC_ID,
            metadata_log_config(config),
            now_ms=self._clock.wall_ms(),
            directory=config.log_dir,
        )
        return MetadataLog(self._fs, log, self._clock, self._make_room)

    def _make_snapshots(self) -> MetadataSnapshots:
        config = self.config
        home = self._logs.directories[config.log_dir]
        return MetadataSnapshots(
            snapshot_limits(config),
            self._quorum,
            self._clock,
            self._executor,
            home.prepare_log_start_offsets,
            self._fail,
        )

    def _make_channel(self) -> ControllerChannel:
        return ControllerChannel(
            node_id=self.config.node_id,
            cluster_id=self.cluster_id,
            address_of=self._quorum.address_of,
            leader_id=lambda: self._leader[0],
            local=self._controller,
            transport=self._transport,
            clock=self._clock,
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

    def _make_isr_sender(self) -> AlterPartitionSender:
        return AlterPartitionSender(
            broker_id=self.config.node_id,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            channel=self._channel,
            on_answer=lambda key, proposal_id, result: self._stepper.driver.submit(
                lambda: self._stepper.handle_isr_answer(key, proposal_id, result)
            ),
            on_failure=self._fail,
        )

    def _make_lifecycle(self) -> BrokerLifecycle:
        host, _, port = self.address.rpartition(":")
        return BrokerLifecycle(
            config=self.config,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            log_dirs=self._logs.directory_ids,
            unopened_log_dirs=self._logs.missing_directories,
            previous_broker_epoch=self._logs.previous_broker_epoch,
            host=host,
            port=int(port),
            channel=self._channel,
            clock=self._clock,
            metadata_offset=lambda: self._manager.applied_offset,
            awaited_ends=self._manager.awaited_ends,
            offline_replicas=self._stepper.trouble.reported,
            on_reported=lambda reported, offset: self._stepper.driver.submit(
                lambda: self._manager.controller_knows(reported, offset)
            ),
            on_lease_changed=self._tell_watchers,
            on_failure=self._fail,
        )

    def _make_fetchers(self) -> Fetchers:
        return Fetchers(
            config=self.config,
            driver=self._stepper.driver,
            clock=self._clock,
            transport=self._transport,
            hello=self._hello,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            address_of=self._address_of,
            step=self._stepper.step_follower,
            throttle=self._stepper.follower_throttle,
            on_failure=self._fail,
        )

    def _make_handlers(self, produces: Produces, fetches: Fetches) -> RequestHandlers:
        config = self.config
        return RequestHandlers(
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
                credits=ByteSemaphore(config.queued_max_request_bytes),
            )
        )

    # ---- running ------------------------------------------------------------------------------------------------------

    def _start_parts(self) -> None:
        self._loop_lag.start()
        if self._metrics is not None:
            self._metrics.start(self._read_parts())
        if self._controller is not None:
            self._controller.start(self._quorum)
            self._registrar.start()
        self._stepper.driver.start()
        self._quorum.start()
        self._snapshots.start()
        if self.config.is_broker:
            self._isr_sender.start()
            self._lifecycle.start()
            self._keeper.start()
            self._cleaner.start()

    def _read_parts(self) -> ReadParts:
        from replog.broker.metrics.readings import ReadParts

        return ReadParts(
            stepper=self._stepper,
            produce_path=self._produce_path,
            fetch_path=self._fetch_path,
            lifecycle=self._lifecycle,
            quorum=self._quorum,
            controller=self._controller,
            loop_lag=self._loop_lag,
        )

    async def _stop_parts(self) -> None:
        """Stops one part after the other, all of them whatever one of them raises."""
        if not self._is_built:
            return
        stops = [
            *(part.stop for part in (self._manager.moves, self._keeper, self._cleaner, self._stepper.fetchers) if part),
            self._isr_sender.stop,
            self._registrar.stop,
            self._lifecycle.stop,
            self._manager.stop,
            self._images.stop,
            self._snapshots.stop,
            self._quorum.stop,
            *(part.stop for part in (self._controller,) if part),
            self._channel.close,
            self._loop_lag.stop,
            self._flusher.stop,
        ]
        async with contextlib.AsyncExitStack() as parts:
            for stop in reversed(stops):
                parts.push_async_callback(stop)

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
        self._lifecycle.hurry()  # a new controller should know soon what this broker cannot use
        self._tell_watchers()

    # ---- what parts ask of each other ----------------------------------------------------------------------------------

    def _tell_watchers(self) -> None:
        """Tells clients that whether this node knows of a controller may have changed."""
        self._publisher.notify()

    def _metadata_applied(self) -> None:
        if has_awaited_ends(self._stepper.image, self.config.node_id, self._stepper.replicas):
            self._lifecycle.hurry()

    def _has_seen_removal(self, topic_id: UUID) -> bool:
        return self._publisher.has_seen_removal(topic_id)

    def _make_room(self) -> bool:
        """Gives the reserve back where the metadata log met a full disk; returns whether there was one."""
        home = self._logs.home_of(METADATA_TOPIC, 0)
        return home is not None and home.space.make_room()

    def _log_failed(self, log: Log, error: StorageError) -> None:
        if log is self._metadata_log.log:
            self._fail(error)
        else:
            self._stepper.driver.submit(lambda: self._stepper.trouble.log_failed(log, error))

    def _address_of(self, broker_id: int) -> str | None:
        broker = self._publisher.image.brokers.get(broker_id)
        return None if broker is None else f"{broker.host}:{broker.port}"

    def _hello(self) -> Hello:
        return Hello(self.cluster_id, self.config.node_id, self.incarnation_id)
