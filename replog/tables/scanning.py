"""`replog.scan`: a topic, or folders with its logs, as a stream of Arrow batches with a beginning and an end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replog.client.ranges.read_ahead import Stop, read_ahead
from replog.errors import ConfigError
from replog.errors.choices import require_at_least
from replog.tables.folder_scan import FolderScan
from replog.tables.places import Bound, parse_limits
from replog.tables.topic_scan import TopicScan

if TYPE_CHECKING:
    import pyarrow as pa

    from replog.client.security.security import Security

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")


def scan(
    topic: str | None = None,
    *,
    bootstrap_servers: str | Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    start: Bound = "earliest",
    end: Bound = "latest",
    partitions: Collection[int] = (),
    columns: Sequence[str] = COLUMNS,
    told: Callable[[int, int], None] | None = None,
    timeout_ms: int | None = None,
    security: Security | None = None,
) -> pa.RecordBatchReader:
    """Returns what is committed in a topic now as Arrow batches: for pyarrow, pandas, DuckDB, Polars and whatever takes such a stream.

    What is read is fixed when this returns: later records are not in it.  Batches are made while the one before is worked on, and have
    8 MiB at most, unless one record is larger.  Partitions come one after the other, records of each in order of offset.

    Args:
        topic: The name of the topic; None: the only one in `folder`.
        bootstrap_servers: The brokers to ask first, ours or Apache Kafka's: "host:port,host:port" or a sequence of them.
        folder: Instead of brokers: a log directory of a broker, ours or Kafka's, running or not, a folder of `open_log`, or one
            partition folder.
        start: Where each partition begins: "earliest", "latest-100", "earliest+100", a time ago such as "-10m", a `datetime` with its
            time zone, an offset, or a dict from partitions to offsets.
        end: Where each ends, exclusive; the same words.  A time is the first record at or after it.
        partitions: The partitions; none: all.
        columns: The columns, in order; what is not named is not decoded.  **Shapes**: "topic" string, "partition" int32, "offset"
            int64, "timestamp" timestamp[ms, UTC] (null = none), "timestamp_type" int32 (0 CreateTime, 1 LogAppendTime), "key" and
            "value" binary (nullable), "headers" list<struct<key: string, value: binary>>.
        told: The function that is told, batch by batch, how many records have been handed over, and how many offsets there are to
            read: more where compaction or transactions have left gaps.
        timeout_ms: How long brokers may bring nothing, from 1; None: 10 s while none could serve a partition, 60 s while one may.
        security: How this client and brokers are believed by each other (docs/SECURITY_CLIENTS.md); None: plain text.

    Raises:
        ImportError: `pyarrow` is not installed; it says how to install it.
        ConfigError: An argument is wrong, no broker answers, or the folder holds no partition folders.
        InvalidRequestError: `start` or `end` is no place, or ends before it starts.
        UnknownTopicOrPartitionError: There is no such topic or partition.
        OffsetOutOfRangeError: An offset lies outside of what there is.
        RequestTimedOutError: A leader did not tell its offsets in time.
        CorruptRecordError, StorageError: A folder cannot be read.

    The batches raise, beside these:

        OffsetOutOfRangeError, UnknownTopicOrPartitionError, LogTruncatedError: Records of the scan were deleted, their topic was, or
            an unclean election took them away.
        CorruptRecordError, InvalidRecordError: Records are damaged.
        BrokerClosedError: This process was forked from the one that began the scan.
    """
    from replog.records.arrow.columns import ArrowColumns

    made = ArrowColumns(columns, ("", 0))  # refuses what is no column before anybody is asked
    if timeout_ms is not None:
        require_at_least("timeout_ms", timeout_ms, 1)
    limits = parse_limits(start, end, time.time_ns() // 1_000_000)
    if (bootstrap_servers is None) is (folder is None):
        text = "a scan reads a topic of brokers or a folder: give it bootstrap_servers or folder, one of the two"
        raise ConfigError("bootstrap_servers", bootstrap_servers, text)
    if folder is not None:
        found: TopicScan | FolderScan = FolderScan(Path(folder).absolute(), topic, partitions, limits)
    elif topic is None:
        raise ConfigError("topic", None, "a scan of brokers needs the name of a topic")
    else:
        found = TopicScan(bootstrap_servers or "", topic, partitions, limits, timeout_ms, security)
    return made.reader(_handed_over(found, columns, told))


def _handed_over(
    found: TopicScan | FolderScan, columns: Sequence[str], told: Callable[[int, int], None] | None
) -> Generator[pa.RecordBatch, None, None]:
    records_count, offsets_count = 0, found.offsets_count

    def batches(stop: Stop) -> Generator[pa.RecordBatch, None, None]:
        return found.batches(columns, stop)

    with closing(read_ahead(batches)) as made:
        for batch in made:
            records_count += batch.num_rows
            if told is not None:
                told(records_count, offsets_count)
            yield batch
