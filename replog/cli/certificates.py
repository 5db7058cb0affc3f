"""`replog certs`: an authority of one's own, and certificates of nodes and clients that it signs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replog.cli import common

app = typer.Typer(help="Make certificates for TLS: an authority of one's own, and what it signs.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the authority.")]
Days = Annotated[int | None, typer.Option("--days", min=1, max=36_500, help="How long it is valid.")]


@app.command("init")
def init(directory: Folder, days: Days = None) -> None:
    """Make an authority: ca.pem is for everybody, ca.key for nobody else."""
    from replog.certs.authority import AUTHORITY_DAYS, create_authority

    path = create_authority(directory, days or AUTHORITY_DAYS)
    typer.echo(
        f"{path} is the authority for {common.counted(days or AUTHORITY_DAYS, 'day')}; keep {directory}/ca.key to yourself"
    )


@app.command("node")
def node(
    directory: Folder,
    name: Annotated[str, typer.Option("--name", help="The name of the node, and of the file NAME.pem.")] = "node",
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="HOST", help="A name or address that clients use, beside localhost; may be repeated."
        ),
    ] = None,
    days: Days = None,
) -> None:
    """Make a certificate of a node: private key, certificate and authority in one PEM file."""
    from replog.certs.authority import CERTIFICATE_DAYS, LOCAL_HOSTS, issue

    path = issue(directory, name, "node", host or (), days or CERTIFICATE_DAYS)
    typer.echo(f"{path} is for {', '.join(dict.fromkeys((*LOCAL_HOSTS, *(host or ()))))}")


@app.command("client")
def client(
    directory: Folder,
    name: Annotated[str, typer.Option("--name", help="The name of the client, and of the file NAME.pem.")] = "client",
    days: Days = None,
) -> None:
    """Make a certificate of a client: private key, certificate and authority in one PEM file."""
    from replog.certs.authority import CERTIFICATE_DAYS, issue

    path = issue(directory, name, "client", days=days or CERTIFICATE_DAYS)
    typer.echo(f"{path} is of the client {name}")
