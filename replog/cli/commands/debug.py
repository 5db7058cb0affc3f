"""`replog debug`: what somebody else needs to find out what is wrong."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common
from replog.errors import ReplogError

if TYPE_CHECKING:
    from replog.cluster import LocalCluster

app = typer.Typer(help="Find out what is wrong with a cluster.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `bundle` a command of a group."""


@app.command("bundle")
def bundle(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The archive to write; must not exist.")
    ],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
) -> None:
    """Write an archive with what a maintainer asks for: versions, configuration, status, quorum, metrics, last log lines.

    No records; secrets are hidden. Names, addresses and paths are in it: its README.txt says what is where. It is written also
    while nodes do not answer. With --dir, logs too.
    """
    cluster = None if directory is None else common.local_cluster(bootstrap_servers, directory)
    with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        try:
            found = common.run(_parts(bootstrap_servers, cluster))
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in found.items():
                    archive.writestr(name, data)
        except BaseException:
            output.unlink(missing_ok=True)
            raise
    missing = [name for name, data in found.items() if data.startswith(b"error:")]
    typer.echo(
        f"{output}: {common.counted(len(found), 'file')}, {output.stat().st_size:,} bytes. Read it before you send it"
    )
    for name in missing:
        typer.echo(f"  {name} could not be had; it says why")


async def _parts(bootstrap_servers: str, cluster: LocalCluster | None) -> dict[str, bytes]:
    from replog.cli.checks.bundle import parts

    servers = bootstrap_servers if cluster is None else cluster.bootstrap_servers
    with common.waiting("asking the nodes"):
        try:
            admin = await common.admin_of(servers)
        except ReplogError:
            if cluster is None:
                raise
            return await parts(None, cluster)
        async with admin:
            return await parts(admin, cluster)
