"""`replog features`: what a cluster uses once all of its nodes know it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from replog.cli import common

app = typer.Typer(help="Raise the levels of a cluster's features after an upgrade.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `upgrade` a command of its own although it is the only one."""


@app.command("upgrade")
def upgrade(
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="NAME=LEVEL", help="Default: all, to the highest levels of this version."),
    ] = None,
    bootstrap_servers: common.BootstrapServers = common.DEFAULT_BOOTSTRAP_SERVERS,
    directory: common.ClusterDirectory = None,
) -> None:
    """Let the cluster use what only this version knows; nodes of the version before cannot come back then.

    Refused, with the name of the node, while one of them does not know a level.
    """
    bootstrap_servers = common.servers(bootstrap_servers, directory)
    levels = levels_of(features or [])
    common.run(_upgrade(bootstrap_servers, levels))
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


async def _upgrade(bootstrap_servers: str, levels: Mapping[str, int]) -> None:
    async with await common.admin_of(bootstrap_servers) as admin:
        with common.waiting("raising levels"):
            await admin.update_features(levels)
