"""`replog certs`: an authority of one's own, and certificates of nodes and clients that it signs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replog.cli import common
from replog.cli.errors import UsageError

app = typer.Typer(help="Make certificates for TLS: an authority of one's own, and what it signs.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the authority.")]
ClusterId = Annotated[
    str | None, typer.Option("--cluster-id", metavar="ID", help="The cluster.id that the nodes are of.")
]
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
    node_id: Annotated[
        int | None, typer.Option("--node-id", min=0, help="Its node.id: other nodes take it for this one.")
    ] = None,
    cluster_id: ClusterId = None,
    days: Days = None,
) -> None:
    """Make a certificate of a node: private key and certificate in one PEM file.

    With --node-id and --cluster-id it proves to other nodes which node of which cluster it is.
    """
    from replog.certs.authority import CERTIFICATE_DAYS, LOCAL_HOSTS, issue
    from replog.tcp.node_names import NodeName

    if (node_id is None) is not (cluster_id is None):
        raise UsageError("--node-id", node_id, "--node-id and --cluster-id go together: a node is one of a cluster")
    named = None if node_id is None or cluster_id is None else NodeName(cluster_id, node_id)
    path = issue(directory, name, "node", host or (), days or CERTIFICATE_DAYS, named)
    typer.echo(f"{path} is for {', '.join(dict.fromkeys((*LOCAL_HOSTS, *(host or ()))))}")


@app.command("cluster")
def cluster(
    directory: Folder,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=1_000, help="How many; their ids begin with 1.")] = 3,
    cluster_id: ClusterId = None,
    client_names: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="A client; may be repeated.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="A name or address of a node, beside localhost; may be repeated."),
    ] = None,
    days: Days = None,
) -> None:
    """Make all that a cluster needs: an authority, certificates of its nodes and of clients, and client.toml for commands."""
    from replog.certs.authority import CERTIFICATE_DAYS
    from replog.certs.cluster_certificates import CLIENT, create_cluster_certificates
    from replog.metadata.cluster_ids import new_cluster_id

    cluster_id = cluster_id or new_cluster_id()
    clients = client_names or [CLIENT]
    create_cluster_certificates(
        directory, cluster_id, range(1, nodes + 1), clients, host or (), days or CERTIFICATE_DAYS
    )
    typer.echo(f"cluster.id={cluster_id}")
    typer.echo(f"{directory}/node-ID.pem is for nodes 1 to {nodes}, {directory}/ca.pem for everybody")
    typer.echo(
        f"{', '.join(f'{directory}/{name}.pem' for name in clients)}: clients; {directory}/client.toml is for commands"
    )


@app.command("client")
def client(
    directory: Folder,
    name: Annotated[str, typer.Option("--name", help="The name of the client, and of the file NAME.pem.")] = "client",
    days: Days = None,
) -> None:
    """Make a certificate of a client: private key and certificate in one PEM file."""
    from replog.certs.authority import CERTIFICATE_DAYS, issue

    path = issue(directory, name, "client", days=days or CERTIFICATE_DAYS)
    typer.echo(f"{path} is of the client {name}")
