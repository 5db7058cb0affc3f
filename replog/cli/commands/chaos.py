"""`replog chaos`: the place in the tree of commands for a neighbour that users of the package do not get.

The tool breaks clusters, stands in `chaos/` of the repository, and is no part of the distribution.  It is imported when one
of its commands is asked for: whatever is wrong with it, or how long it takes, is no matter of the other commands.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from replog.cli.errors import CommandFailedError

NEIGHBOUR = "replog_chaos"


class _Neighbour(TyperGroup):
    """The group of commands that the neighbour defines; empty until one is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of the commands."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns a command; None where there is none of this name."""
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if not is_there():
            raise CommandFailedError(
                "replog chaos is not part of the installed package. In a checkout of the repository `make test` "
                "makes it ready, as .venv/bin/replog chaos"
            )
        if not self.commands:
            group: Any = typer.main.get_command(import_module(f"{NEIGHBOUR}.command").app)
            self.commands.update(group.commands)


def is_there() -> bool:
    """Whether the neighbour can be imported; does not import it."""
    return find_spec(NEIGHBOUR) is not None


app = typer.Typer(
    cls=_Neighbour,
    help="Break a cluster of real processes, and see what clients see.",
    no_args_is_help=True,
    hidden=not is_there(),
)
