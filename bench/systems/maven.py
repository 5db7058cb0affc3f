"""Java peers in a cache folder that stays: jars from Maven, and classes that are compiled from `bench/java` at run time.

    ~/.cache/replog-bench/<name>-<digest of the pom>/*.jar
                         /<folder>-classes-<digest of the sources and the pom>/*.class

A folder gets its name when it is complete, so that a broken download is never used.
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
TOOL_TIMEOUT_S = 300
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


def why_missing(*poms: str) -> str | None:
    """Why Java and these poms cannot be had here; None: they can."""
    try:
        program("java")
        for pom in poms:
            jars(pom)
    except PeerUnavailableError as error:
        return str(error)
    return None


@cache
def class_path(pom: str, sources: str) -> str:
    """The class path of the programs in the folder `sources` of `bench/java` and the jars of a pom.

    Raises:
        PeerUnavailableError: no Maven, no compiler, or one of them failed.
    """
    libraries = os.pathsep.join(map(str, jars(pom)))
    files = sorted((POMS / sources).glob("*.java"))
    content = b"".join(path.read_bytes() for path in [POMS / f"{pom}-pom.xml", *files])
    folder = _cache() / f"{sources}-classes-{hashlib.sha256(content).hexdigest()[:12]}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as name:
            making = Path(name) / folder.name
            command = [program("javac"), "-encoding", "UTF-8", "-cp", libraries, "-d", str(making)]
            _must([*command, *map(str, files)], sources)
            _keep(making, folder)
    return os.pathsep.join([str(folder), libraries])


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "replog-bench"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _resolve(source: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as name:
        making = Path(name) / folder.name
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={making}"]
        _must([program("mvn"), "-q", "-B", "-Dstyle.color=never", "-f", str(source), *goal], source.name)
        _keep(making, folder)


def _must(command: Sequence[str], what: str) -> None:
    tool = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=TOOL_TIMEOUT_S, text=True)
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"{tool} had not made {what} after {TOOL_TIMEOUT_S} s") from None
    if done.returncode:
        lines = "; ".join(line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip())
        raise PeerUnavailableError(f"{tool} cannot make {what}: {lines[:_REASON_LENGTH_MAX]}")


def _keep(making: Path, folder: Path) -> None:
    if not folder.is_dir():  # another run may have been faster
        making.rename(folder)
