"""All commands in one tree, and the one place where errors become a line and a status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import replog
from replog.cli.commands import (
    brokers,
    chaos,
    cluster,
    configs,
    consume,
    features,
    groups,
    log,
    log_dirs,
    metadata,
    partition,
    produce,
    quorum,
    reassign,
    server,
    status,
    storage,
    topics,
)
from replog.cli.errors import INTERRUPTED, READER_GONE, WRONG_USAGE, report, tell
from replog.cli.terminal import standard_streams
from replog.errors import ReplogError

app = typer.Typer(
    name="replog",
    help="A replicated log with Kafka's storage and replication semantics.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes cut long words, such as names of keys and variables, at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(storage.app, name="storage")
app.add_typer(server.app, name="server")
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(partition.app, name="partition")
app.add_typer(groups.app, name="groups")
app.add_typer(brokers.app, name="brokers")
app.add_typer(log_dirs.app, name="log-dirs")
app.add_typer(configs.app, name="configs")
app.add_typer(quorum.app, name="quorum")
app.add_typer(features.app, name="features")
app.add_typer(log.app, name="log")
app.add_typer(metadata.app, name="metadata")
app.add_typer(chaos.app, name="chaos")
topics.app.command("alter")(reassign.alter)
topics.app.command("reassign")(reassign.reassign)
topics.app.command("elect-leaders")(reassign.elect_leaders)
app.command("status")(status.status)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)

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
    version: Annotated[  # noqa: ARG001 -- its callback does the work
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    global _debug  # noqa: PLW0603 -- one command line per process; `run` reads it when the command has failed
    _debug = debug


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
