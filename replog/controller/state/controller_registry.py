"""The controllers of the cluster and what they can work with, as the metadata log says it."""

from __future__ import annotations

from collections.abc import Mapping

from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.metadata.records import RegisterControllerRecord
from replog.metadata.registrations import ControllerRegistration
from replog_timeline import SnapshotRegistry, TimelineHashMap


class ControllerRegistry:
    """The newest incarnation of each controller, changed by `replay` only."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.registrations: TimelineHashMap[int, ControllerRegistration] = TimelineHashMap(registry)

    def all(self) -> list[ControllerRegistration]:
        """Returns every registration, by controller id."""
        return sorted(self.registrations.values(), key=lambda registration: registration.controller_id)

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict([on_record(RegisterControllerRecord, self.replay)])

    def replay(self, record: RegisterControllerRecord) -> None:
        """Registers a controller, or a new incarnation of it."""
        self.registrations[record.controller_id] = ControllerRegistration.from_record(record)
