"""Tells readers that share the work of a partition where to cut it."""

from __future__ import annotations

from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_reader import FetchReader
from replog.broker.requests.refusals import Refusal, refused, refused_by
from replog.errors import ErrorCode, OffsetOutOfRangeError, StorageError
from replog.rpc.messages import Cut, FindCutsPartition, FindCutsRequest, FindCutsResponse, FindCutsResult
from replog.rpc.request_limits import check_partitions

CUTS_MAX = 10_000
"""The most cuts of one answer: about 150 KB."""


class CutFinder:
    """Answers `FindCutsRequest`; must be used on the driver.

    Args:
        stepper: The stepper of this broker's replicas.
        reader: The reader that says whether this broker leads a partition.
    """

    def __init__(self, stepper: ReplicaStepper, reader: FetchReader) -> None:
        self._stepper = stepper
        self._reader = reader

    def find(self, request: FindCutsRequest) -> FindCutsResponse:
        """Returns the cuts of each partition that this broker leads.

        Raises:
            MalformedFrameError: There are more partitions than one request may name.
        """
        check_partitions(len(request.partitions))
        cuts_max = max(1, CUTS_MAX // max(1, len(request.partitions)))
        return FindCutsResponse(tuple(self._find(each, request.target_bytes, cuts_max) for each in request.partitions))

    def _find(self, partition: FindCutsPartition, target_bytes: int, cuts_max: int) -> FindCutsResult:
        led = self._reader.leader_for(partition)
        if isinstance(led, Refusal):
            return refused(FindCutsResult, partition, led)
        replica, leader = led
        start_offset, end_offset = partition.start_offset, partition.end_offset
        if not replica.log.log_start_offset <= start_offset <= end_offset <= leader.high_watermark:
            text = f"[{start_offset}, {end_offset}) is not in [{replica.log.log_start_offset}, {leader.high_watermark})"
            return refused(FindCutsResult, partition, refused_by(replica, ErrorCode.OFFSET_OUT_OF_RANGE, text))
        try:
            found = replica.log.find_cuts(start_offset, end_offset, target_bytes=target_bytes, cuts_max=cuts_max)
        except OffsetOutOfRangeError as error:
            return refused(FindCutsResult, partition, refused_by(replica, error.code, str(error)))
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)
            return refused(FindCutsResult, partition, self._reader.not_leader(partition))
        return FindCutsResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE,
            cuts=tuple(Cut(cut.offset, cut.size_bytes) for cut in found),
            leader_epoch=leader.leader_epoch,
            leader_id=self._node_id,
        )

    @property
    def _node_id(self) -> int:
        return self._stepper.config.node_id
