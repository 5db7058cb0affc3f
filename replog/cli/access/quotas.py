"""`replog quotas`: how much clients may produce, fetch, ask and change, and how often addresses may connect."""

from __future__ import annotations

from typing import Annotated

import typer

from replog.cli import common

app = typer.Typer(help="Show and change how much clients may take of the brokers.", no_args_is_help=True)

DEFAULT = "<default>"
"""Stands for a name where the default of all others is meant."""

User = Annotated[
    str, typer.Option("--user", metavar="NAME", help=f"Of this user; {DEFAULT}: of each that has no quota of its own.")
]
ClientId = Annotated[
    str,
    typer.Option(
        "--client-id", metavar="NAME", help=f"Of this client id; {DEFAULT}: of each that has no quota of its own."
    ),
]
Address = Annotated[
    str,
    typer.Option("--ip", metavar="ADDRESS", help=f"Of this address; {DEFAULT}: of each that has no quota of its own."),
]


@app.command("list")
def list_quotas(
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the quotas of all users, client ids and addresses."""
    found = common.ask(bootstrap_servers, lambda admin: admin.describe_quotas())
    for quotas in found:
        if as_json:
            typer.echo(common.json_line(quotas))
        else:
            entity = " ".join(f"{kind}={DEFAULT if name is None else name}" for kind, name in quotas.entity.items())
            typer.echo(f"{entity}  {' '.join(f'{key}={limit:.15g}' for key, limit in quotas.limits.items())}")
    if not found and not as_json:
        typer.echo("no quotas are set; `replog quotas set --user NAME producer_byte_rate=1048576` sets one")


@app.command("set")
def set_quotas(
    limits: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="An empty value removes the quota.")],
    user: User = "",
    client_id: ClientId = "",
    address: Address = "",
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Set quotas of a user, a client id, or of both together: producer_byte_rate and consumer_byte_rate in bytes a second, request_percentage
    in percent of the time of one thread, controller_mutation_rate in partitions a second that are created and deleted. An
    address has connection_creation_rate, connections a second.

    Each broker keeps them for itself, the controller that of partitions for all. In force everywhere at once, also for connections
    that there are.
    """
    entity = {kind: _named(name) for kind, name in (("user", user), ("client-id", client_id), ("ip", address)) if name}
    if not entity:
        raise typer.BadParameter(
            "name a user, a client id, both, or an address", param_hint="--user, --client-id, --ip"
        )
    changed = dict(_limit(each) for each in limits)
    common.ask(bootstrap_servers, lambda admin: admin.alter_quotas(entity, changed), "setting quotas")
    typer.echo("done")


def _named(name: str) -> str | None:
    return None if name == DEFAULT else name


def _limit(text: str) -> tuple[str, float | None]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text!r} is no KEY=VALUE", param_hint="KEY=VALUE")
    try:
        return key, float(value) if value else None
    except ValueError:
        raise typer.BadParameter(f"{value!r} is no number", param_hint=key) from None
