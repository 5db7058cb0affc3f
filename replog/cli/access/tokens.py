"""`replog tokens`: delegation tokens, by which jobs act for a user without the user's password."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common

if TYPE_CHECKING:
    from replog.client import Admin
    from replog.client.protocol.questions.delegation_tokens import HeldToken

app = typer.Typer(help="Make, list, renew and expire delegation tokens (KIP-48).", no_args_is_help=True)

TokenId = Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Id of the token.")]


@app.command("create")
def create_token(
    owner: Annotated[
        str, typer.Option("--owner", metavar="USER", help="Whom the token logs in. Default: who asks.")
    ] = "",
    renewer: Annotated[
        list[str] | None,
        typer.Option("--renewer", metavar="USER", help="May renew and expire it, too; may be given again."),
    ] = None,
    max_lifetime_ms: Annotated[
        int | None,
        typer.Option("--max-lifetime-ms", min=1, help="How long it may be renewed. Default: as the cluster has it."),
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Make a token, and show it with its HMAC: a client logs in with both as name and password. Whoever has them is the owner."""
    made = common.ask(
        bootstrap_servers,
        lambda admin: admin.create_delegation_token(
            owner=owner or None, renewers=renewer or (), max_lifetime_ms=max_lifetime_ms
        ),
    )
    typer.echo(common.json_object(_shown(made) | {"hmac": made.hmac.reveal()}))


@app.command("list")
def list_tokens(
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="USER", help="Of this owner or renewer; may be given again. Default: all."),
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the tokens that you may know, without their HMACs, those that end first in front."""
    tokens = common.ask(bootstrap_servers, lambda admin: admin.describe_delegation_tokens(user or None))
    for each in tokens:
        if as_json:
            typer.echo(common.json_line(each.token))
        else:
            shown = _shown(each)
            typer.echo(f"{each.token.token_id}\towner {each.token.owner}\texpires {shown['expires']}")
    if not tokens and not as_json:
        typer.echo("there are no tokens that you may know; `replog tokens create` makes one")


@app.command("renew")
def renew_token(
    token_id: TokenId,
    period_ms: Annotated[
        int | None,
        typer.Option("--period-ms", min=1, help="How long it holds from now on. Default: as the cluster has it."),
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Let a token hold longer, up to its longest lifetime. Its owner and its renewers may."""
    expiry_ms = common.ask(bootstrap_servers, lambda admin: _set_expiry(admin, token_id, period_ms, renews=True))
    typer.echo(f"token {token_id} expires {_time(expiry_ms)}")


@app.command("expire")
def expire_token(
    token_id: TokenId,
    period_ms: Annotated[
        int | None, typer.Option("--period-ms", min=0, help="How long it still holds. Default: it ends at once.")
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """End a token, at once or soon: there are no new logins, and those that there are end when they have to be renewed."""
    expiry_ms = common.ask(bootstrap_servers, lambda admin: _set_expiry(admin, token_id, period_ms, renews=False))
    typer.echo(f"token {token_id} expires {_time(expiry_ms)}" if period_ms else f"token {token_id} is expired")


def _shown(held: HeldToken) -> dict[str, object]:
    token = held.token
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "expires": _time(token.expiry_timestamp_ms),
        "renewable_until": _time(token.max_timestamp_ms),
    }


def _time(wall_ms: int) -> str:
    try:
        return dt.datetime.fromtimestamp(wall_ms // 1000, dt.UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # later than there are dates
        return f"{wall_ms:,} ms after 1970"


async def _set_expiry(admin: Admin, token_id: str, period_ms: int | None, *, renews: bool) -> int:
    """Sets when a token ends, whose HMAC the cluster tells: on a command line others could read it."""
    from replog.errors import DelegationTokenNotFoundError

    tokens = await admin.describe_delegation_tokens()
    held = next((each for each in tokens if each.token.token_id == token_id), None)
    if held is None:
        raise DelegationTokenNotFoundError(
            f"there is no delegation token {token_id} that you may know; `replog tokens list` shows them"
        )
    change = admin.renew_delegation_token if renews else admin.expire_delegation_token
    return await change(held.hmac, period_ms=period_ms)
