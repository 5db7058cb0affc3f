"""The files that `replog export` and `replog log export` write, read back as Arrow batches.  Needs pyarrow."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, assert_never

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from replog.cli.errors import CommandFailedError
from replog.cli.export.formats import Encoding, Format
from replog.records.arrow.columns import FIELDS

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
