"""Arrow IPC files and Parquet files.  Needs pyarrow (extra `arrow`); its import stands here only."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from replog.cli.errors import CommandFailedError
from replog.cli.export.formats import Encoding, json_text, shower
from replog.records import TRUSTED_DECOMPRESSED_BYTES_MAX
from replog.records.arrow.columns import ArrowColumns
from replog.tables.log_source import Run

GROUP_BYTES: Final = 16 << 20
"""Columns that are held back until they make a row group; the last run comes on top."""


class _Grouped:
    """Holds record batches back until they are worth a group of their own."""

    def __init__(self, writer: Any, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._held: list[Any] = []
        self._held_bytes = 0

    def write(self, run: Run) -> int:
        """Takes the wanted records of a run, as `Sink.write` says; writes a group when enough are held back."""
        batch = record_batch(run)
        self.add(batch)
        return int(batch.num_rows)

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes a batch, as `BatchSink.add` says; writes a group when enough are held back."""
        if batch.num_rows:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
        if self._held_bytes >= GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Writes the last group and the end of the file."""
        if self._held:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Drops what is held back."""
        self._held.clear()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._held, schema=self._schema).combine_chunks()
        self._held.clear()
        self._held_bytes = 0
        self._write_table(table)

    def _write_table(self, table: Any) -> None:
        raise NotImplementedError


class ArrowFile(_Grouped):
    """An Arrow IPC file (random access format), a record batch a group."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(pa.ipc.new_file(file, schema), schema)

    def _write_table(self, table: Any) -> None:
        self._writer.write_table(table)


class ParquetFile(_Grouped):
    """A Parquet file, a row group a group, compressed with Snappy as is Parquet's custom."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(pq.ParquetWriter(file, schema, compression="snappy"), schema)

    def _write_table(self, table: Any) -> None:
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def abandon(self) -> None:
        """Drops what is held back, and keeps the writer from ending the file when it is collected."""
        super().abandon()
        self._writer.is_open = False


class TextFile:
    """A file of text, a record a line, out of batches.

    Args:
        file: The file.
        encoding: How bytes become text.
    """

    def __init__(self, file: BinaryIO, encoding: Encoding) -> None:
        self._file = file
        self._encoding = encoding

    def add(self, batch: pa.RecordBatch) -> None:
        """Writes a line for each row, as `BatchSink.add` says."""
        raise NotImplementedError

    def close(self) -> None:
        """Flushes the file."""
        self._file.flush()

    def abandon(self) -> None:
        """Needs nothing: no records are held back."""


class JsonLinesFile(TextFile):
    """One object a line, as `JsonLines` writes them, with the partition instead of the leader epoch."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Writes a line for each row, as `BatchSink.add` says."""
        shown = shower(self._encoding)
        for rows in _pieces(batch):
            lines = [
                json_text(
                    row["offset"],
                    row["timestamp"],
                    row["key"],
                    row["value"],
                    row["headers"],
                    shown,
                    partition=row["partition"],
                )
                for row in rows
            ]
            self._file.write("".join(lines).encode())


class CsvFile(TextFile):
    """Comma-separated values under a line of names: text is quoted, null is nothing between commas, headers are JSON.

    CSV has no bytes, so with UTF_8 a key or value that is no text is an error.
    """

    def __init__(self, file: BinaryIO, encoding: Encoding) -> None:
        super().__init__(file, encoding)
        self._writer = csv.CSVWriter(file, CSV_SCHEMA)

    def add(self, batch: pa.RecordBatch) -> None:
        """Writes a line for each row, as `BatchSink.add` says."""
        for rows in _pieces(batch):
            columns: list[list[Any]] = [[row[name] for row in rows] for name in ("partition", "offset", "timestamp")]
            columns += [[self._text(row, name) for row in rows] for name in ("key", "value")]
            columns.append([self._headers(row) for row in rows])
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, CSV_SCHEMA, strict=True)]
            self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=CSV_SCHEMA))

    def close(self) -> None:
        """Writes the end of the file and flushes it."""
        self._writer.close()
        super().close()

    def _text(self, row: dict[str, Any], name: str) -> str | None:
        data: bytes | None = row[name]
        if data is None or self._encoding is Encoding.BASE64:
            return None if data is None else base64.b64encode(data).decode("ascii")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise CommandFailedError(
                f"the {name} at offset {row['offset']} of partition {row['partition']} is no text, and CSV has no bytes: export it "
                "with --encoding base64, or to another format"
            ) from None

    def _headers(self, row: dict[str, Any]) -> str | None:
        shown = shower(self._encoding)
        pairs = [[header["key"], shown(header["value"])] for header in row["headers"]]
        return json.dumps(pairs, ensure_ascii=False) if pairs else None


ROWS_TOGETHER: Final = 2_000
"""Rows that are Python objects at a time."""

CSV_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("headers", pa.string()),
    ]
)


def _pieces(batch: pa.RecordBatch) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of a batch, a few at a time; timestamps are milliseconds since 1970."""
    at = batch.schema.get_field_index("timestamp")
    numbers = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
    for first in range(0, batch.num_rows, ROWS_TOGETHER):
        yield numbers.slice(first, ROWS_TOGETHER).to_pylist()


_NONE: Final = -1
_COLUMNS: Final = ArrowColumns(("offset", "timestamp", "key", "value", "headers"))

SCHEMA: Final = _COLUMNS.schema.append(pa.field("leader_epoch", pa.int32()))
"""**Shapes**: as in `columns.FIELDS`; the leader epoch is null where a batch has none."""


def record_batch(run: Run) -> pa.RecordBatch:
    """Decodes the wanted records of a run, perhaps none, into columns.

    Raises:
        CorruptRecordError, InvalidRecordError: The bytes are damaged.
        UnsupportedCompressionError: The codec's library is not installed.
    """
    found = _COLUMNS.convert(
        run.data,
        start_offset=run.start_offset,
        end_offset=run.end_offset,
        max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX,
    )
    if not found:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    epoch = pa.scalar(None if run.leader_epoch == _NONE else run.leader_epoch, pa.int32())
    return pa.RecordBatch.from_arrays([*found[0].columns, pa.repeat(epoch, found[0].num_rows)], schema=SCHEMA)
