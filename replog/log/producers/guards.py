"""Questions to coordinators whether batches belong to a transaction, from when one is asked to the first batch (KIP-890).

Why: a batch that comes late, behind the marker that ended its transaction, would open one that nobody ends, and readers of
committed records would wait before it for ever.  So the leader asks the coordinator before the first batch of each transaction.  A
marker may be written between the answer and the append; then the guard that the question began with is gone, and the batch is
refused.
"""

from __future__ import annotations

from typing import Final

from replog.records import BatchHeader

GUARDS_MAX: Final = 10_000
"""Guards of one log; the oldest goes where there would be more, and its batches are refused.  Clients choose producer ids."""


class TransactionGuard:
    """A question that has been asked for one producer, and whose batches are not in the log yet.

    Attributes:
        producer_epoch: The epoch of the batches that it is about.
        lowest_sequence: The first sequence among them: nothing behind it may be appended before it.
        bumps_epochs: Whether the producer gets another epoch with each transaction (`transaction.version` 2).
        begun_ms: The wall time at which it was asked first.
    """

    __slots__ = ("begun_ms", "bumps_epochs", "lowest_sequence", "producer_epoch")

    def __init__(self, header: BatchHeader, *, bumps_epochs: bool, now_ms: int) -> None:
        self.producer_epoch = header.producer_epoch
        self.lowest_sequence = header.base_sequence
        self.bumps_epochs = bumps_epochs
        self.begun_ms = now_ms


class TransactionGuards:
    """The guards of one log, by producer id; none after a restart, since batches that waited are gone with it."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, TransactionGuard] = {}

    def __bool__(self) -> bool:
        return bool(self._guards)

    def get(self, producer_id: int) -> TransactionGuard | None:
        """Returns the guard of a producer; None: nothing is asked, or a marker or a batch came since."""
        return self._guards.get(producer_id)

    def begin(self, header: BatchHeader, *, bumps_epochs: bool, now_ms: int) -> TransactionGuard:
        """Returns the guard for a batch: a new one, or that of earlier batches of the same producer and epoch."""
        guard = self._guards.get(header.producer_id)
        if guard is None or header.producer_epoch > guard.producer_epoch:
            self._guards.pop(header.producer_id, None)
            guard = self._guards[header.producer_id] = TransactionGuard(
                header, bumps_epochs=bumps_epochs, now_ms=now_ms
            )
            if len(self._guards) > GUARDS_MAX:
                del self._guards[next(iter(self._guards))]
        elif header.producer_epoch == guard.producer_epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, header.base_sequence)
        return guard

    def drop(self, producer_id: int) -> None:
        """Forgets the guard of a producer: its transaction has a batch in the log, or can have none."""
        self._guards.pop(producer_id, None)

    def note_marker(self, producer_id: int, producer_epoch: int) -> None:
        """Forgets the guard of a producer whose transaction ends, unless the guard is for the next transaction.

        With epochs that are bumped, a marker has the epoch of the transaction behind it.
        """
        guard = self._guards.get(producer_id)
        if guard is not None and not (guard.bumps_epochs and guard.producer_epoch == producer_epoch):
            del self._guards[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets guards whose batches have not come for `expiration_ms`."""
        for producer_id, guard in list(self._guards.items()):
            if now_ms - guard.begun_ms >= expiration_ms:
                del self._guards[producer_id]

    def clear(self) -> None:
        """Forgets all."""
        self._guards.clear()
