"""The clients in Go (`go/`), built for a test run; Go's own caches make that a matter of a second from the second time on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent / "go"
PROGRAMS = ("franz", "sarama")
TIMEOUT_S = 240
ENVIRONMENT = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
"""No other Go is downloaded, and no C compiled: these clients need none."""

QUICK_TO_BUILD = ("-gcflags=all=-l -N -dwarf=false", "-ldflags=-w")
"""Neither optimised nor ready for a debugger: that takes two thirds of the time, and a new machine builds all packages, Go's own too."""

_REASON_LENGTH_MAX = 300


class GoUnavailableError(Exception):
    """The programs cannot be built here; the message says why."""


def build(folder: Path) -> None:
    """Builds the programs into a folder.

    Raises:
        GoUnavailableError: there is no Go, it is too old for go.mod, or a module cannot be had (no network?).
        AssertionError: the programs are wrong.
    """
    go = shutil.which("go")
    if go is None:
        raise GoUnavailableError("there is no 'go' on the PATH")
    # nothing is asked of a repository around the sources
    environment = {**os.environ, **ENVIRONMENT, "GOFLAGS": "-buildvcs=false -mod=readonly"}
    try:
        got = _run([go, "mod", "download"], environment)
        if got.returncode:
            raise GoUnavailableError(f"go mod download: {got.stderr.strip()[:_REASON_LENGTH_MAX]}")
        built = _run(
            [go, "build", *QUICK_TO_BUILD, "-o", f"{folder}/", *(f"./{name}" for name in PROGRAMS)], environment
        )
    except subprocess.TimeoutExpired as error:
        raise GoUnavailableError(f"no end after {error.timeout:.0f} s: {' '.join(error.cmd)}") from None
    assert built.returncode == 0, built.stderr


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=SOURCES, env=environment, capture_output=True, check=False, timeout=TIMEOUT_S, encoding="utf-8"
    )
