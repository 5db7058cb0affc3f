"""The transactional ids of a shard, as the log says them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.transactions.messages import TransactionLogKey
from replog.coordinator.transactions.packed import Glance, glance_at, read_key, unpack
from replog.coordinator.transactions.records import (
    TAGGED_VERSION,
    TRANSACTION_RECORDS,
    TransactionStatus,
    WrittenTransaction,
)
from replog.errors import InvalidRecordError
from replog_timeline import SnapshotRegistry, TimelineHashMap

IS_DECIDED: Final = -1
"""Stands for the deadline of a transaction that is being ended."""
NEVER_MS: Final = 2**63 - 1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of transactions that only their producers end: those that are prepared, and in a log that Kafka wrote others (KIP-939)."""


class TransactionState:
    """Transactional ids, each as the bytes of its newest record.

    Args:
        registry: The registry that can take changes back.
        heard: The function that hears of each transactional id that a record names, and what the record says; None: it is gone.

    Invariants:
        - `_deadlines` has exactly the transactional ids whose transaction is open or being ended.
    """

    def __init__(self, registry: SnapshotRegistry, heard: Callable[[str, Glance | None], None]) -> None:
        self._packed = TimelineHashMap[str, bytes](registry)
        self._deadlines = TimelineHashMap[str, int](registry)
        self._heard = heard

    def __len__(self) -> int:
        return len(self._packed)

    def ids(self) -> Collection[str]:
        """Returns all transactional ids."""
        return self._packed.keys()

    def deadlines(self) -> Mapping[str, int]:
        """Returns the wall times up to which transactions may be open; `IS_DECIDED` for those that are being ended."""
        return self._deadlines

    def find(self, transactional_id: str) -> WrittenTransaction | None:
        """Returns what the log says of a transactional id; None where there is none."""
        packed = self._packed.get(transactional_id)
        return None if packed is None else unpack(packed)

    def glance(self, transactional_id: str) -> Glance | None:
        """Returns a little of what the log says of a transactional id, for callers that look at a great many."""
        packed = self._packed.get(transactional_id)
        return None if packed is None else glance_at(packed)

    def size_bytes(self, transactional_id: str) -> int:
        """Returns how long the newest record of a transactional id is, about."""
        return len(self._packed.get(transactional_id, b"")) + len(transactional_id)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replay_encoded(self, key: bytes, value: bytes | None) -> bool:
        """Keeps a transactional id as it stands in the log, or forgets it.

        Returns:
            Whether it has; False: nothing has changed, since the record is of another shape, or damaged.
        """
        transactional_id = read_key(key)
        if transactional_id is None:
            return False
        if value is None:
            self._forget(transactional_id)
            return True
        glance = glance_at(value)
        if glance is None:
            return False
        self._keep(transactional_id, value, glance)
        return True

    def replay(self, record: CoordinatorRecord) -> None:
        """Keeps a transactional id, or forgets it.

        Raises:
            InvalidRecordError: Its transaction is in a status that no log has.
        """
        key, value = record.key, record.value
        if not isinstance(key, TransactionLogKey):
            raise InvalidRecordError(f"{key!r} is no key of this topic")
        if value is None:
            self._forget(key.transactional_id)
            return
        _, packed = TRANSACTION_RECORDS.encode(CoordinatorRecord(key, value, TAGGED_VERSION))
        glance = None if packed is None else glance_at(packed)
        if packed is None or glance is None:
            raise InvalidRecordError(f"transactional id {key.transactional_id!r} is written as {value!r}")
        self._keep(key.transactional_id, packed, glance)

    def _keep(self, transactional_id: str, packed: bytes, glance: Glance) -> None:
        self._packed[transactional_id] = packed
        if glance.status is TransactionStatus.ONGOING:
            is_bounded = glance.timeout_ms != NO_TIMEOUT_MS
            self._deadlines[transactional_id] = max(glance.start_ms + glance.timeout_ms, 0) if is_bounded else NEVER_MS
        elif glance.status.is_decided:
            self._deadlines[transactional_id] = IS_DECIDED
        elif transactional_id in self._deadlines:
            del self._deadlines[transactional_id]
        self._heard(transactional_id, glance)

    def _forget(self, transactional_id: str) -> None:
        self._packed.pop(transactional_id, None)
        self._deadlines.pop(transactional_id, None)
        self._heard(transactional_id, None)
