"""Settings of compaction that belong to a broker, not to one log."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from replog.errors import ConfigError
from replog.records import DECOMPRESSED_BYTES_MAX

_MIB: Final = 1024 * 1024
_RANGES: Final = {
    "dedupe_buffer_bytes": (1024, 64 * 1024 * _MIB),
    "dedupe_buffer_load_factor": (0.1, 0.99),
    "io_buffer_bytes": (4096, 1024 * _MIB),
    "max_decompressed_bytes": (1, 2**31 - 1),
}


class CompactionSettings(Struct, frozen=True):
    """The settings of one pass.  Its memory is the two buffers, one batch, and its decompressed records.

    Raises:
        ConfigError: A value is out of range.
    """

    dedupe_buffer_bytes: int = 128 * _MIB
    """Room for the offset map, bytes, 1 KiB to 64 GiB; 24 bytes a key (`log.cleaner.dedupe.buffer.size`). Too small for
    the keys of the dirty part: several passes, each of which reads the log again."""

    dedupe_buffer_load_factor: float = 0.9
    """How full the map may get, 0.1 to 0.99 (`log.cleaner.io.buffer.load.factor`). Large: fewer passes, slower look-ups."""

    io_buffer_bytes: int = 512 * 1024
    """How much is read and worked on at once, bytes, 4 KiB to 1 GiB (`log.cleaner.io.buffer.size`). Large: other threads of
    the process wait longer for their turn."""

    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
    """A batch that decompresses to more is refused, bytes."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(name, value, f"{name} is {value}; it must be from {low} to {high}")
