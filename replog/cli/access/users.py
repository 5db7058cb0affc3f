"""`replog users`: who can log in by a password.  Beside `commands`, which is full."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from replog.cli import common

app = typer.Typer(help="List, add and remove users that log in by a password (SCRAM).", no_args_is_help=True)

PASSWORD_CHARACTERS_MAX = 1024
"""Characters of a password."""

UserName = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]


@app.command("list")
def list_users(
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the users, the mechanisms by which they log in, and how often their passwords are hashed."""
    users = common.ask(bootstrap_servers, lambda admin: admin.list_users())
    if as_json:
        typer.echo(common.json_object(dict(users)))
        return
    for name, mechanisms in users.items():
        typer.echo(f"{name}\t" + ", ".join(f"{each} ({count:,} iterations)" for each, count in mechanisms.items()))


@app.command("add")
def add_user(
    user: UserName,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file", metavar="FILE", help="First line of a file; - is standard input. Default: asked for."
        ),
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", help="SCRAM-SHA-256 or SCRAM-SHA-512, may be given again. Default: both."),
    ] = None,
    iterations: Annotated[
        int, typer.Option("--iterations", min=4096, max=16384, help="How often the password is hashed.")
    ] = 4096,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Add a user, or give one another password. A password is never an argument: others could read that."""
    chosen = tuple(mechanism or ("SCRAM-SHA-256", "SCRAM-SHA-512"))
    password = _password(user, password_file)
    common.ask(
        bootstrap_servers, lambda admin: admin.set_password(user, password, mechanisms=chosen, iterations=iterations)
    )
    typer.echo(f"user {user} logs in by {', '.join(chosen)}")


@app.command("remove")
def remove_user(
    user: UserName,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Remove a user: there are no new logins, and those that there are end when they have to be renewed."""
    common.ask(bootstrap_servers, lambda admin: admin.remove_user(user))
    typer.echo(f"user {user} is removed")


def _password(user: str, file: Path | None) -> str:
    """Returns the password.

    Raises:
        UsageError: The file cannot be read, or there is no password in it.
    """
    from replog.cli.errors import UsageError

    if file is None:
        given = typer.prompt(f"password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        return str(given)
    try:
        if str(file) == "-":
            line = sys.stdin.readline(PASSWORD_CHARACTERS_MAX + 2)
        else:
            with file.open(encoding="utf-8") as opened:
                line = opened.readline(PASSWORD_CHARACTERS_MAX + 2)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UsageError("--password-file", str(file), f"--password-file {file} cannot be read: {reason}") from None
    password = line.removesuffix("\n").removesuffix("\r")
    if not 0 < len(password) <= PASSWORD_CHARACTERS_MAX:
        raise UsageError(
            "--password-file", str(file), f"the first line of {file} has {len(password)} characters, not 1 to 1,024"
        )
    return password
