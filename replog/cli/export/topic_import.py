"""A file into a topic, each record of it once, however often the import was killed and started again.  Needs pyarrow.

Into a topic that nothing else writes, the offset of a record is its place among those of its partition in the file.  So the end of
a partition says how many were written, whoever was killed when, and compaction and retention do not change it.  The last
record there is compared with the file's before anything is written: a topic with other records is refused.
"""

from __future__ import annotations

import base64
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyarrow import csv

from replog.cli.errors import CommandFailedError
from replog.cli.export.formats import Encoding, Format
from replog.client import SyncAdmin, SyncConsumer, SyncProducer, TopicPartition
from replog.client.producer.config import MAX_REQUEST_BYTES_MAX
from replog.client.sync.producer import SyncBulkDelivery
from replog.records.arrow.columns import FIELDS
from replog.records.arrow.rows import columns_of, int32s
from replog.tables import scan

if TYPE_CHECKING:
    from replog.client.security.security import Security


DELIVERIES_MAX: Final = 16
"""Batches whose acknowledgements are waited for while more are sent."""

SETTLE_S: Final = 1.0
"""How long the ends of a topic that was written to have to stand still."""

SETTLING_LOOKS: Final = 5

COMPARED: Final = ("timestamp", "key", "value", "headers")


class TopicImport(Struct, frozen=True):
    """What is imported, and where to.

    Attributes:
        bootstrap_servers: The brokers to ask first.
        topic: The name of the topic; it must exist.
        path: The file.
        file_format: What it is written as.
        encoding: How text shows bytes.
        partition: The partition of all records; None: the column `partition` says it.
        security: How this client and brokers are believed by each other; None: plain text.
    """

    bootstrap_servers: str
    topic: str
    path: Path
    file_format: Format
    encoding: Encoding
    partition: int | None
    security: Security | None = None


class Imported(Struct, frozen=True):
    """What an import did.

    Attributes:
        records: The number of records that it wrote.
        skipped: The number of those that an import before had written.
    """

    records: int
    skipped: int


def import_topic(request: TopicImport, told: Callable[[int], None]) -> Imported:
    """Writes the records of a file that are not yet in the topic: keys, values, headers and times as they are.

    Args:
        request: What, and where to.
        told: The function that is told how many records have been handed to the producer.

    Raises:
        CommandFailedError: The file is none of this format, or not in order; the topic has other records.
        UnknownTopicOrPartitionError: There is no such topic, or it has no such partition.
        ReplogError: A record was not acknowledged.
    """
    with SyncAdmin(request.bootstrap_servers, security=request.security) as admin:
        infos = admin.describe_topics([request.topic])[request.topic].partitions
    written = _ends(request, len(infos))
    if any(written.values()):
        written = _settled_ends(request, written)
        _require_same(request, written)
    rows = Rows(request, len(infos))
    sent = skipped = 0
    with SyncProducer(
        request.bootstrap_servers,
        security=request.security,
        max_request_bytes=MAX_REQUEST_BYTES_MAX,
        buffer_memory_bytes=2 * MAX_REQUEST_BYTES_MAX,
    ) as producer:
        waiting: deque[SyncBulkDelivery] = deque()
        for partition, first, batch in rows:
            known = min(batch.num_rows, max(0, written[partition] - first))
            skipped += known
            if known < batch.num_rows:
                left = batch.take(pa.array(range(known, batch.num_rows))) if known else batch
                columns = columns_of(left, now_ms=time.time_ns() // 1_000_000)
                waiting.append(
                    producer.send_columns(request.topic, columns, partitions=int32s(left.column("partition")))
                )
                sent += left.num_rows
                if len(waiting) > DELIVERIES_MAX:
                    waiting.popleft().result()
            told(sent)
        for delivery in waiting:
            delivery.result()
    if (now := _ends(request, len(infos))) != rows.counts:
        wrong = next(partition for partition, end in now.items() if end != rows.counts[partition])
        raise CommandFailedError(
            f"{request.topic}-{wrong} ends at offset {now[wrong]}, and the file has {rows.counts[wrong]} records of it: something "
            f"else writes to the topic. {_ANOTHER}"
        )
    return Imported(sent, skipped)


_ANOTHER: Final = "Import into a topic that is empty, or was written by this import alone"


class Rows:
    """The records of a file by partition, each with its place among those of its partition.

    Attributes:
        counts: The number of records of each partition that have come by.
    """

    def __init__(self, request: TopicImport, partitions_count: int) -> None:
        self.counts = dict.fromkeys(range(partitions_count), 0)
        self._request = request
        self._offsets = dict.fromkeys(range(partitions_count), -1)

    def __iter__(self) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Yields a partition, the place of the first record, and records of it.

        Raises:
            CommandFailedError: The file is not in order of offsets, has no partitions, or others than the topic.
        """
        request = self._request
        for batch in file_batches(request.path, request.file_format, request.encoding):
            placed = self._placed(batch)
            numbers = pc.unique(placed.column("partition")).to_pylist()
            if strange := [number for number in numbers if number not in self.counts]:
                raise CommandFailedError(
                    f"{request.path} has records of partition {strange[0]}, and {request.topic} has {len(self.counts)} partitions: "
                    "create a topic with as many"
                )
            for number in numbers:
                rows = placed.filter(pc.equal(placed.column("partition"), number))
                self._check_order(number, rows)
                yield number, self.counts[number], rows
                self.counts[number] += rows.num_rows

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        number = self._request.partition
        if number is not None:
            names = [name for name in batch.schema.names if name != "partition"]
            column = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
            return pa.RecordBatch.from_arrays([column, *(batch.column(name) for name in names)], ["partition", *names])
        if "partition" not in batch.schema.names:
            raise CommandFailedError(f"{self._request.path} has no column partition: say with --partition which it is")
        return batch

    def _check_order(self, number: int, rows: pa.RecordBatch) -> None:
        if "offset" not in rows.schema.names:
            return
        offsets = rows.column("offset")
        is_rising = pc.all(pc.less(offsets[:-1], offsets[1:])).as_py() is not False
        if offsets[0].as_py() <= self._offsets[number] or not is_rising:
            raise CommandFailedError(
                f"{self._request.path}: the records of partition {number} are not in order of offsets, so an import could not be "
                "continued. Export the topic again"
            )
        self._offsets[number] = offsets[-1].as_py()


def _ends(request: TopicImport, partitions_count: int) -> dict[int, int]:
    wanted = [TopicPartition(request.topic, number) for number in range(partitions_count)]
    with SyncConsumer(request.bootstrap_servers, security=request.security) as consumer:
        return {partition.partition: end for partition, end in consumer.end_offsets(wanted).items()}


def _settled_ends(request: TopicImport, seen: dict[int, int]) -> dict[int, int]:
    """Returns the ends once they stand still: the last sends of an import that was killed a moment ago may be on their way.

    Raises:
        CommandFailedError: They go on.
    """
    for _ in range(SETTLING_LOOKS):
        time.sleep(SETTLE_S)
        before, seen = seen, _ends(request, len(seen))
        if before == seen:
            return seen
    raise CommandFailedError(f"something else writes to {request.topic}. {_ANOTHER}")


def _require_same(request: TopicImport, written: dict[int, int]) -> None:
    """Compares the last record of each partition with the file's at its place.

    Raises:
        CommandFailedError: One is another, or is gone, or the file has fewer.
    """
    ends = {partition: end for partition, end in written.items() if end}
    last = scan(
        request.topic,
        bootstrap_servers=request.bootstrap_servers,
        partitions=list(ends),
        start="latest-1",
        end=ends,
        columns=NAMES,
    )
    found = {row["partition"]: row for batch in last for row in batch.to_pylist()}
    for partition, end in ends.items():
        if found.get(partition, {}).get("offset") != end - 1:
            raise CommandFailedError(
                f"the last record of {request.topic}-{partition}, offset {end - 1}, is gone and cannot be compared with the file's: "
                f"retention or compaction took it. {_ANOTHER}, with retention.ms=-1 while you import"
            )
    rows = Rows(request, len(written))
    for partition, first, batch in rows:
        place = ends.get(partition, 0) - 1 - first
        if 0 <= place < batch.num_rows:
            _compare(request, found.pop(partition), batch.slice(place, 1).to_pylist()[0])
        if not found:
            return
    partition, row = next(iter(found.items()))
    raise CommandFailedError(
        f"{request.topic}-{partition} has {row['offset'] + 1} records, and {request.path} has {rows.counts[partition]} of it. {_ANOTHER}"
    )


def _compare(request: TopicImport, there: dict[str, Any], row: dict[str, Any]) -> None:
    names = [name for name in COMPARED if name in row and not (name == "timestamp" and row[name] is None)]
    for name in names:
        if there[name] != row[name]:
            raise CommandFailedError(
                f"{request.topic}-{there['partition']} has another {name} at offset {there['offset']} than {request.path}. {_ANOTHER}"
            )


# ---- the files that `replog export` and `replog log export` write, read back as Arrow batches.  Needs pyarrow


ROWS_TOGETHER: Final = 10_000
LINES_BYTES: Final = 4 << 20
"""Text that becomes one batch, unless a line is larger."""

CSV_BLOCK_BYTES: Final = 64 << 20
"""No line of CSV is larger."""

NAMES: Final = ("partition", "offset", "timestamp", "key", "value", "headers")


def file_batches(path: Path, file_format: Format, encoding: Encoding) -> Iterator[pa.RecordBatch]:
    """Yields the records of a file, in its order, with those of the columns `NAMES` that it has.

    Args:
        path: The file.
        file_format: What it is written as.
        encoding: How text shows bytes.

    Raises:
        CommandFailedError: It is no whole file of this format, or has other columns.
        OSError: It cannot be read.
    """
    made = {Format.PARQUET: _parquet, Format.ARROW: _arrow}.get(file_format)
    try:
        if made is not None:
            yield from map(_chosen, made(path))
        elif file_format is Format.JSONL:
            yield from _json_lines(path, encoding)
        else:
            yield from _csv(path, encoding)
    except (pa.ArrowException, ValueError, TypeError, KeyError, AttributeError) as error:
        kind = file_format.value
        raise CommandFailedError(
            f"{path} is no whole {kind} file of records: {error}. Export it again, or say with --format and "
            "--encoding what it is"
        ) from error


def _parquet(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(ROWS_TOGETHER)


def _arrow(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            for first in range(0, batch.num_rows, ROWS_TOGETHER):
                yield batch.slice(first, ROWS_TOGETHER)


def _chosen(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leaves out columns that records do not have; refuses those of other types."""
    names = [name for name in NAMES if name in batch.schema.names]
    for name in ("value", *names):
        found, wanted = batch.schema.field(name).type, FIELDS[name].type
        is_same = pa.types.is_list(found) if name == "headers" else found == wanted
        if not is_same:
            raise ValueError(f"its column {name} is {found}, not {wanted}")
    return batch.select(names)


def _json_lines(path: Path, encoding: Encoding) -> Iterator[pa.RecordBatch]:
    taken = _taker(encoding)
    rows: list[dict[str, Any]] = []
    size_bytes = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                headers = [{"key": name, "value": taken(value)} for name, value in row.get("headers") or ()]
                row |= {"key": taken(row.get("key")), "value": taken(row["value"]), "headers": headers}
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"line {number}: {error!r}") from error
            rows.append(row)
            size_bytes += len(line)
            if size_bytes >= LINES_BYTES or len(rows) >= ROWS_TOGETHER:
                yield _batch(rows)
                rows, size_bytes = [], 0
    if rows:
        yield _batch(rows)


def _csv(path: Path, encoding: Encoding) -> Iterator[pa.RecordBatch]:
    kinds = {"partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.int64()}
    options = csv.ConvertOptions(
        column_types=kinds | dict.fromkeys(("key", "value", "headers"), pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    read = csv.ReadOptions(block_size=CSV_BLOCK_BYTES)
    taken = _taker(encoding)
    parse = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, read_options=read, parse_options=parse, convert_options=options) as reader:
        for block in reader:
            for first in range(0, block.num_rows, ROWS_TOGETHER):
                rows = block.slice(first, ROWS_TOGETHER).to_pylist()
                for row in rows:
                    pairs = json.loads(row.get("headers") or "[]")
                    headers = [{"key": name, "value": taken(value)} for name, value in pairs]
                    row |= {"key": taken(row.get("key")), "value": taken(row["value"]), "headers": headers}
                yield _batch(rows)


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = [name for name in NAMES if name in rows[0]]
    schema = pa.schema([FIELDS[name] for name in names])
    for row in rows:
        if "timestamp" in row and (row["timestamp"] is None or row["timestamp"] < 0):
            row["timestamp"] = None
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def _taker(encoding: Encoding) -> Callable[[Any], bytes | None]:
    match encoding:
        case Encoding.UTF_8:
            return _from_text
        case Encoding.BASE64:
            return lambda text: None if text is None else base64.b64decode(text, validate=True)
        case _:
            assert_never(encoding)


def _from_text(text: Any) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text["base64"], validate=True) if isinstance(text, dict) else text.encode()
