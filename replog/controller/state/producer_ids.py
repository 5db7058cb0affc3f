"""Blocks of producer ids: each is handed out once, for ever (docs/KAFKA.md 6.3)."""

from __future__ import annotations

from collections.abc import Mapping

from replog.controller.requests import AllocateProducerIds, AllocateProducerIdsResponse
from replog.controller.result import Result
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.errors import InvariantViolationError
from replog.metadata.records import ProducerIdsRecord
from replog_timeline import SnapshotRegistry, TimelineLong


class ProducerIdControl:
    """The first id that nobody has."""

    def __init__(self, registry: SnapshotRegistry, brokers: BrokerRegistry, block_size: int) -> None:
        self._brokers = brokers
        self._block_size = block_size
        self.next_producer_id = TimelineLong(registry)

    def allocate(self, request: AllocateProducerIds) -> Result:
        """Gives the next block to this broker.

        Raises:
            BrokerIdNotRegisteredError, StaleBrokerEpochError: The sender is not a registered incarnation.
        """
        self._brokers.incarnation_or_raise(request.broker_id, request.broker_epoch)
        first = self.next_producer_id.get()
        record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first + self._block_size)
        return Result((record,), AllocateProducerIdsResponse(first, self._block_size))

    def record_handlers(self) -> Mapping[type, RecordHandler]:
        """Returns who replays which record (see `replog.controller.state.record_handlers`)."""
        return dict([on_record(ProducerIdsRecord, self.replay)])

    def replay(self, record: ProducerIdsRecord) -> None:
        """Takes the block out of what may be handed out.

        Raises:
            InvariantViolationError: Ids would be handed out again.
        """
        if record.next_producer_id < self.next_producer_id.get():
            raise InvariantViolationError(
                f"producer ids go back from {self.next_producer_id.get()} to {record.next_producer_id}"
            )
        self.next_producer_id.set(record.next_producer_id)
