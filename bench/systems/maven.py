"""Java peers in a cache folder that stays: jars from Maven, and classes that are compiled from `bench/java` at run time.

~/.cache/replog-bench/<name>-<digest of the pom>/*.jar
                     /<folder>-classes-<digest of the sources and the pom>/*.class
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from bench.cache import kept

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
    name = f"{pom}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    return sorted(kept(name, partial(_resolve, source)).glob("*.jar"))


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

    def compile_into(folder: Path) -> None:
        command = [program("javac"), "-encoding", "UTF-8", "-cp", libraries, "-d", str(folder)]
        _must([*command, *map(str, files)], sources)

    folder = kept(f"{sources}-classes-{hashlib.sha256(content).hexdigest()[:12]}", compile_into)
    return os.pathsep.join([str(folder), libraries])


def _resolve(source: Path, folder: Path) -> None:
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    _must([program("mvn"), "-q", "-B", "-Dstyle.color=never", "-f", str(source), *goal], source.name)


def _must(command: Sequence[str], what: str) -> None:
    tool = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=TOOL_TIMEOUT_S, text=True)
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"{tool} had not made {what} after {TOOL_TIMEOUT_S} s") from None
    if done.returncode:
        lines = "; ".join(line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip())
        raise PeerUnavailableError(f"{tool} cannot make {what}: {lines[:_REASON_LENGTH_MAX]}")
