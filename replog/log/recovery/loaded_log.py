"""The result of opening a log: the parts that a `Log` starts from, and a report for people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from replog.log.config import LogConfig
from replog.log.epoch_cache import LeaderEpochCache, write_epochs
from replog.log.file_closer import FileCloser
from replog.log.producers.state import ProducerStateManager
from replog.log.recovery.completeness import Completeness, start_complete
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import SegmentList
from replog_checkpoints import FileSystem


class RecoveryReport(Struct):
    """The findings and actions of opening a log.

    Attributes:
        clean: Whether the caller vouched for a clean stop.
        segments_scanned: Number of segments whose every byte was checked.
        bytes_scanned: Good bytes in the segments that were scanned.
        bytes_cut: Bytes cut from a torn tail, deleted segments included.
        segments_removed: Number of segments deleted because they lay behind the cut.
        epochs_rebuilt: Whether the leader-epoch checkpoint was missing or damaged, and was made again from the log.
    """

    clean: bool
    segments_scanned: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    segments_removed: int = 0
    epochs_rebuilt: bool = False


class LoadedLog(Struct):
    """Everything a `Log` starts from."""

    segments: SegmentList
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    closer: FileCloser
    complete: Completeness
    report: RecoveryReport
    created: bool
    flushed_file: FlushedOffsetFile


def new_log(
    fs: FileSystem, directory: str, config: LogConfig, epoch_starts: Sequence[tuple[int, int]], now_ms: int
) -> LoadedLog:
    """Makes an empty log in a partition folder that was just made; its files are durable once the folder is.

    Args:
        fs: The disk.
        directory: The partition folder.
        config: Settings of the log.
        epoch_starts: The (epoch, start offset) entries that its leader-epoch checkpoint is going to hold.
        now_ms: Wall time.
    """
    closer = FileCloser()
    start_complete(fs, directory)
    return LoadedLog(
        segments=SegmentList([LogSegment.create(fs, directory, 0, config, now_ms)], closer),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        epochs=LeaderEpochCache(epoch_starts, partial(write_epochs, fs, directory)),
        producers=ProducerStateManager(),
        closer=closer,
        complete=Completeness(fs, directory, 0),
        report=RecoveryReport(clean=True),
        created=True,
        flushed_file=FlushedOffsetFile(fs, directory),
    )
