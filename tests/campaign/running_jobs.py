"""A job's process: begun, watched, ended with all that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.campaign.kinds import PATHS, Job
from tests.campaign.proven import ROOT

POLL_S = 0.1
"""How often it is looked at a job."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a job.

    Attributes:
        job: The job.
        status: Its exit status; negative: the signal that ended it.
        was_cut: Whether the campaign has ended it.
        elapsed_s: How long it ran.
        cpu_s: The CPU time of its processes.
        output: What it has said.
    """

    job: Job
    status: int
    was_cut: bool
    elapsed_s: float
    cpu_s: float
    output: str

    @property
    def is_find(self) -> bool:
        """Whether it has found something, or could not do what it was to do."""
        return self.status != 0 and not self.was_cut


class RunningJob:
    """A job that has begun.

    Args:
        job: The job.
        folder: An empty folder for what it writes.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self._output = folder / "output"
        self._began_s = time.monotonic()
        self._was_cut = False
        inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        paths = {"PYTHONPATH": ":".join(str(ROOT / path) for path in PATHS)}
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                job.command,
                cwd=ROOT,
                env=inherited | paths | job.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for the campaign, which passes it on
            )

    def poll(self) -> Ended | None:
        """Returns what became of it; None while it runs."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        return self._ended(status, usage.ru_utime + usage.ru_stime) if pid else None

    def interrupt(self) -> None:
        """Has it end in order, as Ctrl-C in a terminal does: all processes of its group are told."""
        self._was_cut = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def kill(self) -> Ended:
        """Ends it and all processes that it has started."""
        self._was_cut = True
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        _, status, usage = os.wait4(self._process.pid, 0)
        return self._ended(status, usage.ru_utime + usage.ru_stime)

    def _ended(self, status: int, cpu_s: float) -> Ended:
        self._process.returncode = os.waitstatus_to_exitcode(status)
        said = self._output.read_text(encoding="utf-8", errors="replace")
        elapsed_s = time.monotonic() - self._began_s
        return Ended(self.job, self._process.returncode, self._was_cut, elapsed_s, cpu_s, said)


def end_all(running: list[RunningJob], is_impatient: Callable[[], bool] = lambda: False) -> list[Ended]:
    """Ends jobs in order, those that do not within the grace of their kind at once; returns what became of them.

    Args:
        running: The jobs.
        is_impatient: Whether somebody does not want to wait for that.
    """
    ended, waiting, began_s = list[Ended](), list(running), time.monotonic()
    for job in running:
        job.interrupt()
    while waiting:
        waited_s = time.monotonic() - began_s
        for job in list(waiting):
            end = job.poll()
            if end is None and (waited_s >= job.job.kind.grace_s or is_impatient()):
                end = job.kill()
            if end is not None:
                waiting.remove(job)
                ended.append(end)
        if waiting:
            time.sleep(POLL_S)
    return ended
