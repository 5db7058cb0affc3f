"""All commands in one tree, and the one place where errors become a line and a status."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

import replog
from replog.cli import client_config
from replog.cli.errors import INTERRUPTED, READER_GONE, WRONG_USAGE, report, tell
from replog.cli.terminal import standard_streams
from replog.errors import ReplogError

COMMANDS: Final[Mapping[str, str]] = {
    "dev": "dev",
    "status": "status",
    "doctor": "doctor",
    "console": "console",
    "debug": "debug_app",
    "produce": "produce",
    "consume": "consume",
    "perf": "app",
    "capture": "capture",
    "export": "export",
    "import": "import_file",
    "registry": "app",
    "storage": "app",
    "server": "server_app",
    "cluster": "app",
    "topics": "app",
    "partition": "app",
    "groups": "app",
    "transactions": "app",
    "acls": "app",
    "dlq": "app",
    "brokers": "app",
    "log-dirs": "app",
    "configs": "app",
    "quorum": "app",
    "quotas": "app",
    "users": "app",
    "tokens": "app",
    "features": "features_app",
    "log": "app",
    "metadata": "app",
    "certs": "app",
    "chaos": "app",
}
"""What stands under each name in its module, in the order of the help: a group, `app`, or a function."""

_COMMANDS: Final = "replog.cli.commands"
_MODULES: Final[Mapping[str, str]] = {
    "acls": "replog.cli.access.acls",
    "capture": f"{_COMMANDS}.files",
    "certs": "replog.cli.certificates",
    "console": "replog.console.command",
    "debug": f"{_COMMANDS}.doctor",
    "export": f"{_COMMANDS}.files",
    "features": f"{_COMMANDS}.metadata",
    "import": f"{_COMMANDS}.files",
    "quotas": "replog.cli.access.quotas",
    "server": f"{_COMMANDS}.storage",
    "tokens": "replog.cli.access.tokens",
    "users": "replog.cli.access.users",
}
"""Where a command is that has no module of its name; the console stands above the command line, and only its name is known here."""

_LOOKS: Final[Mapping[str, Any]] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # its boxes cut long words, such as names of keys and variables, at 80 columns
}


class _Commands(TyperGroup):
    """The commands of `COMMANDS`.

    Each is imported and built when it is asked for: to build them all takes longer than what most of them do.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 -- the signature of click
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 -- the signature of click
        return _command(cmd_name) if cmd_name in COMMANDS else None


@cache
def _command(name: str) -> Any:
    module = _MODULES.get(name, f"{_COMMANDS}.{name.replace('-', '_')}")
    found = getattr(import_module(module), COMMANDS[name])
    parent = typer.Typer(callback=lambda: None, **_LOOKS)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    group: Any = typer.main.get_command(parent)
    return group.commands[name]


app = typer.Typer(
    cls=_Commands,
    name="replog",
    help="A replicated log with Kafka's storage and replication semantics.",
    context_settings={"help_option_names": ["-h", "--help"]},
    **_LOOKS,
)

_ClickError: Any = typer.BadParameter.__mro__[2]
"""Base of all usage errors.  Found this way because typer carries click inside itself or beside it, by version."""

_debug = False


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(replog.__version__)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--client-config",
            envvar=client_config.CONFIG_VARIABLE,
            metavar="FILE",
            help="TOML file with Kafka's settings of TLS and SASL, for commands that connect to brokers.",
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 -- its callback does the work
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    global _debug  # noqa: PLW0603 -- one command line per process; `run` reads it when the command has failed
    _debug = debug
    client_config.use(config)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; returns the exit status (see `replog.cli.errors`)."""
    global _debug  # noqa: PLW0603 -- as above
    _debug = False
    try:
        status = app(args=list(arguments), prog_name="replog", standalone_mode=False)
        sys.stdout.flush()
    except _ClickError as error:
        return _report_usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except standard_streams.ReaderGoneError:
        standard_streams.discard_unwritten()
        return READER_GONE
    except (ReplogError, OSError) as error:
        standard_streams.discard_unwritten()
        if _debug:
            raise
        return report(error)
    return status if isinstance(status, int) else 0


def _report_usage(error: Any) -> int:
    message: str = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: the message is its help
        tell(message)
        return WRONG_USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "replog"
    tell(f"error: {_flat(message)} See `{path} --help`.")
    return WRONG_USAGE


def _flat(text: str) -> str:
    flat = " ".join(text.split()).replace(": Value error, ", ": ")  # of the library that typer checks values with
    return flat if flat.endswith((".", "?", ")")) else f"{flat}."
