"""Apache Kafka for these tests: its jars from Maven and our small Java programs, in cache folders that stay.

    ~/.cache/replog-tests/kafka-jars-4.1.1-<digest of pom.xml and the sources>/libs/*.jar
                                                                              /programs.jar
                                                                              /<digest of JVM and class path>.jsa
                                                                              /formatted/*
    ~/.cache/replog-tests/kafka-3.9.1-<the same>/libs/*.jar, formatted/*
    ~/.cache/replog-tests/kafka-clients-3.9.1-<digest of clients-pom.xml>/libs/*.jar
    ~/.cache/replog-tests/kafka-connect-4.1.1-<digest of connect-pom.xml>/libs/*.jar
    ~/.cache/replog-tests/kafka-streams-4.1.1-<digest of streams-pom.xml and the programs>/libs/*.jar, programs.jar

The folder gets its name when it is complete, so that a broken download is never used; two test runs at once wait for
each other.  Whatever is missing (a JDK, Maven, the network) is one reason, given to `KafkaUnavailableError`.

A `.jsa` holds the classes as the JVM has them in memory (`class_archive.py`), `formatted` is the log directory of a new node
(`kafka_node.py`); they join a folder that is complete without them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests import short_lived_java
from tests.kafka.many_calls import ManyCalls

VERSION = "4.1.1"
OLDEST = "3.9.1"
"""Of the brokers that our clients are for: the last one before 4.0."""

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
CLIENTS_POM = HERE / "clients-pom.xml"
CONNECT_POM = HERE / "connect-pom.xml"
STREAMS_POM = HERE / "streams-pom.xml"
SOURCES = sorted((HERE / "java").glob("*.java"))
STREAMS_SOURCES = sorted((HERE / "streams").glob("*.java"))

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
    """Java, and a class path with Kafka and our programs.

    Attributes:
        java: The path of the program.
        class_path: What Java finds classes in: jars only, as an archive of them demands.
        options: Given to each JVM before all others.
    """

    java: str
    class_path: str
    options: tuple[str, ...] = ()
    _calls: ManyCalls = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_calls", ManyCalls(lambda: self.command("ManyCalls")))

    @property
    def folder(self) -> Path:
        """Its folder in the cache."""
        return Path(self.class_path.rpartition(":")[2]).parent.parent

    @property
    def archive(self) -> Path:
        """Where the archive of the classes is, if one was made: it fits this JVM and this class path only."""
        java = Path(self.java).resolve()
        made_for = f"{java} {java.stat().st_mtime_ns} {self.class_path}"
        return self.folder / f"{_short(made_for.encode())}.jsa"

    def command(self, main_class: str, *arguments: str, options: Sequence[str] = SMALL_JVM) -> list[str]:
        """The command line that runs a class."""
        archive = self.archive
        shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        return [self.java, *shared, *self.options, *options, "-cp", self.class_path, main_class, *arguments]

    def run(self, main_class: str, *arguments: str, stdin: str = "", status: int = 0) -> Printed:
        """Runs a class to its end, in one JVM with all others that are run so.

        Raises:
            AssertionError: it ended with another status.
        """
        done = self._calls.call(main_class, *arguments, stdin=stdin)
        text = f"{main_class} {arguments[:2]}: {done.output[-2000:]}\n{done.errors[-4000:]}"
        assert done.status == status, text
        return Printed(done.output, done.errors)

    def run_alone(
        self, main_class: str, *arguments: str, timeout_s: float = 120, stdin: str = "", status: int = 0
    ) -> Printed:
        """Runs a class as its users do: in a JVM of its own.

        Raises:
            AssertionError: it ended with another status.
        """
        done = subprocess.run(
            self.command(main_class, *arguments),
            input=stdin,
            capture_output=True,
            check=False,
            timeout=timeout_s,
            encoding="utf-8",
        )
        text = f"{main_class} {arguments[:2]}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        assert done.returncode == status, text
        errors = done.stderr.splitlines(keepends=True)
        return Printed(done.stdout, "".join(line for line in errors if not line.startswith(short_lived_java.NOTE)))

    def close(self) -> None:
        """Ends the JVM of `run`."""
        self._calls.close()


def install() -> KafkaInstall:
    """Finds or makes the installation.

    Raises:
        KafkaUnavailableError: no JDK, no Maven, or Maven cannot resolve (no network?).
    """
    return _with_programs("kafka-jars", POM, SOURCES, f"-Dversion.of.kafka={VERSION}")


def install_streams() -> KafkaInstall:
    """Finds or makes an installation of Kafka Streams with our program.

    Raises:
        KafkaUnavailableError: as for `install`.
    """
    return _with_programs("kafka-streams", STREAMS_POM, STREAMS_SOURCES)


def _with_programs(name: str, pom: Path, sources: Sequence[Path], *settings: str) -> KafkaInstall:
    """Finds or makes a folder with the jars of a pom and our programs, compiled with them."""
    java, javac, jar = program("java"), program("javac"), program("jar")

    def make(making: Path) -> None:
        _resolve(pom, making / "libs", *settings)
        compile_ = [javac, "-encoding", "UTF-8", "-cp", f"{making}/libs/*", "-d", f"{making}/classes"]
        _must([*compile_, *map(str, sources)], COMPILE_TIMEOUT_S)
        _must([jar, "--create", "--file", f"{making}/programs.jar", "-C", f"{making}/classes", "."], COMPILE_TIMEOUT_S)
        shutil.rmtree(making / "classes")

    folder = _made(f"{name}-{VERSION}-{_digest(pom, *sources)}", make)
    return KafkaInstall(java, f"{folder}/programs.jar:{folder}/libs/*")


def install_brokers(version: str) -> KafkaInstall:
    """Finds or makes an installation of Kafka's brokers of another version, beside our programs.

    Raises:
        KafkaUnavailableError: as for `install`.
    """
    return _beside_programs(f"kafka-{version}-{_digest(POM)}", POM, f"-Dversion.of.kafka={version}")


def install_clients(version: str) -> KafkaInstall:
    """Finds or makes an installation of Kafka's Java client of another version, beside our programs.

    Raises:
        KafkaUnavailableError: as for `install`.
    """
    name = f"kafka-clients-{version}-{_digest(CLIENTS_POM)}"
    return _beside_programs(name, CLIENTS_POM, f"-Dversion.of.clients={version}")


def _beside_programs(name: str, pom: Path, *settings: str) -> KafkaInstall:
    programs = install().class_path.partition(":")[0]
    folder = _made(name, lambda making: _resolve(pom, making / "libs", *settings))
    return KafkaInstall(program("java"), f"{programs}:{folder}/libs/*")


def install_connect() -> KafkaInstall:
    """Finds or makes an installation of Kafka Connect with its connectors for files.

    Raises:
        KafkaUnavailableError: as for `install`.
    """
    folder = _made(
        f"kafka-connect-{VERSION}-{_digest(CONNECT_POM)}", lambda making: _resolve(CONNECT_POM, making / "libs")
    )
    return KafkaInstall(program("java"), f"{folder}/libs/*")


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of the cache with a name, which only a complete one has."""
    folder = cache_folder() / name
    if not folder.is_dir():
        with only_one_process(cache_folder() / "lock"):
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as beside:
                    making = Path(beside) / folder.name
                    make(making)
                    making.rename(folder)
    return folder


def _resolve(pom: Path, libs: Path, *settings: str) -> None:
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
    command = [program("mvn"), "-q", "-B", "-Dstyle.color=never", "-f", str(pom), *settings, *goal]
    _must(command, RESOLVE_TIMEOUT_S, attempts=RESOLVE_ATTEMPTS)


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


def program(name: str) -> str:
    """Finds a program on the PATH.

    Raises:
        KafkaUnavailableError: there is none.
    """
    found = shutil.which(name)
    if found is None:
        raise KafkaUnavailableError(
            f"there is no '{name}' on the PATH (a JDK of version 17 or later and Maven are needed)"
        )
    return found


def cache_folder() -> Path:
    """Where downloads and what is built stay between runs."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "replog-tests"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _digest(*paths: Path) -> str:
    return _short(b"".join(path.read_bytes() for path in paths))


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


@contextmanager
def only_one_process(path: Path) -> Iterator[None]:
    """Keeps other processes out for as long as the block."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
