"""Step 5, second half: starts the Spark job, follows what it tells, and checks every record that it saw."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.groups import Groups, GroupStats
from examples.demo.ledger import NOBODY, Ledger, ReadCheck, ReadResult
from replog.cli.errors import CommandFailedError
from replog.errors import ConfigError
from replog.host.extras import install_command
from replog.spark.environment import DRIVER_PYTHON, WORKER_PYTHON, environment_for_spark

if TYPE_CHECKING:
    from examples.demo.source import Flights

JOB = Path(__file__).with_name("spark_job.py")
END_TIMEOUT_S = 5.0
LOG_LINES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class SparkAnswers:
    """What Spark made of the topic.

    Attributes:
        read: The comparison of every record of the DataFrame with the acknowledgements.
        groups: The groups that the DataFrame gives.
        streamed: The groups that the stream ended with.
        batches: The number of parts in which the stream came.
    """

    read: ReadResult
    groups: Groups
    streamed: Groups
    batches: int


def spark_environment(directory: Path) -> dict[str, str]:
    """Makes the environment of the Spark job, at the start: what is missing should not be told after all the rest.

    Args:
        directory: The folder for everything that Spark, Java and the job write; it is made here.

    Raises:
        ConfigError: One of pyspark, pyarrow and Java is missing.
    """
    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            raise ConfigError(
                package, None, f"the demo reads with Spark, and {package} is missing: {install_command('demo')}"
            )
    directory.mkdir(parents=True, exist_ok=True)
    ours = {name: value for name, value in os.environ.items() if name not in {WORKER_PYTHON, DRIVER_PYTHON}}
    return environment_for_spark(ours, directory / "environment", is_local=True) | {
        "TMPDIR": str(directory),
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",  # or Java leaves a file in the shared temporary folder
    }


async def read_with_spark(
    bootstrap_servers: str,
    topic: str,
    directory: Path,
    environment: Mapping[str, str],
    flights: Flights,
    ledger: Ledger,
    on_stage: Callable[[dict[str, Any]], None],
) -> SparkAnswers:
    """Lets Spark read the topic and compute the groups, twice, and checks every record that it saw.

    Args:
        directory: The folder for everything that Spark, Java and the job write; it exists.
        environment: The environment that `spark_environment` made.
        on_stage: The function that is told when the session is up, and when the groups, the marks and the stream's groups
            are there.

    Raises:
        CommandFailedError: The job failed; the message holds the end of its log.
    """
    stages = await _run_job(bootstrap_servers, topic, flights.count, directory, environment, on_stage)
    if "stream" not in stages:
        raise CommandFailedError(f"the Spark job failed:\n{_log_end(directory)}")
    read = await asyncio.to_thread(_check_marks, directory / "marks.arrow", flights, ledger)
    stream = stages["stream"]
    return SparkAnswers(read, _groups(stages["groups"]["rows"]), _groups(stream["rows"]), stream["batches"])


def _groups(rows: Iterable[tuple[str, str, int, int, int, float | None]]) -> Groups:
    return {
        (carrier, origin): _checked_mean(GroupStats(flights_count, delays, minutes), mean)
        for carrier, origin, flights_count, delays, minutes, mean in rows
    }


def _checked_mean(stats: GroupStats, mean: float | None) -> GroupStats:
    """Returns the sums and counts; where Spark's own mean is another than theirs, sums that equal nothing."""
    return stats if stats.mean_delay_minutes == mean else GroupStats(stats.flights, stats.delays, sys.maxsize)


async def _run_job(
    bootstrap_servers: str,
    topic: str,
    rows: int,
    directory: Path,
    environment: Mapping[str, str],
    on_stage: Callable[[dict[str, Any]], None],
) -> dict[str, dict[str, Any]]:
    """Runs the job to its end; returns what it told, by stage."""
    command = [sys.executable, "-P", str(JOB), "--bootstrap-servers", bootstrap_servers]
    command += ["--topic", topic, "--rows", str(rows), "--directory", str(directory), "--parent-pid", str(os.getpid())]
    stages: dict[str, dict[str, Any]] = {}
    with (directory / "spark.log").open("wb") as log:
        job = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
            limit=1 << 24,
        )
        try:
            while line := await (job.stdout or asyncio.StreamReader()).readline():
                told = json.loads(line)
                stages[told["stage"]] = told
                on_stage(told)
            await job.wait()
        finally:
            await _end_session(job)
    return stages


async def _end_session(job: asyncio.subprocess.Process) -> None:
    """Ends the job and Java with it, and returns when both are gone: they write into a folder that is removed next."""
    if job.returncode is None:
        _signal_session(job.pid, signal.SIGKILL)
        await job.wait()
    if not await _is_session_over(job.pid):
        _signal_session(job.pid, signal.SIGKILL)
        await _is_session_over(job.pid)  # what is left then is dead, and nobody reaps it: a container without an init


async def _is_session_over(session: int) -> bool:
    """Waits until nobody is left in our job's process group; returns whether that was so in time."""
    deadline_s = asyncio.get_running_loop().time() + END_TIMEOUT_S
    while _signal_session(session, 0):
        if asyncio.get_running_loop().time() > deadline_s:
            return False
        await asyncio.sleep(0.02)
    return True


def _signal_session(session: int, number: int) -> bool:
    """Signals our job's process group; False when nobody is left in it."""
    with suppress(ProcessLookupError):
        os.killpg(session, number)
        return True
    return False


def _check_marks(file: Path, flights: Flights, ledger: Ledger) -> ReadResult:
    import pyarrow as pa

    check = ReadCheck(ledger)
    with pa.memory_map(str(file)) as source:
        for batch in pa.ipc.open_file(source).read_all().to_batches():
            for partition, offset, crc in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                row = check.expect(partition, offset)
                if row != NOBODY and crc != zlib.crc32(flights.values[row], zlib.crc32(flights.keys[row])):
                    check.differs()
    return check.result()


def _log_end(directory: Path) -> str:
    text = (directory / "spark.log").read_text(encoding="utf-8", errors="replace")
    return "\n".join([line for line in text.splitlines() if line.strip()][-LOG_LINES_SHOWN:])
