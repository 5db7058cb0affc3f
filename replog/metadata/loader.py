"""Follows the metadata log on one node: committed batches and snapshots become images, images are published.

The rules of docs/KAFKA.md 6.7, without a clock, a thread or a loop: whoever hears of commits feeds them in and calls
`flush` once after each delivery, so that a hundred batches that arrive together are one change for the publishers.

    load_snapshot, load_batch, load_batch, flush -> one image, one delta, every publisher in its order

Publishing begins when the gate opens; then each publisher first gets everything, as a delta from the empty image.
Records of a transaction count for nothing before its end (`MetadataImage.open_transaction`).  What they come to is made
ready as they are loaded, so that the end of ten thousand is no longer step than any other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec.structs import replace

from replog.errors import InvariantViolationError
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)

Publisher: TypeAlias = Callable[[MetadataDelta, MetadataImage], None]
"""Called with what changed (`delta.image` is what it was told last) and the image after the changes."""

Gate: TypeAlias = Callable[[MetadataImage], bool]
"""Whether an image is recent enough to be shown to anybody; asked until it once says yes."""

FaultHandler: TypeAlias = Callable[[Publisher, Exception], None]

_TRANSACTION_MARKS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


class MetadataLoader:
    """The newest image, and who is told about it.

    Args:
        publishers: The publishers, in the order in which they are told.
        gate: The condition of publishing.  A broker's: the image holds this process's own registration, and has reached
            the high watermark.
        on_fault: The function that is told when a publisher raises; the others are told all the same.

    Invariants:
        - offsets only rise;
        - each publisher sees an unbroken chain of deltas, from the empty image on.
    """

    def __init__(self, publishers: Iterable[Publisher], gate: Gate, on_fault: FaultHandler) -> None:
        self.image = MetadataImage()
        """The newest image, published or not."""
        self._publishers = tuple(publishers)
        self._gate = gate
        self._on_fault = on_fault
        self._is_open = False
        self._delta: MetadataDelta | None = None
        self._ahead: MetadataDelta | None = None  # from the image to the end of the transaction that is open in it
        self._end_offset = 0
        self._epoch = -1

    @property
    def is_open(self) -> bool:
        """Whether images are published."""
        return self._is_open

    @property
    def end_offset(self) -> int:
        """Exclusive end of what was loaded, flushed or not."""
        return self._end_offset

    def load_batch(self, records: Iterable[MetadataRecord], *, end_offset: int, epoch: int) -> None:
        """Takes in a committed batch.

        Args:
            records: The records in order; none where the batch held only control records.
            end_offset: The exclusive end of the batch.
            epoch: The leader epoch of the batch.

        Raises:
            InvariantViolationError: The batch is not behind what was loaded, or contradicts it.  This node must stop.
        """
        if end_offset <= self._end_offset:
            raise InvariantViolationError(f"a batch up to {end_offset} comes after offset {self._end_offset}")
        delta = self._delta or MetadataDelta(self.image)
        for record in records:
            delta = self._loaded(delta, record)
        if self._ahead is not None:
            self._ahead.prepare()
        self._delta, self._end_offset, self._epoch = delta, end_offset, epoch

    def _loaded(self, delta: MetadataDelta, record: MetadataRecord) -> MetadataDelta:
        """Returns the changes since the image after one more record."""
        ahead = self._ahead
        if ahead is not None:
            match record:
                case EndTransactionRecord():
                    ahead.image, self._ahead = self.image, None
                    return ahead
                case AbortTransactionRecord():
                    self._ahead = None
                case BeginTransactionRecord():
                    pass  # refused below
                case _:
                    ahead.replay(record)
        delta.replay(record)
        return delta

    def _look_ahead(self) -> None:
        """Begins to make ready what the transaction comes to that is open in the image, if one is."""
        held = self.image.open_transaction
        if held is None or self._ahead is not None:
            return
        self._ahead = MetadataDelta(replace(self.image, open_transaction=None))
        for record in held:
            self._ahead.replay(record)

    def load_snapshot(self, records: Iterable[MetadataRecord], *, end_offset: int, epoch: int) -> None:
        """Takes in a whole snapshot: what it does not mention is gone.

        The next delta holds the difference only: a partition that is the same is not touched, a topic that was deleted
        below the snapshot is deleted here.

        Args:
            records: The records of the snapshot, in order.
            end_offset: The exclusive end of what it stands for.
            epoch: The leader epoch of the last record it stands for.

        Raises:
            InvariantViolationError: It is older than what was loaded, contradicts itself, or holds marks of a transaction,
                of which a controller would take nothing.  This node must stop.
        """
        if end_offset < self._end_offset:
            raise InvariantViolationError(f"a snapshot up to {end_offset} comes after offset {self._end_offset}")
        content = MetadataDelta(MetadataImage())
        for record in records:
            if isinstance(record, _TRANSACTION_MARKS):
                raise InvariantViolationError(f"the snapshot at {end_offset} holds marks of a transaction")
            content.replay(record)
        self._ahead = None
        is_first = self.image.end_offset == 0
        self._delta = content if is_first else MetadataDelta.between(self.image, content.apply(end_offset, epoch))
        self._end_offset, self._epoch = end_offset, epoch

    def flush(self) -> bool:
        """Makes the next image of what was loaded, and publishes it if the gate is open.

        Returns:
            Whether publishers were told anything.
        """
        delta, self._delta = self._delta, None
        if delta is not None:
            self.image = delta.apply(self._end_offset, self._epoch)
            self._look_ahead()
        if not self._is_open:
            if not self._gate(self.image):
                return False
            self._is_open = True
            if delta is None or delta.image.end_offset > 0:  # else it is everything already
                delta = MetadataDelta.between(MetadataImage(), self.image)
        if delta is None:
            return False
        for publisher in self._publishers:
            try:
                publisher(delta, self.image)
            except Exception as error:  # noqa: BLE001 -- whatever is wrong with one must not keep the change from the others
                self._on_fault(publisher, error)
        return bool(self._publishers)
