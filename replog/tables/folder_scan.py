"""A scan of partition folders, ours or Kafka's, without a broker: opened for reading only, no lock, not a byte changed."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from replog.client.ranges.bounds import Bounds
from replog.client.ranges.read_ahead import Stop
from replog.client.types import TopicPartition
from replog.errors import (
    BrokerClosedError,
    ConfigError,
    CorruptRecordError,
    InvalidRecordError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionError,
)
from replog.log.file_names import LOG_SUFFIX, parse_partition_dir_name
from replog.tables.log_source import LogSource
from replog.tables.places import ScanLimits, chosen_numbers, offsets_of, times_of
from replog_checkpoints import META_PROPERTIES_FILE

if TYPE_CHECKING:
    import pyarrow as pa

_NO_EPOCH: Final = -1


class _Slice(Struct, frozen=True):
    """The offsets [start_offset, end_offset) of one partition folder."""

    partition: TopicPartition
    directory: Path
    start_offset: int
    end_offset: int


class FolderScan:
    """What one scan reads of the partition folders of one topic.

    A folder ends at the high watermark that its checkpoint tells, and before the first transaction that is not decided; where no
    checkpoint tells one (a partition folder that was copied alone), at its last whole batch.

    Args:
        folder: A log directory, or one partition folder.
        topic: The name of the topic; None: the only one that is there.
        partitions: The partitions; none: all that are there.
        limits: Where each begins and ends.

    Raises:
        ConfigError: The folder holds no partition folders, or those of several topics and none is named.
        UnknownTopicOrPartitionError: There is no such topic or partition.
        OffsetOutOfRangeError: The limits lie outside of the log.
        CorruptRecordError: Flushed bytes at the end are damaged or gone.
        StorageError: The disk cannot read.
    """

    def __init__(self, folder: Path, topic: str | None, partitions: Collection[int], limits: ScanLimits) -> None:
        found = _of_topic(folder, partition_folders(folder), topic)
        name = next(iter(found)).topic
        numbers = chosen_numbers(f"{name} in {folder}", partitions, [each.partition for each in found])
        chosen = [TopicPartition(name, number) for number in numbers]
        self._slices = [_pinned(each, found[each], limits) for each in chosen]

    @property
    def offsets_count(self) -> int:
        """The number of offsets that are read: of records, as far as compaction and transactions have left no gaps."""
        return sum(each.end_offset - each.start_offset for each in self._slices)

    def batches(self, columns: Sequence[str], stop: Stop) -> Generator[pa.RecordBatch, None, None]:
        """Reads the folders one after the other; runs in a thread of its own.

        Raises:
            OffsetOutOfRangeError: Records of the scan were deleted since it began.
            CorruptRecordError, InvalidRecordError, CorruptIndexError: The log is damaged; the text says where.
            StorageError: The disk cannot read.
        """
        for each in self._slices:
            if each.start_offset < each.end_offset:
                with closing(LogSource(each.directory, is_committed=True)) as source:
                    source.range_of(each.start_offset, each.end_offset)
                    for batch in _read(source, each, columns):
                        if stop.is_set:
                            raise BrokerClosedError(f"{each.directory} is not read any more")
                        yield batch


def partition_folders(folder: Path) -> dict[TopicPartition, Path]:
    """Returns the partition folder that this is, or those that are in it.

    Raises:
        ConfigError: It is none, and none are in it.
    """
    if not folder.is_dir():
        raise ConfigError("folder", str(folder), f"{folder} is no folder: name a log directory or a partition folder")
    if _holds_segments(folder):
        key = parse_partition_dir_name(folder.name)
        return {TopicPartition(folder.name, 0) if key is None else TopicPartition(*key): folder}
    found: dict[TopicPartition, Path] = {}
    for child in sorted(folder.iterdir()):
        key = parse_partition_dir_name(child.name)
        if key is not None and child.is_dir() and _holds_segments(child):
            found[TopicPartition(*key)] = child
    if not found:
        inner = sorted(path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{META_PROPERTIES_FILE}"))
        advice = f". Log directories are in it: name one, such as {inner[0]}" if inner else ""
        text = f"{folder} holds no partition folders, such as rides-0 with segments in it{advice}"
        raise ConfigError("folder", str(folder), text)
    return found


def _holds_segments(folder: Path) -> bool:
    return any(path.name.endswith(LOG_SUFFIX) for path in folder.iterdir())


def _of_topic(folder: Path, found: dict[TopicPartition, Path], topic: str | None) -> dict[TopicPartition, Path]:
    topics = sorted({each.topic for each in found})
    if topic is None and len(topics) > 1:
        names = ", ".join(topics[:5])
        raise ConfigError("topic", None, f"{folder} holds {len(topics)} topics: name one of them ({names} ...)")
    wanted = topics[0] if topic is None else topic
    if wanted not in topics:
        raise UnknownTopicOrPartitionError(f"{folder} holds no topic {wanted}; it holds {', '.join(topics[:5])}")
    return {each: path for each, path in found.items() if each.topic == wanted}


def _pinned(partition: TopicPartition, directory: Path, limits: ScanLimits) -> _Slice:
    with closing(LogSource(directory, is_committed=True)) as source:
        log_start_offset, end_offset = source.range_of(None, None)
        if source.high_watermark is not None:
            end_offset = min(end_offset, max(source.high_watermark, log_start_offset))
        first, last = [None if time is None else source.offset_at(time, end_offset) for time in times_of(limits)]
        bounds = Bounds(log_start_offset, end_offset, _NO_EPOCH)
        start, end = offsets_of(limits, partition, bounds, (first, last))
    return _Slice(partition, directory, start, end)


def _read(source: LogSource, wanted: _Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from replog.records.arrow.columns import ArrowColumns

    made = ArrowColumns(columns, wanted.partition)
    for run in source.runs(wanted.start_offset, wanted.end_offset):
        try:
            yield from made.bounded(run.data, start_offset=run.start_offset, end_offset=run.end_offset)
        except UnsupportedCompressionError:
            raise
        except (CorruptRecordError, InvalidRecordError) as error:
            raise source.found_in(run, error) from error
