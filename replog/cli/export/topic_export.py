"""A topic as a file: `replog.scan` into a sink.  Needs pyarrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from replog.cli.errors import UsageError
from replog.cli.export.command import closed
from replog.cli.export.formats import Encoding, Format
from replog.cli.export.output import check_output, replaced_file
from replog.cli.export.sinks import batch_sink_for, require_pyarrow
from replog.tables.places import Bound

if TYPE_CHECKING:
    from replog.client.security.security import Security

COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")


class TopicExport(Struct, frozen=True):
    """What is exported of a topic, and where to.

    Attributes:
        bootstrap_servers: The brokers to ask first.
        topic: The name of the topic.
        output_format: The format, see `Format`.
        output: The file; None: stdout, JSON lines and CSV only.
        encoding: How JSON lines and CSV show bytes.
        start, end: Where partitions begin and end, as `replog.scan` takes it.
        partitions: The partitions; none: all.
        force: Whether an existing file may be replaced.
    """

    bootstrap_servers: str
    topic: str
    output_format: Format
    output: Path | None
    encoding: Encoding
    start: Bound
    end: Bound
    partitions: Sequence[int]
    force: bool
    security: Security | None = None


def export_topic(request: TopicExport, told: Callable[[int, int], None]) -> int:
    """Exports what is committed now; with an error no file is left (stdout has what was written so far).

    Args:
        request: What, and where to.
        told: As `replog.scan` takes it.

    Returns:
        The number of records.

    Raises:
        UsageError: The output cannot be what it should be.
        CommandFailedError: The output cannot be written, pyarrow is missing, or CSV cannot hold a record.
        ReplogError: What `replog.scan` raises.
    """
    require_pyarrow("an export of a topic")
    if request.output is not None:
        check_output(request.output, None, force=request.force)
    elif request.output_format not in {Format.JSONL, Format.CSV}:
        raise UsageError(
            "--output", "-", f"--to {request.output_format.value} needs a file, stdout takes jsonl and csv"
        )
    from replog.tables import scan

    reader = scan(
        request.topic,
        bootstrap_servers=request.bootstrap_servers,
        security=request.security,
        start=request.start,
        end=request.end,
        partitions=request.partitions,
        columns=COLUMNS,
        told=told,
    )
    count = 0
    output = replaced_file(request.output, force=request.force) if request.output else nullcontext(sys.stdout.buffer)
    with (
        output as file,
        closed(batch_sink_for(request.output_format, file, request.encoding, reader.schema)) as sink,
    ):
        for batch in reader:
            sink.add(batch)
            count += batch.num_rows
    return count
