"""`replog metadata`: looks into the metadata log of a node, or into a running cluster, and checks it; `replog features`: shows and changes its levels."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replog.cli import common

if TYPE_CHECKING:
    from replog.cli.metadata.shell import MetadataShell

app = typer.Typer(help="Look into the cluster's metadata, now or at any offset, and check it.", no_args_is_help=True)
features_app = typer.Typer(
    help="Show the levels of a cluster's features, and raise them after an upgrade.", no_args_is_help=True
)


@app.command("shell", context_settings={"ignore_unknown_options": True})
def shell(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND...]", help="ls, cat, tree, find, diff A..B, watch; without: a prompt."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="A node's log directory; it may be running.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", "--bootstrap-servers", "-b", metavar="HOST:PORT,...", help="Ask a running cluster instead."
        ),
    ] = None,
    directory: common.ClusterDirectory = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="OFFSET", help="Everything below this offset; needs --data-dir.")
    ] = None,
) -> None:
    """Walk through brokers, topics, partitions and configs as through files.

    With --data-dir at any offset that the log or a snapshot still has, and without changing a byte; what is shown there
    need not be committed. With --bootstrap (default: $REPLOG_BOOTSTRAP_SERVERS) the newest state that clients are told.
    """
    if directory is not None:
        bootstrap = common.servers(bootstrap or common.DEFAULT_BOOTSTRAP_SERVERS, directory)
    opened = _open_shell(data_dir, bootstrap, at)
    if command:
        for line in opened.run(command):
            typer.echo(line)
    else:
        _converse(opened, is_terminal=sys.stdin.isatty())


@app.command("check")
def check(
    data_dir: Annotated[
        Path, typer.Argument(metavar="DIR", help="A node's log directory, or the metadata log's own folder.")
    ],
    as_json: common.AsJson = False,
) -> None:
    """Check a metadata log: every byte, every record, what must hold of partitions, and the snapshots.

    Only reads; the node may be running, then its last batch may look torn. Exit status 1 when anything does not fit;
    `first_bad_offset` says where.
    """
    from replog.cli.checks.metadata import check_rows
    from replog.cli.dump import row_as_text

    sound = True
    for row in check_rows(data_dir):
        typer.echo(json.dumps(row, ensure_ascii=False) if as_json else row_as_text(row))
        sound = sound and row["kind"] != "finding"
    if not sound:
        raise typer.Exit(1)


def _open_shell(data_dir: Path | None, bootstrap: str | None, at: int | None) -> MetadataShell:
    from replog.cli.errors import UsageError
    from replog.cli.metadata.shell import MetadataShell
    from replog.cli.metadata.sources import LiveSource, OfflineSource

    if data_dir is not None and bootstrap is not None:
        raise UsageError("--bootstrap", bootstrap, "--data-dir and --bootstrap: give one of them")
    if data_dir is None and at is not None:
        raise UsageError("--at", at, "--at needs --data-dir: a running node shows its newest image only")
    source = LiveSource(_bootstrap_servers(bootstrap)) if data_dir is None else OfflineSource(data_dir)
    return MetadataShell(source, at)


def _bootstrap_servers(given: str | None) -> str:
    return given or os.environ.get(common.SERVERS_VARIABLE) or common.DEFAULT_BOOTSTRAP_SERVERS


def _converse(opened: MetadataShell, *, is_terminal: bool) -> None:
    """Answers lines from a person, or from a pipe: there the first that fails ends it."""
    from replog.cli.errors import describe
    from replog.errors import ReplogError

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 -- its import gives `input` a history and keys to edit with

    while True:
        try:
            line = input(f"{opened.folder} @{opened.offset}> " if is_terminal else "")
        except EOFError:
            return
        if line.strip() in {"exit", "quit"}:
            return
        try:
            for answer in opened.answer(line):
                typer.echo(answer)
        except (ReplogError, OSError) as error:
            if not is_terminal:
                raise
            typer.echo(describe(error), err=True)
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            typer.echo("", err=True)  # it ends `watch`, not the shell


@features_app.command("describe")
def describe_features(
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
    as_json: common.AsJson = False,
) -> None:
    """Show the level of each feature that is in force, and the levels that the asked broker knows."""
    from replog.cli.terminal.grid import Grid

    found = common.ask(bootstrap_servers, lambda admin: admin.describe_features())
    if as_json:
        for name, one in found.items():
            typer.echo(common.json_line(one, feature=name))
        return
    rows = [(name, str(one.level), str(one.min_level), str(one.max_level)) for name, one in found.items()]
    common.out_console().print(Grid(("feature", ">level", ">lowest", ">highest"), rows))


@features_app.command("upgrade")
def upgrade(
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="NAME=LEVEL", help="Default: all, to the highest levels of this version."),
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Let the cluster use what only this version knows; nodes of the version before cannot come back then.

    Refused, with the name of the node, while one of them does not know a level.
    """
    levels = levels_of(features or [])
    common.ask(bootstrap_servers, lambda admin: admin.update_features(levels), "changing levels")
    for name, level in levels.items():
        typer.echo(f"{name} is at level {level}")


@features_app.command("downgrade")
def downgrade(
    features: Annotated[
        list[str],
        typer.Option("--feature", metavar="NAME=LEVEL", help="The feature, and the level that it is to go back to."),
    ],
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    _directory: common.OrDirectory = None,
) -> None:
    """Let the cluster go back to a lower level of a feature; 0 switches one off.

    metadata.version cannot be lowered: the metadata log may hold what a lower level does not know.
    """
    levels = levels_of(features)
    common.ask(bootstrap_servers, lambda admin: admin.update_features(levels, allow_downgrade=True), "changing levels")
    for name, level in levels.items():
        typer.echo(f"{name} is at level {level}")


def levels_of(features: list[str]) -> dict[str, int]:
    """Returns the level that each feature shall have: the highest of this version where none is named.

    Raises:
        UsageError: One of them is not NAME=LEVEL.
    """
    from replog.cli.errors import UsageError
    from replog.metadata.features import SUPPORTED_FEATURES

    if not features:
        return {feature.name: feature.max_level for feature in SUPPORTED_FEATURES}
    levels = {}
    for name, text in common.key_values(features, "--feature").items():
        if re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) is None:
            raise UsageError(
                "--feature", text, f'--feature {name}: "{text}" is no level; levels are numbers from 0 to 9999'
            )
        levels[name] = int(text)
    return levels
