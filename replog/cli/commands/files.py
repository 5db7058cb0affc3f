"""`replog capture`, `export` and `import`: topics into files, for brokers of tests and other tools, and files into topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from replog.cli import client_config, common
from replog.cli.errors import UsageError

FORMATS: Final = ("parquet", "arrow", "jsonl", "csv")
ENCODINGS: Final = ("utf-8", "base64")


def capture(
    topic: Annotated[
        str, typer.Option("--topic", metavar="TOPIC", help="Must exist, with our brokers or Apache Kafka's.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="What is there is replaced.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where to begin: earliest, latest-100, an offset, -10m (a time ago), 2026-01-31T13:00:00Z.",
        ),
    ] = "earliest",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, max=common.INT_MAX, help="Again for more. Default: all.")
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="The most records of each partition.")
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Write what is committed in a topic now into a file, with keys, times and headers, up to the end.

    `replog.embedded(load=FILE)` starts a broker of a test that has the topic.
    """
    if output.is_dir():
        raise UsageError("--output", str(output), f"{output} is a folder; name a file in it")
    common.place(start, "--from")  # refused before anything is asked
    common.run(_capture(bootstrap_servers, topic, output, start, partition or (), max_records))


async def _capture(
    bootstrap_servers: str,
    topic: str,
    output: Path,
    start: str,
    partitions: list[int] | tuple[()],
    max_records: int | None,
) -> None:
    from replog.cluster.capture import write_capture

    await common.require_listener(bootstrap_servers)
    with common.waiting(f"reading {topic}") as say:
        found = await write_capture(
            bootstrap_servers,
            topic,
            output,
            start=start,
            partitions=partitions,
            max_records=max_records,
            security=client_config.security(),
            told=lambda count: say(f"{common.counted(count, 'record')} of {topic} written"),
        )
    typer.echo(f"{common.counted(found.records_count, 'record')} of {topic} written to {output}")


def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Must exist, with our brokers or Apache Kafka's.")],
    to: Annotated[str, typer.Option("--to", metavar="|".join(FORMATS), help="Format.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="A new file; - is stdout, for jsonl and csv.")
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where to begin: earliest, latest-100, earliest+100, a time ago such as -10m, or an offset.",
        ),
    ] = "earliest",
    end: Annotated[
        str, typer.Option("--until", metavar="PLACE", help="Where to end, exclusive; the same words.")
    ] = "latest",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, max=common.INT_MAX, help="Again for more. Default: all.")
    ] = None,
    encoding: Annotated[
        str,
        typer.Option(
            "--encoding",
            metavar="|".join(ENCODINGS),
            help='jsonl and csv: text (of what is none, jsonl has {"base64": ...}), or base64 text throughout.',
        ),
    ] = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Write what is committed in a topic now into a file, up to the end.

    The file appears under its name when it is complete. `replog import` writes it into a topic.
    """
    from replog.cli.export.command import TopicExport, export_topic
    from replog.cli.export.formats import Encoding, Format

    check_choice("--to", to, FORMATS)
    check_choice("--encoding", encoding, ENCODINGS)
    request = TopicExport(
        bootstrap_servers=bootstrap_servers,
        topic=topic,
        output_format=Format(to),
        output=None if output == "-" else Path(output),
        encoding=Encoding(encoding),
        start=int(start) if start.isdecimal() else start,
        end=int(end) if end.isdecimal() else end,
        partitions=partition or (),
        force=force,
        security=client_config.security(),
    )
    common.run(common.require_listener(bootstrap_servers))
    with common.waiting(f"exporting {topic}") as show:
        count = export_topic(
            request, lambda done, of: show(f"exported {common.counted(done, 'record')} of {topic}, of {of:,} offsets")
        )
    where = "stdout" if output == "-" else output
    typer.echo(f"exported {common.counted(count, 'record')} of {topic} to {where}", err=True)


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `replog export` or `replog log export` wrote.")],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Must exist; nothing else may write to it.")],
    file_format: Annotated[
        str | None,
        typer.Option("--format", metavar="|".join(FORMATS), help="Default: as the name of the file ends."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", min=0, max=common.INT_MAX, help="Of all records. Default: as the file says."),
    ] = None,
    encoding: Annotated[
        str, typer.Option("--encoding", metavar="|".join(ENCODINGS), help="jsonl and csv: as it was exported.")
    ] = "utf-8",
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Write the records of a file into a topic: keys, values, headers and times as they are, each once.

    Started again after it was killed it goes on where it was: the end of each partition says how far, and its last record is
    compared with the file's. Offsets are counted anew.
    """
    from replog.cli.export.formats import Encoding, Format
    from replog.cli.export.sinks import require_pyarrow

    found = file_format or {".ndjson": "jsonl", ".feather": "arrow"}.get(file.suffix, file.suffix[1:])
    if file_format is None and found not in FORMATS:
        raise UsageError(
            "FILE", str(file), f"{file} does not say what it is: name it with --format, {', '.join(FORMATS)}"
        )
    check_choice("--format", found, FORMATS)
    check_choice("--encoding", encoding, ENCODINGS)
    if not file.is_file():
        raise UsageError("FILE", str(file), f"{file} is not a file")
    require_pyarrow("an import")
    from replog.cli.export.topic_import import TopicImport, import_topic

    request = TopicImport(
        bootstrap_servers, topic, file, Format(found), Encoding(encoding), partition, client_config.security()
    )
    common.run(common.require_listener(bootstrap_servers))
    with common.waiting(f"importing {file}") as show:
        done = import_topic(request, lambda count: show(f"{common.counted(count, 'record')} of {file} written"))
    before = f", {done.skipped:,} were there already" if done.skipped else ""
    typer.echo(f"{common.counted(done.records, 'record')} of {file} written to {topic}{before}", err=True)


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuses a value that is no choice of an option.

    Raises:
        UsageError: It is none.
    """
    if value not in choices:
        raise UsageError(option, value, f'{option} "{value}" is not one of {", ".join(choices)}')
