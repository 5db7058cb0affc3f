"""The `replog` command for tests: as a process of its own, or, where a process is not the point, in this one.

An interpreter that starts and imports everything takes half a second of CPU, most commands a hundredth of that.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from typing import NamedTuple
from unittest import mock

from replog.cli.main import main

PATIENCE_S = 120.0
"""How long a command may take on a busy machine; `cluster start` by itself waits for a minute."""


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "replog.cli", *map(str, arguments)]


def replog(*arguments: object, stdin: str = "", env: dict[str, str] | None = None) -> Done:
    """Runs a process, as a user does."""
    done = subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return Done(done.returncode, done.stdout, done.stderr)


def replog_here(*arguments: object, stdin: str = "", env: dict[str, str] | None = None) -> Done:
    """Runs the command line in this process; not for tests with a running loop, nor for what starts nodes."""
    out, err = _stream(), _stream()
    with (
        mock.patch.dict(os.environ, env or {}),
        mock.patch.object(sys, "stdin", _stream(stdin)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = main([str(argument) for argument in arguments])
    return Done(status, _text(out), _text(err))


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
