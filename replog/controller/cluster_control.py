"""Brokers come, go and are missed: registration, heartbeats, fencing, controlled shutdown (kafka-reference 6.5).

==================== ======================================================= ====================
state now            condition                                               next
==================== ======================================================= ====================
FENCED               wants to shut down                                      SHUTDOWN_NOW
FENCED               does not want the fence, has applied its registration   UNFENCED
UNFENCED             wants fence and shut down                               SHUTDOWN_NOW
UNFENCED             wants the fence                                         FENCED
UNFENCED             wants to shut down, leads something                     CONTROLLED_SHUTDOWN
UNFENCED             wants to shut down, leads nothing                       SHUTDOWN_NOW
CONTROLLED_SHUTDOWN  leads nothing, all active brokers have applied the      SHUTDOWN_NOW
                     batch that took its leaderships
==================== ======================================================= ====================

In every other case the state stays as it is.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import assert_never

from replog.controller.broker_registry import BrokerRegistry
from replog.controller.heartbeats import BrokerHeartbeats, Session
from replog.controller.messages import (
    Heartbeat,
    HeartbeatResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    ReportReplicas,
    ReportReplicasResponse,
)
from replog.controller.replication_control import ReplicationControl
from replog.controller.result import Result
from replog.errors import DuplicateBrokerRegistrationError, InconsistentClusterIdError, InvalidRequestError
from replog.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord, RegisterBrokerRecord
from replog.metadata.registrations import BrokerRegistration


class BrokerState(Enum):
    """What the controller lets a broker do."""

    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


class ClusterControl:
    """Turns what brokers say, or fail to say, into records."""

    def __init__(
        self,
        cluster_id: str,
        brokers: BrokerRegistry,
        replication: ReplicationControl,
        heartbeats: BrokerHeartbeats,
    ) -> None:
        self._cluster_id = cluster_id
        self._brokers = brokers
        self._replication = replication
        self._heartbeats = heartbeats

    # ---- registration -----------------------------------------------------------------------------------------------

    def register(self, request: RegisterBroker, now_ms: int, next_write_offset: int) -> Result:
        """Register an incarnation; a new one is fenced and loses its leaderships in the same batch.

        Args:
            request: what the broker says about itself.
            now_ms: its session starts here.
            next_write_offset: becomes its broker epoch.

        Raises:
            InconsistentClusterIdError: it belongs to another cluster.
            InvalidRequestError: its id is negative; its log directories are missing, repeated, or another broker's.
            DuplicateBrokerRegistrationError: another process with other log directories uses the id and is alive.
        """
        if request.cluster_id != self._cluster_id:
            raise InconsistentClusterIdError(
                f'broker {request.broker_id} belongs to cluster "{request.cluster_id}", this is "{self._cluster_id}"'
            )
        if request.broker_id < 0:
            raise InvalidRequestError(f"broker ids start at 0, {request.broker_id} is none")
        self._check_log_dirs(request)
        stored = self._brokers.get(request.broker_id)
        if stored is not None and stored.incarnation_id == request.incarnation_id:
            return self._register_again(request, stored, now_ms)
        records: list[MetadataRecord] = []
        if stored is not None:
            keeps_log_dirs = set(stored.log_dirs) <= set(request.log_dirs)
            self._check_not_alive(request, stored, now_ms, keeps_log_dirs=keeps_log_dirs)
            records += self._replication.changes_without(
                request.broker_id,
                restarted_uncleanly=not keeps_log_dirs or request.previous_broker_epoch != stored.broker_epoch,
                keeps_log_dirs=keeps_log_dirs,
            )
        self._heartbeats.start(request.broker_id, next_write_offset, now_ms)
        records.append(_register_record(request, next_write_offset))
        return Result(tuple(records), RegisterBrokerResponse(next_write_offset))

    def _register_again(self, request: RegisterBroker, stored: BrokerRegistration, now_ms: int) -> Result:
        """The answer was lost and the same process asks again: nothing about it changes but what it says anew."""
        self._heartbeats.start(request.broker_id, stored.broker_epoch, now_ms)
        record = _register_record(
            request, stored.broker_epoch, fenced=stored.fenced, in_controlled_shutdown=stored.in_controlled_shutdown
        )
        is_new = BrokerRegistration.from_record(record) != stored
        return Result((record,) if is_new else (), RegisterBrokerResponse(stored.broker_epoch))

    def _check_log_dirs(self, request: RegisterBroker) -> None:
        if not request.log_dirs or len(set(request.log_dirs)) < len(request.log_dirs):
            raise InvalidRequestError(f"broker {request.broker_id} must name its log directories, each once")
        for other in self._brokers.all():
            if other.broker_id != request.broker_id and set(other.log_dirs) & set(request.log_dirs):
                raise InvalidRequestError(
                    f"a log directory of broker {request.broker_id} belongs to broker {other.broker_id}: was it copied?"
                )

    def _check_not_alive(
        self, request: RegisterBroker, stored: BrokerRegistration, now_ms: int, *, keeps_log_dirs: bool
    ) -> None:
        # The lock on a log directory admits one process, so holding the old ones proves that the old process is gone.
        if not keeps_log_dirs and self._heartbeats.is_live(stored.broker_id, stored.broker_epoch, now_ms):
            raise DuplicateBrokerRegistrationError(
                f"broker id {request.broker_id} is in use by a live broker at {stored.host}:{stored.port} "
                "with other log directories; give this one another id, or stop that one"
            )

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat, now_ms: int, next_write_offset: int) -> Result:
        """Note that the broker is alive, and give it the state it may have now.

        Raises:
            BrokerIdNotRegisteredError, StaleBrokerEpochError: the sender is not a registered incarnation.
        """
        registration = self._brokers.incarnation_or_raise(request.broker_id, request.broker_epoch)
        offline = [(replica.topic_id, replica.partition_id) for replica in request.offline_replicas]
        changes = tuple(self._replication.changes_for_offline(request.broker_id, offline))
        session = self._heartbeats.touch(request.broker_id, request.broker_epoch, request.metadata_offset, now_ms)
        current = _state(registration)
        if current is BrokerState.CONTROLLED_SHUTDOWN and session.controlled_shutdown_offset is None:
            session.controlled_shutdown_offset = next_write_offset  # it began under another controller
        # what both would change cannot be told twice in one batch, and the next heartbeat is near
        target = current if changes else self._next_state(current, request, session)
        records = changes or self._transition(registration, current, target)
        if target is BrokerState.CONTROLLED_SHUTDOWN and current is not target:
            session.controlled_shutdown_offset = next_write_offset + len(records)
        response = HeartbeatResponse(
            is_caught_up=self._is_caught_up(request),
            is_fenced=target in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW},
            should_shut_down=target is BrokerState.SHUTDOWN_NOW,
            metadata_offset=next_write_offset + len(records),
        )
        return Result(records, response)

    def _is_caught_up(self, request: Heartbeat) -> bool:
        return request.metadata_offset > self._brokers.register_offsets[request.broker_id]

    def _next_state(self, current: BrokerState, request: Heartbeat, session: Session) -> BrokerState:
        match current:
            case BrokerState.FENCED:
                if request.want_shut_down:
                    return BrokerState.SHUTDOWN_NOW
                may_serve = not request.want_fence and self._is_caught_up(request)
                return BrokerState.UNFENCED if may_serve else BrokerState.FENCED
            case BrokerState.UNFENCED:
                return self._next_of_unfenced(request)
            case BrokerState.CONTROLLED_SHUTDOWN:
                return BrokerState.SHUTDOWN_NOW if self._may_stop(request.broker_id, session) else current
            case BrokerState.SHUTDOWN_NOW:
                return current
            case _ as unreachable:
                assert_never(unreachable)

    def _next_of_unfenced(self, request: Heartbeat) -> BrokerState:
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if not request.want_shut_down:
            return BrokerState.UNFENCED
        leads = self._replication.leads_any(request.broker_id)
        return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW

    def _may_stop(self, broker_id: int, session: Session) -> bool:
        if self._replication.leads_any(broker_id) or session.controlled_shutdown_offset is None:
            return False
        active = [registration.broker_id for registration in self._brokers.all() if registration.is_active]
        lowest = self._heartbeats.lowest_metadata_offset(active)
        return lowest is None or session.controlled_shutdown_offset <= lowest

    def _transition(
        self, registration: BrokerRegistration, current: BrokerState, target: BrokerState
    ) -> tuple[MetadataRecord, ...]:
        broker_id, broker_epoch = registration.broker_id, registration.broker_epoch
        if current is target or (current is BrokerState.FENCED and target is BrokerState.SHUTDOWN_NOW):
            return ()
        match target:
            case BrokerState.UNFENCED:
                unfence = BrokerRegistrationChangeRecord(broker_id, broker_epoch, fenced=False)
                return (unfence, *self._replication.changes_with(broker_id))
            case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
                return self._fence(registration)
            case BrokerState.CONTROLLED_SHUTDOWN:
                flag = BrokerRegistrationChangeRecord(broker_id, broker_epoch, in_controlled_shutdown=True)
                return (flag, *self._replication.changes_without(broker_id))
            case _ as unreachable:
                assert_never(unreachable)

    # ---- silence ----------------------------------------------------------------------------------------------------

    def fence_stale_broker(self, now_ms: int) -> tuple[MetadataRecord, ...]:
        """Fence the broker that has been silent the longest, if its session has expired.

        One per pass: when the controller itself was held up, the heartbeats that wait to be handled save the others.
        """
        broker_id = self._heartbeats.stale_broker(self._unfenced(), now_ms)
        return () if broker_id is None else self._fence(self._brokers.registrations[broker_id])

    def next_expiry_ms(self) -> int | None:
        """When the next session of an unfenced broker expires, None when there are none."""
        return self._heartbeats.next_expiry_ms(self._unfenced())

    def start_sessions(self, now_ms: int) -> None:
        """A new term: every registered broker gets a fresh session."""
        self._heartbeats.clear()
        for registration in self._brokers.all():
            self._heartbeats.start(registration.broker_id, registration.broker_epoch, now_ms)

    def _unfenced(self) -> list[int]:
        return [registration.broker_id for registration in self._brokers.all() if not registration.fenced]

    def _fence(self, registration: BrokerRegistration) -> tuple[MetadataRecord, ...]:
        fence = BrokerRegistrationChangeRecord(
            registration.broker_id,
            registration.broker_epoch,
            fenced=True,
            in_controlled_shutdown=False if registration.in_controlled_shutdown else None,
        )
        return (*self._replication.changes_without(registration.broker_id), fence)

    # ---- reports ----------------------------------------------------------------------------------------------------

    def report(self, request: ReportReplicas) -> Result:
        """A broker tells how far its replicas reach; elections that waited for it happen.

        Raises:
            BrokerIdNotRegisteredError, StaleBrokerEpochError: the sender is not a registered incarnation.
        """
        self._brokers.incarnation_or_raise(request.broker_id, request.broker_epoch)
        changes = self._replication.changes_after_reports(request.broker_id, request.broker_epoch, request.replicas)
        return Result(tuple(changes), ReportReplicasResponse())


def _state(registration: BrokerRegistration) -> BrokerState:
    if registration.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if registration.in_controlled_shutdown else BrokerState.UNFENCED


def _register_record(
    request: RegisterBroker, broker_epoch: int, *, fenced: bool = True, in_controlled_shutdown: bool = False
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=broker_epoch,
        host=request.host,
        port=request.port,
        log_dirs=request.log_dirs,
        rack=request.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
