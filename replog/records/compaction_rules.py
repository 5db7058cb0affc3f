"""The words of compaction: what a pass is told, and what it tells.

They stand apart because both implementations, the compiled one and its pure-Python twin, need the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, field

from replog.errors import ConfigError

SLOT_BYTES: Final = 24
"""Of one entry of an `OffsetMap`: 16 bytes of key hash, 8 of offset."""

_SEED_BYTES: Final = 16


class TransactionFilter(Protocol):
    """What is known of the transactions in the log; asked once for each batch that belongs to one, in log order."""

    def drops_data(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional data batch was aborted."""
        ...

    def drops_marker(self, batch: bytes) -> bool:
        """Whether a control batch is no longer needed, because nothing of what it decides is left."""
        ...


class RewriteRules(Struct, frozen=True):
    """One pass over one log.

    Attributes:
        clean_end_offset: The offset below which the map covers everything; records from here on are kept.
        now_ms: The wall time of the pass.
        delete_retention_ms: The time that a tombstone or a marker is kept after the first pass that met it.
        last_data_offsets: The last offset of the last data batch of each active producer; these batches are kept, empty
            if need be.
        marker_epochs: Producer id -> epoch, for active producers whose last word was a transaction marker.
    """

    clean_end_offset: int
    now_ms: int
    delete_retention_ms: int
    last_data_offsets: frozenset[int] = frozenset()
    marker_epochs: Mapping[int, int] = field(default_factory=dict[int, int])


class FillProgress(NamedTuple):
    """What `fill_offset_map` took in.

    Attributes:
        size_bytes: The size of the whole batches that were read.
        records_count: The number of records in them that were looked at.
        end_offset: The offset below which everything is in the map; -1 when no batch was read.
        is_full: Whether a record did not fit; `end_offset` is its offset.
    """

    size_bytes: int
    records_count: int
    end_offset: int
    is_full: bool


class Rewritten(NamedTuple):
    """What `rewrite_batches` made of a buffer.

    Attributes:
        data: The batches to store, one after the other.
        batches: (size in bytes, last offset, max timestamp) of each.
        size_bytes: The size of the whole batches that were read.
        records_read: The number of records in them.
        records_kept: The number of records in `data`.
    """

    data: bytes
    batches: list[tuple[int, int, int]]
    size_bytes: int
    records_read: int
    records_kept: int


def map_room(size_bytes: int, load_factor: float) -> tuple[int, int]:
    """Returns (slots, entries that may be used) of a map; at least one slot stays free, which ends every search."""
    slots = size_bytes // SLOT_BYTES
    capacity = min(int(slots * load_factor), slots - 1)
    if capacity < 1:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            size_bytes,
            f"log.cleaner.dedupe.buffer.size of {size_bytes} bytes holds no key at a load factor of {load_factor}: each "
            f"key takes {SLOT_BYTES} bytes; the default is 134217728",
        )
    return slots, capacity


def checked_seed(seed: bytes) -> bytes:
    """Returns the seed, when it has the right length; raises ValueError if not."""
    if len(seed) != _SEED_BYTES:
        raise ValueError(f"a seed has {_SEED_BYTES} bytes, not {len(seed)}")
    return bytes(seed)
