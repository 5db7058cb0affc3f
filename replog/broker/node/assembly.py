"""How the parts of a node are made and joined.

    quorum <-> controller                   who leads, what the metadata is
       | commits
    publisher -> images -> manager          replicas, as the metadata says
                             | fetchers, moves, keeper, cleaner
    handlers -> produce path, fetch path    what clients and other brokers ask

Nothing runs before all are made: what one part needs of a later one it asks for through `PartLinks`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from replog.access.principal import ClientIdentity
from replog.access.rights import Rights
from replog.access.standard import StandardAuthorizer
from replog.broker.controller.broker_lifecycle import BrokerLifecycle
from replog.broker.controller.channel import ControllerChannel
from replog.broker.controller.driver import ControllerDriver
from replog.broker.controller.registration import ControllerRegistrar
from replog.broker.coordinator.kinds import TRANSACTIONS
from replog.broker.disk.flusher import LogFlusher
from replog.broker.loop_lag import LoopLag
from replog.broker.node.coordinating import coordinating_parts
from replog.broker.node.core_settings import controller_config, quorum_config, snapshot_limits, token_key
from replog.broker.node.first_users import read_first_users
from replog.broker.node.links import PartLinks
from replog.broker.node.parts import MetadataParts, NodeParts, ReplicaParts, RequestParts
from replog.broker.node.resources import DISK_THREADS, NodeResources
from replog.broker.quorum.acl_updates import AclUpdates
from replog.broker.quorum.driver import QuorumDriver, QuorumIdentity, QuorumSurroundings
from replog.broker.quorum.metadata_publisher import MetadataPublisher
from replog.broker.quorum.metadata_snapshots import MetadataSnapshots
from replog.broker.quorum.requests import QuorumRequests
from replog.broker.quorum.state_file import QuorumStateFile
from replog.broker.replicas.alter_partition import AlterPartitionSender
from replog.broker.replicas.cleaner import LogCleaner
from replog.broker.replicas.fetchers import Fetchers
from replog.broker.replicas.image_queue import ImageQueue
from replog.broker.replicas.log_keeper import LogKeeper
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_path import FetchPath
from replog.broker.requests.fetch_reader import FetchReader
from replog.broker.requests.handlers import HandlerParts, RequestHandlers
from replog.broker.requests.kafka_node import LocalKafkaNode
from replog.broker.requests.look_ups import LookUps
from replog.broker.requests.peer_handlers import PeerRequestHandlers
from replog.broker.requests.produce_path import ProducePath
from replog.broker.requests.producer_ids import ProducerIdAllocator
from replog.broker.requests.record_deletions import RecordDeletions
from replog.broker.requests.sessions import Fetches, Produces
from replog.broker.transactions.marker_sender import MarkerSender
from replog.broker.transactions.markers import MarkerWriter
from replog.controller.controller import Controller
from replog.controller.requests import RegisterController
from replog.errors import NotControllerError
from replog.log import METADATA_TOPIC
from replog.metadata.features import SUPPORTED_FEATURES
from replog.waiting.byte_semaphore import ByteSemaphore
from replog_quorum import Voter, VoterSet


def assemble(resources: NodeResources, make_links: Callable[[NodeResources], PartLinks] = PartLinks) -> NodeParts:
    """Makes every part of a node, and joins them; none of them runs yet.

    Args:
        resources: What they are made from.
        make_links: A function that makes what joins them.
    """
    links = make_links(resources)
    metrics = resources.metrics
    flusher = LogFlusher(
        resources.executor,
        DISK_THREADS,
        resources.on_failure,
        links.log_failed,
        None if metrics is None else metrics.observe_flush,
    )
    loop_lag = LoopLag(resources.environment.clock)
    metadata = _metadata_parts(resources, links, flusher, loop_lag)
    replicas = _replica_parts(resources, links, flusher, metadata.channel)
    requests = _request_parts(resources, links, metadata, replicas)
    parts = NodeParts(flusher=flusher, loop_lag=loop_lag, metadata=metadata, replicas=replicas, requests=requests)
    links.join(parts)
    return parts


# ---- what decides on metadata ---------------------------------------------------------------------------------------------


def _metadata_parts(
    resources: NodeResources, links: PartLinks, flusher: LogFlusher, loop_lag: LoopLag
) -> MetadataParts:
    controller = _controller(resources, loop_lag)
    quorum = _quorum(resources, links, flusher)
    config, environment = resources.config, resources.environment
    snapshots = MetadataSnapshots(
        snapshot_limits(config),
        quorum,
        environment.clock,
        resources.executor,
        resources.logs.directories[config.log_dir].prepare_log_start_offsets,
        resources.on_failure,
    )
    channel = ControllerChannel(
        hello=resources.hello(),
        address_of=quorum.address_of,
        leader_id=links.leader_id,
        local=controller,
        transport=resources.peers,
        clock=environment.clock,
    )
    return MetadataParts(
        log=resources.metadata_log,
        controller=controller,
        quorum=quorum,
        snapshots=snapshots,
        channel=channel,
        registrar=_registrar(resources, channel),
    )


def _controller(resources: NodeResources, loop_lag: LoopLag) -> ControllerDriver | None:
    config, environment = resources.config, resources.environment
    if not config.is_controller:
        return None
    core = Controller(
        node_id=config.node_id,
        cluster_id=resources.cluster_id,
        config=controller_config(config, read_first_users(environment.fs, config.log_dir)),
        rng=environment.new_rng(),
        wall_ms=environment.clock.wall_ms,
    )
    return ControllerDriver(core, environment.clock, resources.peers, resources.hello, loop_lag, resources.on_failure)


def _quorum(resources: NodeResources, links: PartLinks, flusher: LogFlusher) -> QuorumDriver:
    config, environment = resources.config, resources.environment
    voters = {voter.voter_id: str(voter.endpoint) for voter in config.controller_quorum_voters}
    if not voters:
        voters = {config.node_id: resources.address}
    identity = QuorumIdentity(
        node_id=config.node_id,
        directory_id=resources.logs.directories[config.log_dir].meta.directory_id,
        endpoint=voters.get(config.node_id, resources.address),
        voters=VoterSet(tuple(Voter(voter_id, None, voters[voter_id]) for voter_id in sorted(voters))),
        config=quorum_config(config),
    )
    surroundings = QuorumSurroundings(
        transport=resources.peers,
        hello=resources.hello,
        clock=environment.clock,
        rng=environment.new_rng(),
        executor=resources.executor,
        flusher=flusher,
        append_linger_ms=config.controller_quorum_append_linger_ms,
        on_failure=resources.on_failure,
    )
    metadata_log = resources.metadata_log
    state_path = f"{metadata_log.log.directory}/quorum-state"
    is_log_cut = resources.logs.gave_up(METADATA_TOPIC, 0)
    state_file = QuorumStateFile(
        environment.fs, state_path, resources.make_room, is_log_cut=is_log_cut and config.is_controller
    )
    driver = QuorumDriver(identity, metadata_log, state_file, surroundings, links)
    if is_log_cut:  # it has no vote, or the only one
        resources.logs.forget_given_up(METADATA_TOPIC, 0)
    return driver


def _registrar(resources: NodeResources, channel: ControllerChannel) -> ControllerRegistrar:
    host, _, port = resources.address.rpartition(":")
    registration = RegisterController(
        controller_id=resources.config.node_id,
        cluster_id=resources.cluster_id,
        incarnation_id=resources.incarnation_id,
        host=host,
        port=int(port),
        supported_features=SUPPORTED_FEATURES,
    )
    return ControllerRegistrar(registration, channel, resources.on_failure)


# ---- what holds data ------------------------------------------------------------------------------------------------------


def _replica_parts(
    resources: NodeResources, links: PartLinks, flusher: LogFlusher, channel: ControllerChannel
) -> ReplicaParts:
    config, environment, logs = resources.config, resources.environment, resources.logs
    authorizer = resources.authorizer
    executor, on_failure = resources.executor, resources.on_failure
    isr_sender = AlterPartitionSender(
        broker_id=config.node_id,
        broker_epoch=links.broker_epoch,
        channel=channel,
        on_answer=links.isr_answered,
        on_failure=on_failure,
    )
    stepper = ReplicaStepper(
        config=config,
        logs=logs,
        clock=environment.clock,
        flusher=flusher,
        propose_isr=isr_sender.propose,
        on_offline=links.hurry,
        on_failure=on_failure,
    )
    manager = ReplicaManager(stepper, logs, executor, environment.new_uuid, on_failure)
    images = ImageQueue(manager, executor, links.metadata_applied, on_failure, links.was_deleted, links.is_later)
    fetchers = stepper.fetchers = _fetchers(resources, links, stepper)
    return ReplicaParts(
        isr_sender=isr_sender,
        stepper=stepper,
        manager=manager,
        lifecycle=_lifecycle(resources, links, channel, manager),
        images=images,
        keeper=LogKeeper(config, logs, stepper, images.retry_roles, executor, on_failure),
        cleaner=LogCleaner(config, logs, stepper, on_failure),
        fetchers=fetchers,
        publisher=MetadataPublisher(
            config.node_id,
            resources.incarnation_id,
            resources.metadata_log.log_end_offset,
            images.submit,
            on_failure,
            AclUpdates(authorizer, on_failure) if isinstance(authorizer, StandardAuthorizer) else None,
        ),
    )


def _lifecycle(
    resources: NodeResources, links: PartLinks, channel: ControllerChannel, manager: ReplicaManager
) -> BrokerLifecycle:
    host, _, port = resources.address.rpartition(":")
    logs, stepper = resources.logs, manager.stepper
    return BrokerLifecycle(
        config=resources.config,
        cluster_id=resources.cluster_id,
        incarnation_id=resources.incarnation_id,
        log_dirs=logs.directory_ids,
        unopened_log_dirs=logs.missing_directories,
        endpoints=resources.endpoints,
        untold_endpoints=links.untold_endpoints,
        previous_broker_epoch=logs.previous_broker_epoch,
        host=host,
        port=int(port),
        channel=channel,
        clock=resources.environment.clock,
        metadata_offset=lambda: manager.applied_offset,
        awaited_ends=manager.awaited_ends,
        offline_replicas=stepper.trouble.reported,
        on_reported=lambda reported, offset: stepper.driver.submit(lambda: manager.controller_knows(reported, offset)),
        on_lease_changed=links.tell_watchers,
        on_failure=resources.on_failure,
    )


def _fetchers(resources: NodeResources, links: PartLinks, stepper: ReplicaStepper) -> Fetchers:
    return Fetchers(
        config=resources.config,
        driver=stepper.driver,
        clock=resources.environment.clock,
        transport=resources.peers,
        hello=resources.hello,
        broker_epoch=links.broker_epoch,
        address_of=links.address_of,
        step=stepper.step_follower,
        throttle=stepper.follower_throttle,
        on_failure=resources.on_failure,
    )


# ---- the paths by which requests come in ----------------------------------------------------------------------------------


def _request_parts(
    resources: NodeResources, links: PartLinks, metadata: MetadataParts, replicas: ReplicaParts
) -> RequestParts:
    config, stepper, lifecycle = resources.config, replicas.stepper, replicas.lifecycle
    coordinating = coordinating_parts(resources, metadata, replicas, links.address_of)
    produce_path = ProducePath(stepper, lifecycle.refuses_because, replicas.images.run_later, coordinating.joins)
    reader = FetchReader(stepper, lifecycle.refuses_because)
    fetch_path = FetchPath(stepper, reader, lifecycle.refuses_because, replicas.images.run_later)
    deletions = RecordDeletions(stepper, reader)
    producer_ids = ProducerIdAllocator(config.node_id, links.broker_epoch, metadata.channel)
    produces: Produces = produce_path
    fetches: Fetches = fetch_path
    if resources.metrics is not None:  # off, requests go straight into the paths
        produces = resources.metrics.metered_produce(produce_path)
        fetches = resources.metrics.metered_fetch(fetch_path, stepper.driver)
    markers = MarkerWriter(stepper, produce_path, coordinating.groups.submit_to)
    request_bytes = ByteSemaphore(config.queued_max_request_bytes)
    handler_parts = HandlerParts(
        config=config,
        hello=resources.hello(),
        address=resources.address,
        leader=lambda: links.leader,
        controller=metadata.controller,
        channel=metadata.channel,
        quorum=metadata.quorum,
        quorum_requests=QuorumRequests(
            config.node_id,
            resources.cluster_id,
            metadata.quorum,
            resources.peers,
            resources.environment.clock,
            partial(_controllers_rights, metadata.controller),
        ),
        manager=replicas.manager,
        lifecycle=lifecycle,
        publisher=replicas.publisher,
        produces=produces,
        fetches=fetches,
        fetch_path=fetch_path,
        look_ups=LookUps(stepper, reader),
        deletions=deletions,
        producer_ids=producer_ids,
        credits=request_bytes,
        coordinators=coordinating.groups,
        transactions=coordinating.transactions,
        markers=markers,
        joins=coordinating.joins,
        authorizer=resources.authorizer,
        token_key=token_key(config),
    )
    marker_sender = MarkerSender(
        config.node_id,
        lambda: replicas.publisher.image,
        coordinating.shards,
        markers,
        coordinating.calls,
        resources.on_failure,
    )
    coordinating.shards.watch(TRANSACTIONS.topic, marker_sender)
    handlers = RequestHandlers(handler_parts)
    peer_handlers = PeerRequestHandlers(handler_parts, handlers)
    return RequestParts(
        produce_path=produce_path,
        fetch_path=fetch_path,
        deletions=deletions,
        producer_ids=producer_ids,
        handlers=handlers,
        peer_handlers=peer_handlers,
        credits=request_bytes,
        coordinators=coordinating.groups,
        coordinating=coordinating,
        marker_sender=marker_sender,
        kafka_node=LocalKafkaNode(
            handler_parts,
            handlers,
            resources.clients.endpoints,
            resources.environment.new_rng(),
        ),
    )


def _controllers_rights(controller: ControllerDriver | None, client: ClientIdentity, api: str) -> Rights:
    """Returns what a client may have changed, as the controller of this node knows it.

    Raises:
        NotControllerError: It is not active, or the node has none.
    """
    if controller is None:
        raise NotControllerError("this node has no controller")
    return controller.rights(client, api)
