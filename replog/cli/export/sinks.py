"""Where records go.  Here JSON lines; what needs pyarrow is in `arrow_sinks`, imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol, assert_never

from replog.cli.errors import CommandFailedError, UsageError
from replog.cli.export.formats import Encoding, Format, json_text, shower
from replog.host.extras import install_command
from replog.records import TRUSTED_DECOMPRESSED_BYTES_MAX, decode_records
from replog.tables.log_source import Run

if TYPE_CHECKING:
    import pyarrow as pa


class Sink(Protocol):
    """Takes records in order."""

    def write(self, run: Run) -> int:
        """Writes the wanted records of a run; returns how many.

        Raises:
            CorruptRecordError, InvalidRecordError: The run's bytes are damaged.
            UnsupportedCompressionError: The codec's library is not installed.
            OSError: The file cannot be written.
        """
        ...

    def close(self) -> None:
        """Writes what is still held back, and what the format has at its end; the file itself stays open."""
        ...

    def abandon(self) -> None:
        """Gives up, instead of `close` or after one that failed: the file is going to be removed."""
        ...


class BatchSink(Protocol):
    """Takes records in order, as Arrow batches."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes a batch with the columns of the file.

        Raises:
            CommandFailedError: The format cannot hold a record.
            OSError: The file cannot be written.
        """
        ...

    def close(self) -> None:
        """Writes the end, as `Sink.close` says."""
        ...

    def abandon(self) -> None:
        """Gives up, as `Sink.abandon` says."""
        ...


class JsonLines:
    """One object a line: offset, timestamp (ms), key, value, headers as [[name, value], ...], leader_epoch."""

    def __init__(self, file: BinaryIO, encoding: Encoding) -> None:
        self._file = file
        self._shown = shower(encoding)

    def write(self, run: Run) -> int:
        """Writes a line for each wanted record of a run, as `Sink.write` says."""
        records = decode_records(
            run.data,
            start_offset=run.start_offset,
            end_offset=run.end_offset,
            max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX,
        )
        shown = self._shown
        lines = [
            json_text(r.offset, r.timestamp, r.key, r.value, r.headers, shown, leader_epoch=run.leader_epoch)
            for r in records
        ]
        self._file.write("".join(lines).encode())
        return len(lines)

    def close(self) -> None:
        """Flushes the file."""
        self._file.flush()

    def abandon(self) -> None:
        """Needs nothing: no records are held back."""


def sink_for(output_format: Format, file: BinaryIO, encoding: Encoding) -> Sink:
    """Makes a sink that writes to `file`, which stays the caller's.

    Raises:
        CommandFailedError: The format needs pyarrow, which is not installed.
    """
    match output_format:
        case Format.JSONL:
            return JsonLines(file, encoding)
        case Format.ARROW | Format.PARQUET:
            require_pyarrow(f"--to {output_format.value}")
            from replog.cli.export.arrow_sinks import SCHEMA, ArrowFile, ParquetFile

            return ArrowFile(file, SCHEMA) if output_format is Format.ARROW else ParquetFile(file, SCHEMA)
        case Format.CSV:
            raise UsageError("--to", "csv", "--to csv is for topics: `replog export`. Take jsonl for a folder")
        case _:
            assert_never(output_format)


def batch_sink_for(output_format: Format, file: BinaryIO, encoding: Encoding, schema: pa.Schema) -> BatchSink:
    """Makes a sink of batches with a schema that writes to `file`, which stays the caller's."""
    from replog.cli.export import arrow_sinks

    match output_format:
        case Format.JSONL:
            return arrow_sinks.JsonLinesFile(file, encoding)
        case Format.CSV:
            return arrow_sinks.CsvFile(file, encoding)
        case Format.ARROW:
            return arrow_sinks.ArrowFile(file, schema)
        case Format.PARQUET:
            return arrow_sinks.ParquetFile(file, schema)
        case _:
            assert_never(output_format)


def require_pyarrow(what: str) -> None:
    """Refuses what needs pyarrow where it is not installed, before a file is made or a log is opened.

    Raises:
        CommandFailedError: Pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401 -- whether it can be imported is the question
    except ImportError as error:
        raise CommandFailedError(f"{what} needs pyarrow, which is not installed: {install_command('arrow')}") from error
