"""Tells processes of the same machine where committed batches stand in files, so that they can read them without the broker.

The named batches lie below the high watermark, none of them belongs to a transaction that is open or was aborted, and they are in
the files already.  From the first batch of such a transaction on, a caller fetches.  The answer may be wrong a moment later: files are
renamed and removed by retention, compaction and moves, and cut after an unclean election.  So each file comes with its
identity, and the caller checks every batch, and fetches what does not fit.
"""

from __future__ import annotations

import os
from pathlib import Path

from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.consumer_reads import decided_end
from replog.broker.requests.fetch_reader import FetchReader
from replog.broker.requests.refusals import Refusal
from replog.errors import StorageError
from replog.errors.from_code import error_from_code
from replog.host.host_identity import boot_id
from replog.log import FileSpan
from replog.rpc.node_messages import STILL_WRITTEN, LocateSegmentsRequest, LocateSegmentsResponse, SegmentSpan

SPANS_MAX = 64
"""Files of one answer: each costs a system call on the broker's loop."""


class SegmentLocations:
    """Answers `LocateSegmentsRequest`; runs on the replica driver."""

    def __init__(self, stepper: ReplicaStepper, reader: FetchReader) -> None:
        self._stepper = stepper
        self._reader = reader

    def locate(self, request: LocateSegmentsRequest) -> LocateSegmentsResponse:
        """Returns where the committed batches of the range stand; no spans if nothing can be told of them.

        Raises:
            NotLeaderOrFollowerError, FencedLeaderEpochError, UnknownLeaderEpochError: Another replica must be asked.
            OffsetOutOfRangeError: The log does not have these offsets.
            StorageError: The replica cannot be read.
        """
        if not self._stepper.config.direct_reads_enable:
            return _refused("direct.reads.enable is false")
        if not request.boot_id or request.boot_id != boot_id():
            return _refused("the caller is on another machine")
        found = self._reader.in_sync_for(request)
        if isinstance(found, Refusal):
            raise error_from_code(
                found.error, found.message, leader_id=found.leader_id, leader_epoch=found.leader_epoch
            )
        replica, role = found
        try:
            end_offset = decided_end(replica, request.start_offset, request.end_offset)
            if end_offset <= request.start_offset:
                return LocateSegmentsResponse((), role.leader_epoch, "")
            located = replica.log.locate(request.start_offset, end_offset, spans_max=SPANS_MAX)
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)
            raise
        try:
            spans = tuple(map(_identified, located))
        except OSError:  # one has just got another name, or is being moved
            return LocateSegmentsResponse((), role.leader_epoch, "")
        complete_from = replica.log.complete_from
        is_complete = complete_from is not None and request.start_offset >= complete_from
        return LocateSegmentsResponse(spans, role.leader_epoch, "", is_complete)


def _identified(span: FileSpan) -> SegmentSpan:
    path = Path(span.path).absolute()
    status = os.stat(path)  # noqa: PTH116 -- one of sixty-four, on the loop
    return SegmentSpan(
        path=str(path),
        position=span.position,
        end_position=span.end_position,
        base_offset=span.base_offset,
        end_offset=span.end_offset,
        device=status.st_dev,
        inode=status.st_ino,
        modified_ns=status.st_mtime_ns if span.is_sealed else STILL_WRITTEN,
    )


def _refused(why: str) -> LocateSegmentsResponse:
    return LocateSegmentsResponse((), -1, why)
