"""`replog capture`: a slice of a topic into a file, for brokers of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replog.cli import common
from replog.cli.errors import UsageError


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
    directory: common.ClusterDirectory = None,
) -> None:
    """Write what is committed in a topic now into a file, with keys, times and headers, up to the end.

    `replog.embedded(load=FILE)` starts a broker of a test that has the topic.
    """
    bootstrap_servers = common.servers(bootstrap_servers, directory)
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
            told=lambda count: say(f"{common.counted(count, 'record')} of {topic} written"),
        )
    typer.echo(f"{common.counted(found.records_count, 'record')} of {topic} written to {output}")
