"""Entry of the `replog` command.

Why so small: typer and rich are an extra, and whoever installed replog without it should read one line that helps.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from replog.cli.errors import INTERRUPTED
from replog.cli.terminal import standard_streams
from replog.host.extras import install_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: The arguments without the program's name; None: those of the process.

    Returns:
        The exit status; `replog.cli.errors` has the table.
    """
    try:
        import rich
        import typer

        from replog.cli.app import run
        from replog.host.process_memory import tune_process
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.stderr.write(f"error: the replog command needs typer and rich: {install_command('cli')}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    del rich, typer
    _show_any_text()
    tune_process()
    return run(sys.argv[1:] if arguments is None else arguments)


def _show_any_text() -> None:
    """Makes stdout escape what its encoding cannot say, as stderr does: names of files need not be text."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def script() -> NoReturn:
    """Runs the command line of this process, and ends it."""
    standard_streams.prepare()
    end_process(main())


def end_process(status: int) -> NoReturn:
    """Ends this process.

    After Ctrl-C nobody waits for threads: one that reads a terminal or asks a name server cannot be stopped.
    """
    if status == INTERRUPTED:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    script()
