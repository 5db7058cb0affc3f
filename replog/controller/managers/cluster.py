"""Brokers come, go and are missed: heartbeats, fencing, controlled shutdown (docs/KAFKA.md 6.5).

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

from collections.abc import Iterator
from enum import Enum, auto
from itertools import chain
from typing import assert_never

from replog.controller.events.offset_control import OffsetControl
from replog.controller.managers.heartbeats import BrokerHeartbeats, Session
from replog.controller.managers.registration import check_endpoints
from replog.controller.managers.replication import Made, ReplicationControl, only_changes
from replog.controller.messages import BrokerGone, WatchedBroker
from replog.controller.requests import (
    Heartbeat,
    HeartbeatResponse,
    LongResult,
    ReportReplicas,
    ReportReplicasResponse,
    Result,
)
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.features import FeatureControl
from replog.controller.state.replication import ReplicationState
from replog.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord
from replog.metadata.registrations import BrokerRegistration

GONE_PAUSE_MS = 500
"""Between two brokers that are fenced because somebody has seen them gone: when the network itself refuses, as a firewall
does, a cluster must not lose all its brokers at once."""


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
        offsets: OffsetControl,
        brokers: BrokerRegistry,
        features: FeatureControl,
        state: ReplicationState,
        replication: ReplicationControl,
        heartbeats: BrokerHeartbeats,
    ) -> None:
        self._offsets = offsets
        self._brokers = brokers
        self._features = features
        self._state = state
        self._replication = replication
        self._heartbeats = heartbeats
        self._fenced_gone_ms: int | None = None

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat, now_ms: int) -> Result | LongResult:
        """Notes that the broker is alive, and gives it the state it may have now.

        Raises:
            BrokerIdNotRegisteredError, StaleBrokerEpochError: The sender is not a registered incarnation.
            InvalidRequestError: Its endpoints cannot be.
        """
        registration = self._brokers.incarnation_or_raise(request.broker_id, request.broker_epoch)
        endpoints = self._endpoint_change(registration, request)
        changes = self._offline_changes(request)
        session = self._heartbeats.touch(
            request.broker_id, request.broker_epoch, request.metadata_offset, self._offsets.end_after(), now_ms
        )
        current = _state(registration)
        if current is BrokerState.CONTROLLED_SHUTDOWN and session.controlled_shutdown_offset is None:
            session.controlled_shutdown_offset = self._offsets.end_after()  # it began under another controller
        # what both would change cannot be told twice in one batch, and the next heartbeat is near
        target = current if changes else self._next_state(current, request, session)
        is_caught_up = session.is_caught_up

        def finished(end_offset: int) -> HeartbeatResponse:
            if target is BrokerState.CONTROLLED_SHUTDOWN and current is not target:
                session.controlled_shutdown_offset = end_offset
            return HeartbeatResponse(
                is_caught_up=is_caught_up,
                is_fenced=target in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW},
                should_shut_down=target is BrokerState.SHUTDOWN_NOW,
                metadata_offset=end_offset,
            )

        made = changes or self._transition(registration, current, target)
        if isinstance(made, Iterator):
            return LongResult(chain(endpoints, made), finished)
        records = (*endpoints, *made)
        return Result(records, finished(self._offsets.end_after(records)))

    def _offline_changes(self, request: Heartbeat) -> Made:
        """Notes which replicas a broker cannot use, and returns what that changes; () where nothing does."""
        changes = self._replication.changes_for_offline(
            request.broker_id, request.offline_replicas, more_follow=request.more_offline
        )
        return self._made(changes.changes, changes.count)

    def note_contact(self, request: Heartbeat, now_ms: int) -> None:
        """Notes that a heartbeat has arrived.

        It counts before anything else is done, so that nobody is fenced while it waits.
        """
        registration = self._brokers.get(request.broker_id)
        if registration is not None and registration.broker_epoch == request.broker_epoch:
            self._heartbeats.note_contact(request.broker_id, request.broker_epoch, now_ms)

    def _endpoint_change(
        self, registration: BrokerRegistration, request: Heartbeat
    ) -> tuple[BrokerRegistrationChangeRecord, ...]:
        """Returns the change by which a registration gets endpoints that it could not hold when it was made.

        Nothing else about the broker changes: neither its epoch and its session nor what it leads and is in sync with.
        """
        endpoints = request.endpoints
        check_endpoints(f"broker {request.broker_id}", endpoints)
        if not endpoints or endpoints == registration.endpoints or not self._features.knows_endpoints:
            return ()
        return (BrokerRegistrationChangeRecord(request.broker_id, request.broker_epoch, endpoints=endpoints),)

    def _next_state(self, current: BrokerState, request: Heartbeat, session: Session) -> BrokerState:
        match current:
            case BrokerState.FENCED:
                if request.want_shut_down:
                    return BrokerState.SHUTDOWN_NOW
                may_serve = not request.want_fence and session.is_caught_up
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
        leads = self._state.leads_any(request.broker_id)
        return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW

    def _may_stop(self, broker_id: int, session: Session) -> bool:
        if self._state.leads_any(broker_id) or session.controlled_shutdown_offset is None:
            return False
        active = [registration.broker_id for registration in self._brokers.all() if registration.is_active]
        lowest = self._heartbeats.lowest_metadata_offset(active)
        return lowest is None or session.controlled_shutdown_offset <= lowest

    def _transition(self, registration: BrokerRegistration, current: BrokerState, target: BrokerState) -> Made:
        broker_id, broker_epoch = registration.broker_id, registration.broker_epoch
        if current is target or (current is BrokerState.FENCED and target is BrokerState.SHUTDOWN_NOW):
            return ()
        match target:
            case BrokerState.UNFENCED:
                unfence = BrokerRegistrationChangeRecord(broker_id, broker_epoch, fenced=False)
                elections = self._replication.changes_with(broker_id)
                return self._made(chain((unfence,), elections.changes), elections.count)
            case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
                return self._fenced(registration, leaves_in_order=target is BrokerState.SHUTDOWN_NOW)
            case BrokerState.CONTROLLED_SHUTDOWN:
                flag = BrokerRegistrationChangeRecord(broker_id, broker_epoch, in_controlled_shutdown=True)
                changes_without = self._replication.changes_without(broker_id, leaves_in_order=True)
                return self._made(chain((flag,), changes_without), self._state.hosted_count(broker_id))
            case _ as unreachable:
                assert_never(unreachable)

    def _made(self, records: Iterator[MetadataRecord | None], things_count: int) -> Made:
        """Returns the records of a change: made already, or one by one where that takes more than one step."""
        return records if self._offsets.needs_steps(things_count) else only_changes(records)

    # ---- silence ----------------------------------------------------------------------------------------------------

    def fence_stale_broker(self, now_ms: int) -> Made:
        """Fences the broker that has been silent the longest, if its session has expired.

        One per pass: when the controller itself was held up, the heartbeats that wait to be handled save the others.

        Returns:
            The records, () for none; of a broker with many replicas an iterator, which makes each when it is asked for.
        """
        broker_id = self._heartbeats.stale_broker(self._unfenced(), now_ms)
        return () if broker_id is None else self._fenced(self._brokers.registrations[broker_id])

    def next_expiry_ms(self) -> int | None:
        """Returns when the next session of an unfenced broker expires; None when there are none."""
        return self._heartbeats.next_expiry_ms(self._unfenced())

    def start_term(self, now_ms: int) -> None:
        """Gives every registered broker a fresh session."""
        self._heartbeats.clear()
        self._fenced_gone_ms = None
        for broker in self._brokers.all():
            self._heartbeats.start(broker.broker_id, broker.broker_epoch, self._offsets.committed_end_offset, now_ms)

    def watched(self) -> tuple[WatchedBroker, ...]:
        """Returns the brokers whose death should be noticed at once: all that are not fenced."""
        return tuple(
            WatchedBroker(broker.broker_id, broker.broker_epoch, broker.incarnation_id, broker.host, broker.port)
            for broker in self._brokers.all()
            if not broker.fenced
        )

    def changes_after_gone(self, gone: BrokerGone, now_ms: int) -> Made:
        """Fences a broker that does not run any more, if it is still the same incarnation; one at a time.

        Only where somebody who is there holds what it held: after a power cut of all brokers those that start first must
        not inherit the ISR from the others.  They register with what they have, and all are waited for.
        """
        registration = self._brokers.get(gone.broker_id)
        if registration is None or registration.fenced or registration.broker_epoch != gone.broker_epoch:
            return ()
        if not self._replication.can_do_without(gone.broker_id, gone.present):
            return ()
        if self._fenced_gone_ms is not None and now_ms < self._fenced_gone_ms + GONE_PAUSE_MS:
            return ()  # told again if it is still so then
        self._fenced_gone_ms = now_ms
        return self._fenced(registration)

    def _unfenced(self) -> list[int]:
        return [registration.broker_id for registration in self._brokers.all() if not registration.fenced]

    def _fenced(self, registration: BrokerRegistration, *, leaves_in_order: bool = False) -> Made:
        """Returns the records that fence a broker."""
        broker_id = registration.broker_id
        fence = BrokerRegistrationChangeRecord(
            broker_id,
            registration.broker_epoch,
            fenced=True,
            in_controlled_shutdown=False if registration.in_controlled_shutdown else None,
        )
        changes = self._replication.changes_without(broker_id, leaves_in_order=leaves_in_order)
        return self._made(chain(changes, (fence,)), self._state.hosted_count(broker_id))

    # ---- reports ----------------------------------------------------------------------------------------------------

    def report(self, request: ReportReplicas) -> Result | LongResult:
        """Takes in how far a broker's replicas reach; elections that waited for it happen.

        Raises:
            BrokerIdNotRegisteredError, StaleBrokerEpochError: The sender is not a registered incarnation.
        """
        self._brokers.incarnation_or_raise(request.broker_id, request.broker_epoch)
        elections = self._replication.changes_after_reports(request.broker_id, request.broker_epoch, request.replicas)
        made = self._made(elections.changes, elections.count)
        if isinstance(made, Iterator):
            return LongResult(made, lambda _end_offset: ReportReplicasResponse())
        return Result(made, ReportReplicasResponse())


def _state(registration: BrokerRegistration) -> BrokerState:
    if registration.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if registration.in_controlled_shutdown else BrokerState.UNFENCED
