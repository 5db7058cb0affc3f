"""A replica on its way into a log directory: opened and not part of it yet, or closed to be opened again."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from replog.errors import ReplogError
from replog.log.config import LogConfig
from replog.log.log import Log
from replog.log.segments.segment_list import LogFiles
from replog_checkpoints import TopicPartition


class LoadedReplica(Struct, frozen=True):
    """A replica that was opened, perhaps in another thread, and is not part of its directory yet.

    Attributes:
        key: (topic, partition).
        topic_id: The topic id that its partition folder carries; None: it has none.
        log: The open log; None where it cannot be opened.
        error: The error with which it cannot be opened; None: it is open.
    """

    key: TopicPartition
    topic_id: UUID | None
    log: Log | None
    error: ReplogError | None


class ClosedReplica(Struct, frozen=True):
    """The state of a replica when it was closed, to be opened again.

    Attributes:
        files: The segments that it consisted of.
        recovery_point: The offset below which everything is on stable storage.
        high_watermark: The high watermark, exclusive.
    """

    key: TopicPartition
    topic_id: UUID | None
    config: LogConfig
    files: LogFiles
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    first_dirty_offset: int
    high_watermark: int
