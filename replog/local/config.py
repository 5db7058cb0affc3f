"""Settings of a local log.

Why not `LogConfig`: that one speaks for a replica under a broker, with Kafka's defaults (seven days of retention).  Who opens
a log in a folder expects that nothing is deleted unless they asked for it, and that an append that returned is on the disk.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from replog.errors import ConfigError
from replog.errors.choices import require_choice
from replog.log import LogConfig
from replog.log.config import UNLIMITED
from replog.records import Codec, CodecName

FlushPolicy: TypeAlias = Literal["always", "os"]

_DAY_MS: Final = 24 * 60 * 60 * 1000
_SEGMENT_MS: Final = 7 * _DAY_MS
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_RANGES: Final = {
    "flush_interval_ms": (0, _DAY_MS),
    "segment_bytes": (1024, _INT32_MAX),
    "segment_ms": (1, _INT64_MAX),
    "max_batch_bytes": (512, 1 << 30),
    "retention_ms": (1, _INT64_MAX),
    "retention_bytes": (1, _INT64_MAX),
    "maintenance_interval_ms": (0, _DAY_MS),
    "dirty_window_bytes": (0, 1 << 40),
}
_MAY_BE_NONE: Final = ("segment_ms", "retention_ms", "retention_bytes")


class LocalLogConfig(Struct, frozen=True):
    """Settings of one local log; `replog.open_log` takes the same names as keywords.

    Raises:
        ConfigError: A value is out of range, or of the wrong type.
    """

    flush: FlushPolicy = "always"
    """When an append counts.  "always": after an fsync, which waiting threads and tasks share; it survives a power cut.
    "os": once the operating system has it; it survives the end of this process by whatever means (kill -9), and a power cut
    takes at most the last `flush_interval_ms`."""

    flush_interval_ms: int = 1_000
    """With flush="os": how often the maintenance thread makes everything durable, ms, 0 to 86,400,000; 0 = only sealed
    segments.  Small: less is lost in a power cut, more fsyncs.  Without meaning for flush="always"."""

    codec: Codec = Codec.NONE
    """Compression of new batches.  Pays when many records share a batch (`append_many`, many tasks); a single record rarely
    gets smaller."""

    segment_bytes: int = 1 << 30
    """Size at which a new segment file begins, bytes, 1,024 to 2^31 - 1.  Only whole sealed segments are deleted: small =
    finer retention and truncation, more files."""

    segment_ms: int | None = None
    """Age by record timestamps at which an append begins a new segment, ms, from 1; None = seven days, or a quarter of
    `retention_ms` where that is less."""

    max_batch_bytes: int = 1_048_588
    """Largest batch, bytes before compression, 512 to 2^30; never more than half of `segment_bytes`.  A record must fit into
    one; an `append_many` that fits is all or nothing.  Kafka's limit for a batch is the same by default."""

    retention_ms: int | None = None
    """Segments whose newest record is older than this are deleted, ms, from 1; None = never.  A log that is not appended to
    loses its last records, too: behind the newest segment an empty one begins, and offsets go on."""

    retention_bytes: int | None = None
    """The oldest segments are deleted while the rest is at least this large, bytes, from 1; None = no limit."""

    maintenance_interval_ms: int = 1_000
    """How often the maintenance thread looks for something to do, ms, 0 to 86,400,000.  0 = no thread: call
    `LocalLog.maintain` yourself, or nothing is ever deleted by retention, and flush="os" fsyncs only where you call
    `LocalLog.flush`."""

    dirty_window_bytes: int = 0
    """Bytes appended after which they are written back in the background and their pages used again, 0 to 2^40; 0 = the
    kernel decides.  8 MiB suits bulk loads with flush="os": a steady stream instead of bursts; what was written some time ago
    is then read from the disk, not from memory."""

    def __post_init__(self) -> None:
        require_choice("flush", self.flush, get_args(FlushPolicy))
        require_choice("codec", self.codec, tuple(Codec))
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            if type(value) is not int or not low <= value <= high:
                or_none = " or None" if name in _MAY_BE_NONE else ""
                reason = f"{name} is {value!r}; it must be an integer from {low} to {high}{or_none}"
                raise ConfigError(name, value, reason)

    @property
    def batch_bytes(self) -> int:
        """Largest batch in force.  Half a segment, because compressing the incompressible makes a batch larger."""
        return min(self.max_batch_bytes, self.segment_bytes // 2)

    def log_config(self) -> LogConfig:
        """Returns the settings as the storage engine takes them."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self._segment_ms(),
            max_message_bytes=max(self.batch_bytes, 61),
            retention_ms=UNLIMITED if self.retention_ms is None else self.retention_ms,
            retention_bytes=UNLIMITED if self.retention_bytes is None else self.retention_bytes,
            dirty_window_bytes=self.dirty_window_bytes,
            file_delete_delay_ms=0,  # readers hold the mutex while they open files: nobody is between finding and opening
        )

    def _segment_ms(self) -> int:
        if self.segment_ms is not None:
            return self.segment_ms
        return _SEGMENT_MS if self.retention_ms is None else max(1, min(_SEGMENT_MS, self.retention_ms // 4))


def codec_named(codec: CodecName | Codec) -> Codec:
    """Returns the codec of that name.

    Raises:
        ConfigError: There is none.
    """
    if isinstance(codec, Codec):
        return codec
    require_choice("codec", codec, [known.name.lower() for known in Codec])
    return Codec[codec.upper()]
