"""What a public test suite of a Kafka client is to the tests here: its source is fetched as it was published and built once, and
each of its tests runs in a process of its own, so that one that hangs or crashes says nothing about the next.

Nothing of these suites is in the repository.  They stay in the folder of `kafka_install.cache_folder`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from kafka_install import KafkaUnavailableError, cache_folder, only_one_process, program

MAKE_TIMEOUT_S = 1_200
"""For one step of a build: two cores compile librdkafka and its tests in three minutes, busy ones in ten."""


class Outcome(StrEnum):
    """How a test of a suite ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Ended(NamedTuple):
    """A process that ended, or was ended.

    Attributes:
        code: Its exit code; none if it was ended because its time was over.
        text: What it printed.
    """

    code: int | None
    text: str


class Ran(NamedTuple):
    """A test of a suite that ran."""

    outcome: Outcome
    text: str


class SuiteUnavailableError(Exception):
    """The suite cannot be fetched or built here; the message says why."""


class ClientSuite(Protocol):
    """The tests of one client at one version."""

    def prepare(self) -> None:
        """Fetches and builds what is not there yet.

        Raises:
            SuiteUnavailableError: a program or the network is missing, or the build failed.
        """

    def names(self) -> frozenset[str]:
        """The tests that want a broker; only after `prepare`."""

    def run(self, test: str, servers: str, folder: Path, limit_s: float) -> Ran:
        """Runs one test; only after `prepare`.

        Args:
            test: One of `names`.
            servers: The brokers, host:port separated by commas.
            folder: A folder of its own to run in.
            limit_s: The time after which it is ended and has failed.
        """


def required(name: str) -> str:
    """Finds a program.

    Raises:
        SuiteUnavailableError: it is not on the PATH.
    """
    try:
        return program(name)
    except KafkaUnavailableError:
        raise SuiteUnavailableError(f"there is no '{name}' on the PATH") from None


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Returns a folder of the cache, which gets its name when all is in it: what broke off is begun anew."""
    folder = cache_folder() / name
    if not folder.is_dir():
        with only_one_process(cache_folder() / f"{name}.lock"):
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as making:
                    made = Path(making) / name
                    made.mkdir()
                    make(made)
                    made.rename(folder)
    return folder


def make_step(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs one step of a build and returns what it printed.

    Raises:
        SuiteUnavailableError: it failed.
    """
    ended = run_limited(command, folder, environment or {}, MAKE_TIMEOUT_S)
    if ended.code != 0:
        raise SuiteUnavailableError(f"{' '.join(command[:3])} ended with {ended.code}: {ended.text[-600:]}")
    return ended.text


def run_limited(command: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float) -> Ended:
    """Runs a command to its end, or ends it and all that it started."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            printed = _text(process.communicate(timeout=limit_s)[0])
            return Ended(process.returncode, printed)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Ended(None, f"{_text(process.communicate()[0])}\n(ended after {limit_s:.0f} s)")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "replace")
