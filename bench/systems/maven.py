"""Java peers from Maven, in a cache folder that stays: `~/.cache/replog-bench/<name>-<digest of the pom>/*.jar`.

The folder gets its name when it is complete, so that a broken download is never used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

POMS = Path(__file__).resolve().parents[1] / "java"
RESOLVE_TIMEOUT_S = 300
_REASON_LENGTH_MAX = 300


class PeerUnavailableError(Exception):
    """A peer cannot be had here; the message says why."""


def program(name: str) -> str:
    """The path of a program.

    Raises:
        PeerUnavailableError: it is not on the PATH.
    """
    found = shutil.which(name)
    if found is None:
        raise PeerUnavailableError(f"there is no '{name}' on the PATH (Java 17 or later and Maven are needed)")
    return found


@cache
def jars(pom: str) -> Sequence[Path]:
    """The jars of a pom in `bench/java`, from the cache or from Maven.

    Raises:
        PeerUnavailableError: no Maven, or it cannot resolve them (no network?).
    """
    source = POMS / f"{pom}-pom.xml"
    folder = _cache() / f"{pom}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not folder.is_dir():
        _resolve(source, folder)
    return sorted(folder.glob("*.jar"))


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "replog-bench"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _resolve(source: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as name:
        making = Path(name) / folder.name
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={making}"]
        command = [program("mvn"), "-q", "-B", "-Dstyle.color=never", "-f", str(source), *goal]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=RESOLVE_TIMEOUT_S, text=True)
        except subprocess.TimeoutExpired:
            raise PeerUnavailableError(f"Maven had not resolved {source.name} after {RESOLVE_TIMEOUT_S} s") from None
        if done.returncode:
            lines = "; ".join(line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip())
            raise PeerUnavailableError(f"Maven cannot resolve {source.name}: {lines[:_REASON_LENGTH_MAX]}")
        if not folder.is_dir():  # another run may have been faster
            making.rename(folder)
