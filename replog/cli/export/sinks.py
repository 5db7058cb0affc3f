"""Where records go.  Here JSON lines; what needs pyarrow is in `arrow_sinks`, imported when it is asked for."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from enum import Enum
from typing import BinaryIO, Protocol, assert_never

from replog.cli.common import shown_bytes
from replog.cli.errors import CommandFailedError
from replog.host.extras import install_command
from replog.records import TRUSTED_DECOMPRESSED_BYTES_MAX, decode_records
from replog.tables.log_source import Run


class Format(Enum):
    """What an export is written as."""

    ARROW = "arrow"
    PARQUET = "parquet"
    JSONL = "jsonl"


class Encoding(Enum):
    """How JSON lines show keys, values and header values.

    UTF_8 shows bytes as text where they are UTF-8, else as `{"base64": "..."}`; BASE64 shows all of them as base64 text.
    """

    UTF_8 = "utf-8"
    BASE64 = "base64"


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


class JsonLines:
    """One object a line: offset, timestamp (ms), key, value, headers as [[name, value], ...], leader_epoch."""

    def __init__(self, file: BinaryIO, encoding: Encoding) -> None:
        self._file = file
        self._shown = _shower(encoding)

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
            json.dumps(
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": shown(record.key),
                    "value": shown(record.value),
                    "headers": [[name, shown(value)] for name, value in record.headers],
                    "leader_epoch": run.leader_epoch,
                },
                ensure_ascii=False,
            )
            for record in records
        ]
        self._file.write("".join(f"{line}\n" for line in lines).encode())
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
            require_pyarrow(output_format)
            from replog.cli.export.arrow_sinks import ArrowFile, ParquetFile

            return ArrowFile(file) if output_format is Format.ARROW else ParquetFile(file)
        case _:
            assert_never(output_format)


def require_pyarrow(output_format: Format) -> None:
    """Refuses a format that needs pyarrow where it is not installed, before a file is made or a log is opened.

    Raises:
        CommandFailedError: The format needs pyarrow, which is not installed.
    """
    if output_format is Format.JSONL:
        return
    try:
        import pyarrow.parquet  # noqa: F401 -- whether it can be imported is the question
    except ImportError as error:
        raise CommandFailedError(
            f"--to {output_format.value} needs pyarrow, which is not installed: {install_command('arrow')}"
        ) from error


def _shower(encoding: Encoding) -> Callable[[bytes | None], object]:
    match encoding:
        case Encoding.UTF_8:
            return shown_bytes
        case Encoding.BASE64:
            return lambda data: None if data is None else base64.b64encode(data).decode("ascii")
        case _:
            assert_never(encoding)
