"""Where the batches of a range stand in a replica's files, for a process on the same machine.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from replog.waiting.asks import Asks

STILL_WRITTEN = -1
"""In place of a time of modification: the file is the active segment's, and grows."""


class LocateSegmentsRequest(Asks["LocateSegmentsResponse"], frozen=True):
    """Asks a leader or a replica in sync for the files that hold offsets [start, end) of a partition.

    Attributes:
        leader_epoch: The leader epoch that the caller knows; -1: any.
        boot_id: The caller's `replog.host.host_identity.boot_id`: paths are told to processes of the same machine only.
    """

    topic_id: UUID
    partition_id: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    boot_id: str


class SegmentSpan(Struct, frozen=True):
    """Whole batches in one file.

    Attributes:
        path: The absolute path, of the moment.
        position: The byte at which they begin.
        end_position: The byte behind them, exclusive.
        base_offset: The base offset of the first batch where `position` is not 0, else of the segment.
        end_offset: The end of what was asked for that can be in this file, exclusive.
        device: The device number of the file, by which it is known again together with the two below.
        inode: The inode number of the file.
        modified_ns: The time of its last change; STILL_WRITTEN: it grows.
    """

    path: str
    position: int
    end_position: int
    base_offset: int
    end_offset: int
    device: int
    inode: int
    modified_ns: int


class LocateSegmentsResponse(Struct, frozen=True):
    """The spans, in order.

    Attributes:
        spans: The spans; what follows the last one is asked for again, for their number is bounded.  None: nothing of the
            range is committed as far as this replica knows.
        leader_epoch: The leader epoch of the replica: no batch in the spans has a higher one.
        refusal: Why nothing is told to this caller; "": it is.
        is_complete: Whether no offset from the start of the range on may be missing from the spans.
    """

    spans: tuple[SegmentSpan, ...]
    leader_epoch: int
    refusal: str
    is_complete: bool = False
