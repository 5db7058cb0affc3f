"""Everything the metadata log determines, and the one way to change it: `replay`.

Active controller and standbys hold the same state at the same offset, whoever made the records; `state_hash` is how
that is checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import chain

from msgspec.structs import astuple

from replog.controller.config import ControllerConfig
from replog.controller.events.offset_control import OffsetControl
from replog.controller.requests import AllocateProducerIds, AllocateProducerIdsResponse, Result
from replog.controller.state.acls import AclControl
from replog.controller.state.broker_registry import BrokerRegistry, ControllerRegistry
from replog.controller.state.configuration import ConfigurationControl
from replog.controller.state.delegation_tokens import DelegationTokenControl
from replog.controller.state.features import FeatureControl
from replog.controller.state.quotas import QuotaControl
from replog.controller.state.record_handlers import RecordHandler, on_record
from replog.controller.state.replication import ReplicationState
from replog.controller.state.users import UserControl
from replog.errors import InvariantViolationError
from replog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    NoOpRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
)
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


class ControllerState:
    """The managers that hold state, over one timeline."""

    def __init__(self, registry: SnapshotRegistry, config: ControllerConfig) -> None:
        self.offsets = OffsetControl(
            registry,
            config.max_records_per_batch,
            config.max_bytes_per_batch,
            max_records_per_step=config.max_records_per_step,
            knows_transactions=lambda: self.features.knows_transactions,
        )
        self.brokers = BrokerRegistry(registry)
        self.controllers = ControllerRegistry(registry)
        self.configs = ConfigurationControl(registry, config.static_configs)
        self.features = FeatureControl(registry, self.brokers, self.controllers)
        self.acls = AclControl(registry, config, self.features)
        self.users = UserControl(registry, self.features)
        self.delegation_tokens = DelegationTokenControl(registry, config, self.features)
        self.producer_ids = ProducerIdControl(registry, self.brokers, config.producer_id_block_size)
        self.quotas = QuotaControl(registry, self.features)
        self.replication = ReplicationState(registry)
        managers: tuple[Mapping[type, RecordHandler], ...] = (
            self.brokers.record_handlers(),
            self.controllers.record_handlers(),
            self.configs.record_handlers(),
            self.features.record_handlers(),
            self.acls.record_handlers(),
            self.users.record_handlers(),
            self.delegation_tokens.record_handlers(),
            self.producer_ids.record_handlers(),
            self.quotas.record_handlers(),
            self.replication.record_handlers(),
            dict((on_record(RemoveTopicRecord, self._replay_remove_topic), on_record(NoOpRecord, lambda _: None))),
        )
        self._handlers = dict(chain.from_iterable(manager.items() for manager in managers))

    def replay(self, record: MetadataRecord, offset: int) -> None:
        """Takes in the record that stands at `offset` of the metadata log.

        Raises:
            InvariantViolationError: The record contradicts the state; the log is not what it must be.
        """
        handler = self._handlers.get(type(record))
        try:
            if handler is not None:
                handler(record)
            else:
                self._replay_mark(record, offset)
        except InvariantViolationError:
            raise
        except Exception as bug:
            raise InvariantViolationError(
                f"the record at offset {offset} of the metadata log cannot be replayed: {record!r}: {bug!r}"
            ) from bug

    def _replay_mark(self, record: MetadataRecord, offset: int) -> None:
        match record:
            case BeginTransactionRecord():
                self.offsets.replay_begin(offset)
            case EndTransactionRecord():
                self.offsets.replay_end(offset)
            case AbortTransactionRecord():
                self.offsets.replay_abort(offset)
            case _:
                raise InvariantViolationError(f"nobody replays {type(record).__name__}")

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        self.configs.replay_remove_topic(self.replication.replay_remove_topic(record))

    def state_hash(self, end_offset: int | None) -> str:
        """Returns the SHA-256 of the state after everything below `end_offset`, where a batch must end.

        With None it is that of the newest state.

        Costs a walk over the whole state: for checks, not for every step.

        Raises:
            replog_timeline.TimelineError: There is no timeline snapshot at `end_offset`.
        """
        replication = self.replication
        configs = {key: sorted(values.items()) for key, values in self.configs.values.items(epoch=end_offset)}
        quotas = {key: sorted(values.items()) for key, values in self.quotas.quotas.items(epoch=end_offset)}
        users = {
            user: astuple(kept) for user, kept in self.users.credentials.items(epoch=end_offset)
        }  # whole, not as shown
        tables: tuple[Iterable[tuple[object, object]], ...] = (
            replication.topics.items(epoch=end_offset),
            replication.topic_ids.items(epoch=end_offset),
            replication.partitions.items(epoch=end_offset),
            self.brokers.registrations.items(epoch=end_offset),
            enumerate(sorted(self.brokers.drained if end_offset is None else self.brokers.drained.at(end_offset))),
            self.controllers.registrations.items(epoch=end_offset),
            self.features.levels.items(epoch=end_offset),
            configs.items(),
            self.acls.entries.items(epoch=end_offset),
            quotas.items(),
            users.items(),
            self.delegation_tokens.tokens.items(epoch=end_offset),
            ((0, self.producer_ids.next_producer_id.get(epoch=end_offset)),),
        )
        digest = hashlib.sha256()
        for table in tables:
            digest.update(repr(sorted(f"{key!r}={value!r}" for key, value in table)).encode())
        return digest.hexdigest()
