"""The `replog` command for tests: as a process of its own, or, where a process is not the point, in this one.

An interpreter that starts and imports everything takes a quarter of a second of CPU, most commands a tenth of that.  So a
process of its own is a fork of one that has imported the commands, which `multiprocessing` starts once and ends with this
process.  `command` is for tests that need more of it: pipes, signals, a shell.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest import mock

import replog.cli.commands
from replog.cli.main import main, script

PATIENCE_S = 120.0
"""How long a command may take on a busy machine; `cluster start` by itself waits for a minute."""

_APPENDS = os.O_WRONLY | os.O_APPEND
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "replog.cli.app",
        "replog.client.admin.admin",
        "replog.client.admin.health",
        "replog.client.consumer.consumer",
        "replog.client.producer.producer",
        "replog.cluster.local_cluster",
        *(f"replog.cli.commands.{module.name}" for module in pkgutil.iter_modules(replog.cli.commands.__path__)),
    ]
)


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "replog", *map(str, arguments)]


def replog(*arguments: object, stdin: str = "", env: dict[str, str] | None = None) -> Done:
    """Runs a process, as a user does."""
    with TemporaryDirectory() as name:
        streams = Path(name)
        status = run_forked(list(map(str, arguments)), streams, stdin=stdin, env={**os.environ, **(env or {})})
        return Done(status, (streams / "out").read_text("utf-8"), (streams / "err").read_text("utf-8"))


def run_forked(
    arguments: Sequence[str], streams: Path, *, stdin: str, env: Mapping[str, str], cwd: Path | None = None
) -> int:
    """Runs the command in a process that is forked for it, and waits for its end.

    Args:
        arguments: What stands behind `replog`.
        streams: An empty folder: `out` and `err` in it are what the process wrote.
        stdin: What it reads.
        env: All of its environment.
        cwd: The folder that it runs in; None: that of this process.

    Returns:
        Its exit status.

    Raises:
        TimeoutError: It has not ended in `PATIENCE_S`, and was killed.
    """
    for name, text in ("in", stdin), ("out", ""), ("err", ""):
        (streams / name).write_text(text, "utf-8")
    arguments_of_run = (list(arguments), str(streams), dict(env), str(cwd or Path.cwd()))
    process = _FORKS.Process(target=_run, args=arguments_of_run)
    process.start()
    process.join(PATIENCE_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"replog {' '.join(arguments)}: {(streams / 'err').read_text('utf-8')}")
    return process.exitcode


def _run(arguments: list[str], streams: str, env: dict[str, str], cwd: str) -> None:
    """What the fork does: it takes streams, environment, folder and arguments as if it had been started with them."""
    for descriptor, (name, flags) in enumerate((("in", os.O_RDONLY), ("out", _APPENDS), ("err", _APPENDS))):
        opened = os.open(f"{streams}/{name}", flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 -- as long as the process
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["replog", *arguments]
    script()


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
