"""Who got which offset: the acknowledgements of one run, against which every reading of the topic is checked."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

NOBODY = -1


class Ledger:
    """Partition and offset of every acknowledged row.

    Invariants:
        - a row is acknowledged at most once (`acknowledge` is called once for each of its batches);
        - an offset that two acknowledgements name is remembered in `conflicts`: one of the two rows is lost.
    """

    def __init__(self) -> None:
        self.acknowledged = 0
        self.conflicts: list[tuple[int, int]] = []
        self._rows: dict[int, array[int]] = defaultdict(lambda: array("q"))

    def acknowledge(self, partition: int, base_offset: int, rows: Iterable[int]) -> None:
        """Notes that the rows stand at `base_offset` and the offsets after it."""
        held = self._rows[partition]
        for offset, row in enumerate(rows, start=base_offset):
            held.extend([NOBODY] * (offset + 1 - len(held)))
            if held[offset] != NOBODY:
                self.conflicts.append((partition, offset))
            held[offset] = row
            self.acknowledged += 1

    def row_at(self, partition: int, offset: int) -> int:
        """Returns the row that was acknowledged there, or `NOBODY`."""
        held = self._rows.get(partition)
        return held[offset] if held is not None and 0 <= offset < len(held) else NOBODY

    def offsets_count(self) -> int:
        """Counts the different offsets that were acknowledged."""
        return sum(len(rows) - rows.count(NOBODY) for rows in self._rows.values())


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What one reader saw.

    Attributes:
        read: The number of acknowledged rows that were read, each counted once.
        lost: The number of acknowledged rows that were not read.
        duplicated: The number of records beyond that: read twice, or at an offset that was never acknowledged.
        altered: The number of rows that were read with another key or value than was acknowledged.
    """

    read: int
    lost: int
    duplicated: int
    altered: int

    @property
    def is_exact(self) -> bool:
        """Whether every acknowledged row was read once, as it was."""
        return not (self.lost or self.duplicated or self.altered)


class ReadCheck:
    """Compares one reading of the topic with the ledger, record by record."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen: set[tuple[int, int]] = set()
        self._duplicated = 0
        self._altered = 0

    def expect(self, partition: int, offset: int) -> int:
        """Notes that a record was read there; returns the row it must be, or `NOBODY` where it counts as duplicated."""
        row = self._ledger.row_at(partition, offset)
        place = (partition, offset)
        if row == NOBODY or place in self._seen:
            self._duplicated += 1
            return NOBODY
        self._seen.add(place)
        return row

    def differs(self) -> None:
        """Counts the record just read as altered: it is not the row that was acknowledged."""
        self._altered += 1

    def result(self) -> ReadResult:
        read = len(self._seen)
        return ReadResult(read, self._ledger.acknowledged - read, self._duplicated, self._altered)
