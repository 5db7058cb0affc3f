"""The brokers and controllers the cluster knows, and the brokers that an operator wants empty, as the metadata log says it."""

from __future__ import annotations

from collections.abc import Mapping

from replog.controller.partitions.placement import UsableBroker
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import BrokerIdNotRegisteredError, InvariantViolationError, StaleBrokerEpochError
from replog.metadata.records import (
    BrokerRegistrationChangeRecord,
    DrainBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from replog.metadata.registrations import BrokerRegistration
from replog_timeline import SnapshotRegistry, TimelineHashMap, TimelineHashSet, TimelineObject


class BrokerRegistry:
    """Registrations by broker id, changed by `replay_*` only.

    Attributes:
        registrations: The newest incarnation of each broker.
        drained: The brokers that shall be emptied, registered or not.
        changes_count: A number that grows with everything that is replayed about brokers.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.registrations: TimelineHashMap[int, BrokerRegistration] = TimelineHashMap(registry)
        self.drained: TimelineHashSet[int] = TimelineHashSet(registry)
        self.changes_count = 0
        self._usable: TimelineObject[tuple[UsableBroker, ...]] = TimelineObject(registry, ())

    def get(self, broker_id: int) -> BrokerRegistration | None:
        """Returns the registration of a broker; None when the broker is unknown."""
        return self.registrations.get(broker_id)

    def known_or_raise(self, broker_id: int) -> BrokerRegistration:
        """Returns the registration of a broker.

        Raises:
            BrokerIdNotRegisteredError: The broker is unknown.
        """
        registration = self.registrations.get(broker_id)
        if registration is None:
            raise BrokerIdNotRegisteredError(f"broker {broker_id} is not registered; it must register first")
        return registration

    def incarnation_or_raise(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """Returns the registration of exactly this incarnation.

        Raises:
            BrokerIdNotRegisteredError: The broker is unknown.
            StaleBrokerEpochError: Another incarnation is registered.
        """
        registration = self.known_or_raise(broker_id)
        if registration.broker_epoch != broker_epoch:
            raise StaleBrokerEpochError(
                f"broker {broker_id} is registered with epoch {registration.broker_epoch}, not {broker_epoch}; "
                "the incarnation that asks must register again"
            )
        return registration

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker may lead and be in an ISR."""
        registration = self.registrations.get(broker_id)
        return registration is not None and registration.is_active

    def active(self) -> frozenset[int]:
        """Returns the brokers that may lead and be in an ISR, for those who ask about many partitions."""
        return frozenset(broker_id for broker_id, broker in self.registrations.items() if broker.is_active)

    def is_drained(self, broker_id: int) -> bool:
        """Whether the broker shall be emptied."""
        return broker_id in self.drained

    def usable(self) -> tuple[UsableBroker, ...]:
        """Returns the brokers that new replicas may be placed on, by id.

        It is the same object until something about brokers changes.
        """
        return self._usable.get()

    def all(self) -> list[BrokerRegistration]:
        """Returns every registration, by broker id."""
        return sorted(self.registrations.values(), key=lambda registration: registration.broker_id)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict(
            (
                on_record(RegisterBrokerRecord, self.replay_register),
                on_record(UnregisterBrokerRecord, self.replay_unregister),
                on_record(BrokerRegistrationChangeRecord, self.replay_change),
                on_record(DrainBrokerRecord, self.replay_drain),
            )
        )

    def replay_register(self, record: RegisterBrokerRecord) -> None:
        """Registers a broker, or a new incarnation of it."""
        self.registrations[record.broker_id] = BrokerRegistration.from_record(record)
        self._find_usable()

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        """Forgets the broker.

        Raises:
            InvariantViolationError: This incarnation is not registered.
        """
        if self._registered(record.broker_id).broker_epoch != record.broker_epoch:
            raise InvariantViolationError(f"broker {record.broker_id} has no epoch {record.broker_epoch} to unregister")
        del self.registrations[record.broker_id]
        self._find_usable()

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Marks the broker as fenced, unfenced or shutting down.

        Raises:
            InvariantViolationError: This incarnation is not registered.
        """
        self.registrations[record.broker_id] = self._registered(record.broker_id).merge(record)
        self._find_usable()

    def replay_drain(self, record: DrainBrokerRecord) -> None:
        """Marks the broker as one that shall be emptied, or as one that may be used again."""
        if record.drained:
            self.drained.add(record.broker_id)
        else:
            self.drained.discard(record.broker_id)
        self._find_usable()

    def _registered(self, broker_id: int) -> BrokerRegistration:
        registration = self.registrations.get(broker_id)
        if registration is None:
            raise InvariantViolationError(f"broker {broker_id} is not registered")
        return registration

    def _find_usable(self) -> None:
        self.changes_count += 1
        usable = tuple(
            UsableBroker(broker.broker_id, broker.rack, broker.fenced)
            for broker in self.all()
            if not broker.in_controlled_shutdown and broker.broker_id not in self.drained
        )
        self._usable.set(usable)


class ControllerRegistry:
    """The newest incarnation of each controller, changed by `replay` only."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.registrations: TimelineHashMap[int, RegisterControllerRecord] = TimelineHashMap(registry)

    def all(self) -> list[RegisterControllerRecord]:
        """Returns every registration, by controller id."""
        return sorted(self.registrations.values(), key=lambda registration: registration.controller_id)

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict([on_record(RegisterControllerRecord, self.replay)])

    def replay(self, record: RegisterControllerRecord) -> None:
        """Registers a controller, or a new incarnation of it."""
        self.registrations[record.controller_id] = record
