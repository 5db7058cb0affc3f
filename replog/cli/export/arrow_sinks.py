"""Arrow IPC files and Parquet files.  Needs pyarrow (extra `arrow`); its import stands here and in `columns` only."""

from __future__ import annotations

from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from replog.cli.export.columns import SCHEMA, record_batch
from replog.cli.export.source import Run

GROUP_BYTES: Final = 16 << 20
"""Columns that are held back until they make a row group; the last run comes on top."""


class _Grouped:
    """Holds record batches back until they are worth a group of their own."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._held: list[Any] = []
        self._held_bytes = 0

    def write(self, run: Run) -> int:
        """Takes the wanted records of a run, as `Sink.write` says; writes a group when enough are held back."""
        batch = record_batch(run)
        if batch.num_rows:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
        if self._held_bytes >= GROUP_BYTES:
            self._write_group()
        return int(batch.num_rows)

    def close(self) -> None:
        """Writes the last group and the end of the file."""
        if self._held:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Drops what is held back."""
        self._held.clear()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._held, schema=SCHEMA).combine_chunks()
        self._held.clear()
        self._held_bytes = 0
        self._write_table(table)

    def _write_table(self, table: Any) -> None:
        raise NotImplementedError


class ArrowFile(_Grouped):
    """An Arrow IPC file (random access format), a record batch a group."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(pa.ipc.new_file(file, SCHEMA))

    def _write_table(self, table: Any) -> None:
        self._writer.write_table(table)


class ParquetFile(_Grouped):
    """A Parquet file, a row group a group, compressed with Snappy as is Parquet's custom."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(pq.ParquetWriter(file, SCHEMA, compression="snappy"))

    def _write_table(self, table: Any) -> None:
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def abandon(self) -> None:
        """Drops what is held back, and keeps the writer from ending the file when it is collected."""
        super().abandon()
        self._writer.is_open = False
