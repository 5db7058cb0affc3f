"""The brokers the cluster knows, as the metadata log says it."""

from __future__ import annotations

from replog.errors import BrokerIdNotRegisteredError, InvariantViolationError, StaleBrokerEpochError
from replog.metadata.records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from replog.metadata.registrations import BrokerRegistration
from replog_timeline import SnapshotRegistry, TimelineHashMap


class BrokerRegistry:
    """Registrations by broker id, changed by `replay_*` only.

    Attributes:
        registrations: the newest incarnation of each broker.
        register_offsets: metadata offset of the record that registered it.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.registrations: TimelineHashMap[int, BrokerRegistration] = TimelineHashMap(registry)
        self.register_offsets: TimelineHashMap[int, int] = TimelineHashMap(registry)

    def get(self, broker_id: int) -> BrokerRegistration | None:
        """The registration, None when the broker is unknown."""
        return self.registrations.get(broker_id)

    def incarnation_or_raise(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """The registration of exactly this incarnation.

        Raises:
            BrokerIdNotRegisteredError: the broker is unknown.
            StaleBrokerEpochError: another incarnation is registered.
        """
        registration = self.registrations.get(broker_id)
        if registration is None:
            raise BrokerIdNotRegisteredError(f"broker {broker_id} is not registered; it must register first")
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

    def all(self) -> list[BrokerRegistration]:
        """Every registration, by broker id."""
        return sorted(self.registrations.values(), key=lambda registration: registration.broker_id)

    def replay_register(self, record: RegisterBrokerRecord, offset: int) -> None:
        """A broker, or a new incarnation of it, is known."""
        self.registrations[record.broker_id] = BrokerRegistration.from_record(record)
        self.register_offsets[record.broker_id] = offset

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        """The broker is forgotten.

        Raises:
            InvariantViolationError: this incarnation is not registered.
        """
        if self._known_or_raise(record.broker_id).broker_epoch != record.broker_epoch:
            raise InvariantViolationError(f"broker {record.broker_id} has no epoch {record.broker_epoch} to unregister")
        del self.registrations[record.broker_id]
        del self.register_offsets[record.broker_id]

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """The broker is fenced, unfenced or shutting down.

        Raises:
            InvariantViolationError: this incarnation is not registered.
        """
        self.registrations[record.broker_id] = self._known_or_raise(record.broker_id).merge(record)

    def _known_or_raise(self, broker_id: int) -> BrokerRegistration:
        registration = self.registrations.get(broker_id)
        if registration is None:
            raise InvariantViolationError(f"broker {broker_id} is not registered")
        return registration
