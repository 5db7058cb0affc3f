"""The controller: one single-threaded core that every controller node runs, active on the one that leads the quorum.

A request goes through five steps (architecture rule 5, kafka-reference 6.1): a manager makes records and an answer from
the newest state; the records are replayed at once; they are appended to the quorum as one batch; the answer is parked;
it leaves when the batch commits.  Answers made of uncommitted state wait too, so nobody ever sees what may still be
taken back.

========================== =========================================================================================
message                    what happens
========================== =========================================================================================
Claim                      active once everything below `next_offset` has committed; sessions start afresh
Submit                     answered as above; NotControllerError while not active
CommittedRecords           active: answers up to it leave.  Standby: its records are replayed
Renounce                   every parked request fails, the state goes back to the last committed offset
Tick                       requests past their deadline fail; one silent broker is fenced
========================== =========================================================================================
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from replog.controller.alter_partition import IsrControl
from replog.controller.cluster_control import ClusterControl
from replog.controller.config import ControllerConfig
from replog.controller.deferred import DeferredReplies
from replog.controller.features import METADATA_VERSION, METADATA_VERSION_LEVEL
from replog.controller.heartbeats import BrokerHeartbeats
from replog.controller.messages import (
    AllocateProducerIds,
    AlterConfigs,
    AlterConfigsResponse,
    AlterPartition,
    AppendRecords,
    Claim,
    CommittedRecords,
    ControllerRequest,
    CreateTopics,
    DeleteTopics,
    Effect,
    Heartbeat,
    Message,
    RegisterBroker,
    Renounce,
    Reply,
    ReplyError,
    ReportReplicas,
    ResignLeadership,
    Submit,
    Tick,
)
from replog.controller.offset_control import OffsetControl
from replog.controller.result import Result
from replog.controller.state import ControllerState
from replog.controller.topic_control import TopicControl
from replog.errors import (
    InvalidRequestError,
    InvariantViolationError,
    NotControllerError,
    ReplogError,
    RequestTimedOutError,
    ThrottledError,
    UnknownTopicOrPartitionError,
)
from replog.metadata.config_keys import MIN_INSYNC_REPLICAS
from replog.metadata.records import ConfigRecord, ElectionType, FeatureLevelRecord, MetadataRecord, ResourceType
from replog_timeline import SnapshotRegistry


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What an operator wants to know; counts are of the newest state, uncommitted changes included.

    Attributes:
        epoch: leader epoch of the current term, -1 when not active.
        next_write_offset: -1 when not active.
        elections: leader elections since the log began, by how the leader was chosen.
    """

    is_active: bool
    epoch: int
    committed_end_offset: int
    next_write_offset: int
    parked_requests: int
    registered_brokers: tuple[int, ...]
    unfenced_brokers: tuple[int, ...]
    topics_count: int
    partitions_count: int
    leaderless_partitions_count: int
    elections: Mapping[ElectionType, int]


class Controller:
    """Owns the state of the cluster on one node.  Driven by one task; owns no clock, no log, no connection.

    Invariants:
        - state changes only by replaying records, in log order, each exactly once;
        - an answer leaves when everything it was made of has committed, or not at all;
        - every Submit is answered exactly once.
    """

    def __init__(self, *, node_id: int, cluster_id: str, config: ControllerConfig, rng: random.Random) -> None:
        """A controller that has seen nothing of the log.

        Args:
            node_id: of this node, for messages to people.
            cluster_id: brokers of another cluster are refused.
            config: the same on every controller.
            rng: topic ids and replica placement come from it.
        """
        self._node_id = node_id
        self._config = config
        registry = SnapshotRegistry()
        self._offsets = OffsetControl(registry)
        self._state = ControllerState(registry, config)
        self._heartbeats = BrokerHeartbeats(config.broker_session_timeout_ms)
        self._cluster = ClusterControl(cluster_id, self._state.brokers, self._state.replication, self._heartbeats)
        self._isr = IsrControl(self._state.brokers, self._state.replication)
        self._topics = TopicControl(config, self._state.brokers, self._state.configs, self._state.replication, rng)
        self._deferred = DeferredReplies()
        self._claim: Claim | None = None

    # ---- the core's face --------------------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        """Handle one message.

        Args:
            message: what happened.
            now_ms: monotonic milliseconds, never less than before.

        Returns:
            What the driver has to do, in order.

        Raises:
            InvariantViolationError: the log or the driver broke a rule; the node must stop.
        """
        match message:
            case Tick():
                return self._handle_tick(now_ms)
            case Submit():
                return self._handle_submit(message, now_ms)
            case Claim():
                return self._handle_claim(message, now_ms)
            case Renounce():
                return self._handle_renounce()
            case CommittedRecords():
                return self._handle_committed(message, now_ms)
            case _ as unreachable:
                assert_never(unreachable)

    def next_deadline_ms(self) -> int | None:
        """When the next `Tick` is due; it may lie in the past.  None: nothing happens by itself."""
        if not self._is_active:
            return None
        deadlines = (self._deferred.next_deadline_ms(), self._cluster.next_expiry_ms())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def status(self) -> ControllerStatus:
        """A picture for people and metrics."""
        replication = self._state.replication
        brokers = self._state.brokers.all()
        next_write_offset = self._offsets.next_write_offset
        return ControllerStatus(
            is_active=self._is_active,
            epoch=self._claim.epoch if self._claim is not None and self._is_active else -1,
            committed_end_offset=self._offsets.committed_end_offset,
            next_write_offset=-1 if next_write_offset is None else next_write_offset,
            parked_requests=len(self._deferred),
            registered_brokers=tuple(broker.broker_id for broker in brokers),
            unfenced_brokers=tuple(broker.broker_id for broker in brokers if not broker.fenced),
            topics_count=len(replication.topics),
            partitions_count=len(replication.partitions),
            leaderless_partitions_count=replication.leaderless_count,
            elections={election_type: counter.get() for election_type, counter in replication.elections.items()},
        )

    def committed_state_hash(self) -> str:
        """Equal on every node that has the same committed end offset; costs a walk over the state."""
        return self._state.state_hash(self._offsets.committed_end_offset)

    @property
    def _is_active(self) -> bool:
        return self._offsets.next_write_offset is not None

    # ---- terms ------------------------------------------------------------------------------------------------------

    def _handle_claim(self, message: Claim, now_ms: int) -> tuple[Effect, ...]:
        if self._is_active or message.next_offset < self._offsets.committed_end_offset:
            raise InvariantViolationError(
                f"claim of epoch {message.epoch} at {message.next_offset}: committed is {self._offsets.committed_end_offset}, "
                f"active is {self._is_active}"
            )
        self._claim = message
        return self._maybe_activate(now_ms)

    def _maybe_activate(self, now_ms: int) -> tuple[Effect, ...]:
        """Begin the term once the records of earlier terms have all been replayed."""
        if self._claim is None or self._offsets.committed_end_offset < self._claim.next_offset:
            return ()
        self._offsets.activate()
        self._cluster.start_sessions(now_ms)
        return self._append(self._bootstrap_records())

    def _bootstrap_records(self) -> tuple[MetadataRecord, ...]:
        """What a new log begins with.

        The minimum ISR is a record, not only a setting of this node: leaders decide by it when a record is committed, the
        controller when a replica stays eligible, and both must mean the same number.
        """
        if not self._state.features.needs_bootstrap:
            return ()
        name, value = MIN_INSYNC_REPLICAS.cluster_name, str(self._config.min_insync_replicas)
        return (
            FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_LEVEL),
            ConfigRecord(ResourceType.BROKER, "", name, value),
        )

    def _handle_renounce(self) -> tuple[Effect, ...]:
        self._claim = None
        if not self._is_active:
            return ()
        self._offsets.deactivate()
        self._heartbeats.clear()
        self._state.replication.forget_reports()
        return self._deferred.fail_all()

    # ---- the log ----------------------------------------------------------------------------------------------------

    def _handle_committed(self, message: CommittedRecords, now_ms: int) -> tuple[Effect, ...]:
        base_offset, end_offset = message.base_offset, message.end_offset
        self._offsets.check_follows(base_offset, end_offset)
        if message.records and len(message.records) != end_offset - base_offset:
            raise InvariantViolationError(f"{len(message.records)} records at [{base_offset}, {end_offset})")
        if not self._is_active:
            for offset, record in enumerate(message.records, base_offset):
                self._state.replay(record, offset)
            self._offsets.commit(base_offset, end_offset, message.epoch)
            return self._maybe_activate(now_ms)
        if self._claim is None or message.epoch != self._claim.epoch:
            raise InvariantViolationError(f"batch of epoch {message.epoch} committed during the term of {self._claim}")
        self._offsets.commit(base_offset, end_offset, message.epoch)
        return self._deferred.complete_up_to(end_offset)

    def _append(self, records: tuple[MetadataRecord, ...]) -> tuple[Effect, ...]:
        """Replay `records`, then have them appended as one batch."""
        base_offset = self._offsets.next_write_offset
        if not records:
            return ()
        if base_offset is None or self._claim is None:
            raise InvariantViolationError("append on an inactive controller")
        for offset, record in enumerate(records, base_offset):
            self._state.replay(record, offset)
        self._offsets.append(len(records))
        return (AppendRecords(self._claim.epoch, base_offset, records),)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _handle_submit(self, message: Submit, now_ms: int) -> tuple[Effect, ...]:
        next_write_offset = self._offsets.next_write_offset
        if next_write_offset is None or self._claim is None:
            error: ReplogError = NotControllerError(f"node {self._node_id} is not the active controller")
            return (ReplyError(message.request_id, error),)
        if now_ms >= message.deadline_ms:
            return (ReplyError(message.request_id, RequestTimedOutError("the request waited too long to be handled")),)
        if len(self._deferred) >= self._config.max_parked_requests:
            error = ThrottledError(
                f"{len(self._deferred)} requests wait for the metadata log to commit; try again later"
            )
            return (ReplyError(message.request_id, error),)
        try:
            result = self._result(message.request, now_ms, next_write_offset)
        except ReplogError as refused:
            return self._answer(ReplyError(message.request_id, refused), message.deadline_ms)
        except InvariantViolationError:
            raise
        except Exception as bug:  # noqa: BLE001 - nothing has changed yet: this term ends, the node and its state are sound
            reason = f"{type(message.request).__name__} failed unexpectedly: {bug!r}"
            return (ReplyError(message.request_id, ReplogError(reason)), ResignLeadership(self._claim.epoch, reason))
        return (
            *self._append(result.records),
            *self._answer(Reply(message.request_id, result.response), message.deadline_ms),
        )

    def _answer(self, answer: Reply | ReplyError, deadline_ms: int) -> tuple[Effect, ...]:
        """At once when all it was made of has committed, else when the highest pending offset commits."""
        next_write_offset = self._offsets.next_write_offset
        if next_write_offset is None or not self._offsets.has_pending:
            return (answer,)
        self._deferred.park(next_write_offset, deadline_ms, answer)
        return ()

    def _result(self, request: ControllerRequest, now_ms: int, next_write_offset: int) -> Result:
        result = self._route(request, now_ms, next_write_offset)
        if len(result.records) > self._config.max_records_per_batch:
            raise InvalidRequestError(
                f"the request changes {len(result.records)} records, a batch holds {self._config.max_records_per_batch}"
            )
        return result

    def _route(self, request: ControllerRequest, now_ms: int, next_write_offset: int) -> Result:
        match request:
            case RegisterBroker():
                return self._cluster.register(request, now_ms, next_write_offset)
            case Heartbeat():
                return self._cluster.heartbeat(request, now_ms, next_write_offset)
            case AlterPartition():
                return self._isr.alter_partitions(request)
            case CreateTopics():
                return self._topics.create(request)
            case DeleteTopics():
                return self._topics.delete(request)
            case AlterConfigs():
                return self._alter_configs(request)
            case AllocateProducerIds():
                return self._state.producer_ids.allocate(request)
            case ReportReplicas():
                return self._cluster.report(request)
            case _ as unreachable:
                assert_never(unreachable)

    def _alter_configs(self, request: AlterConfigs) -> Result:
        if (
            request.resource_type is ResourceType.TOPIC
            and request.resource_name not in self._state.replication.topic_ids
        ):
            raise UnknownTopicOrPartitionError(f'topic "{request.resource_name}" does not exist')
        records = self._state.configs.change(request.resource_type, request.resource_name, request.entries)
        changes = self._state.replication.changes_under(records) if records else ()
        return Result((*records, *changes), AlterConfigsResponse())

    # ---- time -------------------------------------------------------------------------------------------------------

    def _handle_tick(self, now_ms: int) -> tuple[Effect, ...]:
        if not self._is_active:
            return ()
        expired = self._deferred.expire(now_ms)
        return (*expired, *self._append(self._cluster.fence_stale_broker(now_ms)))
