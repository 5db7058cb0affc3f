"""Programs that the bench starts and that must not outlive it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

ENDING_S = 20.0
"""How long a program may take to end its own processes and remove its files, when it is told to."""


def dying_with_us(*command: str) -> list[str]:
    """Returns a command that the kernel ends with this process, also when this one is killed; where there is `setpriv`."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]


def run_whole(
    *command: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; if we are interrupted, it is too, and nothing is left of it and of what it has started.

    It has a process group of its own, so that a Ctrl-C is for us alone, and reaches it once.

    Args:
        command: The program and its arguments.
        cwd: The folder in which it runs.
        env: The environment; by default ours.
        timeout_s: The seconds after which it is ended.

    Raises:
        subprocess.TimeoutExpired: It took longer.
    """
    process = subprocess.Popen(
        dying_with_us(*command),
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        finally:
            _end(process)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupts a program that still runs, waits for its end, and kills what is left of its group."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
