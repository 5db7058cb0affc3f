"""Apache Kafka for these tests: its jars from Maven and our two small Java programs, in a cache folder that stays.

    ~/.cache/replog-tests/kafka-4.1.1-<digest of pom.xml and the sources>/libs/*.jar
                                                                         /classes/*.class

The folder gets its name when it is complete, so that a broken download is never used; two test runs at once wait for
each other.  Whatever is missing (a JDK, Maven, the network) is one reason, given to `KafkaUnavailableError`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

VERSION = "4.1.1"
HERE = Path(__file__).parent
POM = HERE / "pom.xml"
SOURCES = sorted((HERE / "java").glob("*.java"))

RESOLVE_TIMEOUT_S = 240
COMPILE_TIMEOUT_S = 60
RESOLVE_ATTEMPTS = 2
_REASON_LENGTH_MAX = 600

UTF_8 = ("-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8", "-Dstdout.encoding=UTF-8")
SMALL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", *UTF_8)


class KafkaUnavailableError(Exception):
    """Kafka cannot be had here; the message says why."""


class Printed(NamedTuple):
    """What a program printed; DumpLogSegments prints mismatches as errors."""

    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class KafkaInstall:
    """Java, and a class path with Kafka and our programs."""

    java: str
    class_path: str

    def command(self, main_class: str, *arguments: str, options: Sequence[str] = SMALL_JVM) -> list[str]:
        """The command line that runs a class."""
        return [self.java, *options, "-cp", self.class_path, main_class, *arguments]

    def run(self, main_class: str, *arguments: str, timeout_s: float = 120) -> Printed:
        """Runs a class to its end.

        Raises:
            AssertionError: it failed.
        """
        done = subprocess.run(
            self.command(main_class, *arguments), capture_output=True, check=False, timeout=timeout_s, encoding="utf-8"
        )
        assert done.returncode == 0, f"{main_class} {arguments[:2]}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return Printed(done.stdout, done.stderr)


def install() -> KafkaInstall:
    """Finds or makes the installation.

    Raises:
        KafkaUnavailableError: no JDK, no Maven, or Maven cannot resolve (no network?).
    """
    java, javac = _program("java"), _program("javac")
    folder = _cache() / f"kafka-{VERSION}-{_digest()}"
    if not folder.is_dir():
        maven = _program("mvn")
        with _only_one(_cache() / "lock"):
            if not folder.is_dir():
                _make(folder, maven, javac)
    return KafkaInstall(java, f"{folder}/classes:{folder}/libs/*")


def _make(folder: Path, maven: str, javac: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as name:
        making = Path(name) / folder.name
        resolve = [
            maven,
            "-q",
            "-B",
            "-Dstyle.color=never",
            "-f",
            str(POM),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
        ]
        _must([*resolve, f"-DoutputDirectory={making}/libs"], RESOLVE_TIMEOUT_S, attempts=RESOLVE_ATTEMPTS)
        compile_ = [javac, "-encoding", "UTF-8", "-cp", f"{making}/libs/*", "-d", f"{making}/classes"]
        _must([*compile_, *map(str, SOURCES)], COMPILE_TIMEOUT_S)
        making.rename(folder)


def _must(command: list[str], timeout_s: float, *, attempts: int = 1) -> None:
    for attempt in range(attempts):
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=timeout_s, text=True)
        except subprocess.TimeoutExpired:
            reason = f"no end after {timeout_s:.0f} s"
        else:
            if done.returncode == 0:
                return
            lines = (done.stdout + done.stderr).splitlines()
            reason = "; ".join(line.strip() for line in lines if line.strip())[:_REASON_LENGTH_MAX]
        if attempt == attempts - 1:
            raise KafkaUnavailableError(f"{Path(command[0]).name} failed {attempts} times: {reason}")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise KafkaUnavailableError(
            f"there is no '{name}' on the PATH (a JDK of version 17 or later and Maven are needed)"
        )
    return found


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "replog-tests"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _digest() -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in [POM, *SOURCES])).hexdigest()[:12]


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
