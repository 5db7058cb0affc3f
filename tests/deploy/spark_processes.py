"""Spark's processes beside the tests: a standalone master with workers, and drivers.  All of them end with the test run.

Ports are chosen by the processes themselves and read off what they print.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pyspark

from tests.deploy.driver import ANSWER, GO
from tests.spark.spark_kit import wait_until

SCRIPT = Path(__file__).with_name("driver.py")
START_TIMEOUT_S = 400
ANSWER_TIMEOUT_S = 400
END_TIMEOUT_S = 60

SHORT_LIVED_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -XX:-UsePerfData"
"""Half of what a JVM costs in its first minute is compiling for the hours to come."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # both executors are there before the first task is given to one of them
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}

DAEMON_ENVIRONMENT = {
    "SPARK_HOME": str(Path(pyspark.__file__).parent),
    "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_JVM,
    "SPARK_DAEMON_MEMORY": "256m",
}


class Standalone:
    """A standalone master with workers of two cores each: room for two applications.

    Args:
        folder: The folder for what they print and for the working directories of applications.
        environment: The variables of the workers, which executors inherit.
        workers: The number of workers.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], workers: int = 2) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir()
        try:
            at = ["--host", "127.0.0.1"]
            (self.url,) = self._start("master", "master.Master", at, environment, r"Starting Spark master at (\S+)")
            for number in range(workers):
                at = [
                    "--host",
                    f"127.0.0.{number + 1}",
                ]  # Spark tries a task a second time at the same time on another host only
                where = [*at, "--cores", "2", "--memory", "2g", "--work-dir", str(folder / f"work-{number}"), self.url]
                self._start(f"worker-{number}", "worker.Worker", where, environment, r"Successfully registered (with)")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def workers(self) -> list[psutil.Process]:
        return [psutil.Process(process.pid) for process in self._processes[1:] if process.poll() is None]

    def close(self) -> None:
        """Ends all of them, workers first, and what they have started."""
        started = [child for worker in self.workers for child in worker.children(recursive=True)]
        for process in reversed(self._processes):
            process.kill()
            process.wait(END_TIMEOUT_S)
        end_all(started)

    def _start(
        self, name: str, java_class: str, more: Sequence[str], environment: Mapping[str, str], pattern: str
    ) -> tuple[str, ...]:
        """Starts one process; returns the groups of the pattern in what it prints."""
        log = self.folder / f"{name}.log"
        command = [
            f"{DAEMON_ENVIRONMENT['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{java_class}",
            "--port", "0", "--webui-port", "0", *more,
        ]  # fmt: skip
        with log.open("wb") as output:
            process = subprocess.Popen(
                dying_with_us(command), cwd=self.folder, env={**environment, **DAEMON_ENVIRONMENT},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        self._processes.append(process)
        wait_until(lambda: process.poll() is not None or re.search(pattern, log.read_text()), START_TIMEOUT_S)
        found = re.search(pattern, log.read_text())
        assert found is not None, log.read_text()[-3_000:]
        return found.groups()


class Driver:
    """A driver that runs jobs one after the other.

    Args:
        master: The URL of the master.
        folder: The folder that it is started in.
        environment: Its variables.
        settings: Settings of Spark, over SETTINGS.
        python: The interpreter.
    """

    def __init__(
        self,
        master: str,
        folder: Path,
        environment: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.log = folder / "driver.log"
        listed = [f"{name}={value}" for name, value in {**SETTINGS, **(settings or {})}.items()]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                dying_with_us([python, str(SCRIPT), master, *listed]), cwd=folder, env=dict(environment),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, encoding="utf-8",
            )  # fmt: skip
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        try:
            self.answer(START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, job: str, **request: Any) -> None:
        """Has a job started; `answer` returns what it found."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps({"job": job, **request}) + "\n")
            self._process.stdin.flush()

    def answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        """Returns what the job found, `error` in it where it failed; fails where the driver ended."""
        try:
            found = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            found = {"ended": True}
        assert "ended" not in found, f"no answer; the end of {self.log}:\n{self.log.read_text()[-3_000:]}"
        return found

    @property
    def has_answered(self) -> bool:
        """Whether a job is over whose answer nobody has taken."""
        return not self._answers.empty()

    def run(self, job: str, **request: Any) -> dict[str, Any]:
        """Runs a job that must succeed."""
        self.begin(job, **request)
        found = self.answer()
        assert "error" not in found, found["error"]
        return found

    def error(self, job: str, **request: Any) -> str:
        """Runs a job that must fail; returns what it says."""
        self.begin(job, **request)
        found = self.answer()
        assert "error" in found, f"it did not fail: {found}"
        return str(found["error"])

    def close(self) -> None:
        """Ends it in order."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends it with SIGKILL, and its JVM and their Python."""
        started = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)
        end_all(started)
        self._reader.join(END_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # a request that it has not read
                    pipe.close()

    def _read_answers(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                if line.startswith(ANSWER):
                    self._answers.put(json.loads(line.removeprefix(ANSWER)))
        self._answers.put({"ended": True})


class Gate:
    """Holds up each task of a job after some rows, until it is opened.

    Args:
        folder: An empty folder, or one to be made.
        rows: The number of rows that a task passes before.
        batch: The number of the micro-batch whose tasks are held up; "": those of all.
    """

    def __init__(self, folder: Path, rows: int, batch: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.request = {"folder": str(folder), "rows": rows, "batch": batch}

    def wait(self, driver: Driver, tasks: int) -> dict[str, psutil.Process]:
        """Waits until so many tasks stand at it; returns "task-attempt" -> its executor."""
        wait_until(lambda: len(self.attempts()) >= tasks or driver.has_answered, ANSWER_TIMEOUT_S)
        assert len(self.attempts()) >= tasks, f"the job was over: {driver.answer(1)}"
        return {mark: psutil.Process(int((self.folder / mark).read_text())).parent() for mark in self.attempts()}

    def attempts(self) -> list[str]:
        """The attempts of tasks that have come to it."""
        return sorted(path.name for path in self.folder.glob("*-*") if not path.suffix)

    def open(self) -> None:
        (self.folder / GO).touch()


def end_all(processes: Sequence[psutil.Process]) -> None:
    """Ends processes with SIGKILL, those that are left of them, and waits until they are gone."""
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)  # psutil looks whether the id is still that process
        except psutil.NoSuchProcess:
            continue
    _, left = psutil.wait_procs(list(processes), END_TIMEOUT_S)
    assert left == []


def dying_with_us(command: list[str]) -> list[str]:
    """Has the kernel end the process when this one ends, whatever ended it (util-linux; elsewhere only fixtures do)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command


def clean_environment() -> dict[str, str]:
    """The variables of a machine where nobody has heard of replog."""
    dropped = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in dropped}
