"""What the metadata log says about one broker and about one partition: the values that image and controller share.

The rule how a change record alters a partition stands here once (`PartitionRegistration.merge`), so that the
controller that writes a change and the broker that replays it cannot come to different epochs.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import astuple, replace

from replog.errors import InvariantViolationError
from replog.metadata.records import (
    NO_LEADER,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    LeaderRecoveryState,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

_T = TypeVar("_T")


class BrokerRegistration(RegisterBrokerRecord, frozen=True, gc=False):
    """One incarnation of a broker, as it was registered and as changes have made it.

    `broker_epoch` is the metadata offset at which the incarnation was registered: unique, and higher for a later one.
    """

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        """Returns the registration as `record` states it."""
        return cls(*astuple(record))

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in an ISR: neither fenced nor shutting down."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Returns where the broker serves the clients of one listener; None: nowhere that the metadata know."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)

    def merge(self, change: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        """Returns the registration after `change`.

        Raises:
            InvariantViolationError: The change belongs to another incarnation.
        """
        if change.broker_epoch != self.broker_epoch:
            raise InvariantViolationError(
                f"change of broker {self.broker_id} is for epoch {change.broker_epoch}, registered is {self.broker_epoch}"
            )
        return replace(
            self,
            fenced=_changed(self.fenced, change.fenced),
            in_controlled_shutdown=_changed(self.in_controlled_shutdown, change.in_controlled_shutdown),
            endpoints=_changed(self.endpoints, change.endpoints),
        )


class PartitionRegistration(Struct, frozen=True, gc=False):
    """The state of one partition (docs/KAFKA.md 4.4, 4.10).

    Attributes:
        replicas: The assigned brokers, the preferred leader first.
        isr: The in-sync replicas; may be empty.
        elr: The eligible leader replicas: out of the ISR, but known to hold all that is committed. Disjoint from `isr`.
        last_known_elr: The members of ISR or ELR that restarted uncleanly since the ISR was last proven.
        leader: The leader's broker id, or -1.
        leader_epoch: The leader epoch, raised whenever a leader is set, also to -1 and to the same broker.
        partition_epoch: The partition epoch, raised by every change.
        adding_replicas: The part of `replicas` that a reassignment brings in; empty outside of one.
        removing_replicas: The part of `replicas` that goes once all others have caught up; empty outside of a
            reassignment.  A replica that was added for a target that has since been replaced is in both.
        forked_topic_id: The topic whose records this partition began with (`replog.log.directories.fork`); None: it began empty.
        forked_end_offset: The end (exclusive) of those records; 0 where it began empty.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    forked_topic_id: UUID | None = None
    forked_end_offset: int = 0

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        """Returns the partition as `record` states it."""
        return cls(*astuple(record)[2:])  # all but its place

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being moved."""
        return bool(self.adding_replicas or self.removing_replicas)

    def counts_on(self, broker_id: int) -> bool:
        """Whether a broker's replica may lead as one that has all that is committed."""
        return broker_id in self.isr or broker_id in self.elr

    @property
    def awaits_reports(self) -> bool:
        """Whether only a `recovered` election can give this partition a leader: nobody is left in ISR or ELR."""
        return self.leader == NO_LEADER and not self.isr and not self.elr and bool(self.last_known_elr)

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """Returns the partition after `change`: leader epoch +1 iff the leader is set, partition epoch +1 always."""
        return PartitionRegistration(
            replicas=_changed(self.replicas, change.replicas),
            isr=_changed(self.isr, change.isr),
            leader=_changed(self.leader, change.leader),
            leader_epoch=self.leader_epoch + (change.leader is not None),
            partition_epoch=self.partition_epoch + 1,
            elr=_changed(self.elr, change.elr),
            last_known_elr=_changed(self.last_known_elr, change.last_known_elr),
            leader_recovery_state=_changed(self.leader_recovery_state, change.leader_recovery_state),
            adding_replicas=_changed(self.adding_replicas, change.adding_replicas),
            removing_replicas=_changed(self.removing_replicas, change.removing_replicas),
            forked_topic_id=self.forked_topic_id,
            forked_end_offset=self.forked_end_offset,
        )


def _changed(current: _T, new: _T | None) -> _T:
    return current if new is None else new
