"""Runs kinds of jobs side by side, round after round, for a given time; keeps what they find, and says at the end what was done."""

from __future__ import annotations

import random
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.kinds import Job, Kind, make_job
from tests.campaign.running_jobs import POLL_S, Ended, RunningJob, end_all

JOB_MIN_S, JOB_MAX_S = 5.0, 60.0
FIRST, END = 1_000_000_000, 2**31 - 100_000
"""Seeds are drawn from these: above those of the tests."""
TAIL_LINES = 60


@dataclass(slots=True)
class Tally:
    """What was done of one kind."""

    runs: int = 0
    cut: int = 0
    units: int = 0
    virtual_s: int = 0
    cpu_s: float = 0.0
    finds: list[Path] = field(default_factory=list)


class Campaign:
    """One campaign.

    Args:
        kinds: What is run, one after the other, again and again.
        duration_s: How long no job is cut; then all are.
        processes: How many jobs run side by side.
        finds: The folder for finds; made with the first of them.
        seed: Decides all that is drawn.
        say: Told each find, and what is begun.

    Attributes:
        tallies: What was done, by the name of the kind.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        *,
        duration_s: float,
        processes: int,
        finds: Path,
        seed: int,
        say: Callable[[str], object] = print,
    ) -> None:
        self.tallies = {kind.name: Tally() for kind in kinds}
        self._kinds = kinds
        self._duration_s = duration_s
        self._processes = processes
        self._finds = finds
        self._rng = random.Random(seed)
        self._say = say
        self._stops = 0
        self._job_s = min(JOB_MAX_S, max(JOB_MIN_S, duration_s * processes / 2 / len(kinds)))

    def run(self) -> None:
        """Runs jobs until the time is over, or `stop` is called.  Nothing is left running."""
        until_s = time.monotonic() + self._duration_s
        queue, running = self._queue(), list[RunningJob]()
        with tempfile.TemporaryDirectory(prefix="replog-campaign-") as scratch:
            try:
                while not self._stops and time.monotonic() < until_s:
                    self._fill(running, queue, until_s, Path(scratch))
                    if not running:
                        break
                    time.sleep(POLL_S)
                    self._reap(running)
            finally:
                for ended in end_all(running, is_impatient=lambda: self._stops > 1):
                    self._note(ended)

    def stop(self, *_: object) -> None:
        """Ends it soon, and the jobs in order; a second time: at once.  It may be called by a signal."""
        self._stops += 1

    def _queue(self) -> Iterator[Kind]:
        """Yields what comes next: all kinds, then again those that draw anew."""
        yield from self._kinds
        while again := [kind for kind in self._kinds if kind.draws]:
            yield from again

    def _fill(self, running: list[RunningJob], queue: Iterator[Kind], until_s: float, scratch: Path) -> None:
        while len(running) < self._processes:
            remaining_s = until_s - time.monotonic()
            kind = next((each for each, _ in zip(queue, self._kinds, strict=False) if each.unit_s <= remaining_s), None)
            if kind is None:
                return
            folder = Path(tempfile.mkdtemp(dir=scratch))
            job = make_job(kind, self._rng.randrange(FIRST, END), min(self._job_s, remaining_s / 2), folder)
            running.append(RunningJob(job, folder))

    def _reap(self, running: list[RunningJob]) -> None:
        for job in list(running):
            if (ended := job.poll()) is not None:
                running.remove(job)
                self._note(ended)

    def _note(self, ended: Ended) -> None:
        tally = self.tallies[ended.job.kind.name]
        tally.runs += not ended.was_cut
        tally.cut += ended.was_cut
        tally.units += 0 if ended.was_cut else ended.job.count
        tally.virtual_s += virtual_s(ended.output)
        tally.cpu_s += ended.cpu_s
        if ended.is_find:
            path = write_find(ended, self._finds)
            tally.finds.append(path)
            self._say(f"FOUND by {ended.job.kind.name}: {path}")

    @property
    def finds(self) -> list[Path]:
        """The files of all finds."""
        return [path for tally in self.tallies.values() for path in tally.finds]

    def summary(self) -> str:
        """Returns the table of what was done."""
        units = {kind.name: kind.units for kind in self._kinds}
        rows = [f"{'kind':<36} {'runs':>5} {'cut':>4} {'units':>17} {'virtual s':>10} {'CPU s':>8} {'finds':>6}"]
        for name, tally in self.tallies.items():
            done = f"{tally.units:,} {units[name]}"
            rows.append(
                f"{name[-36:]:<36} {tally.runs:>5} {tally.cut:>4} {done:>17} {tally.virtual_s:>10,} {tally.cpu_s:>8.1f}"
                f" {len(tally.finds):>6}"
            )
        idle = [name for name, tally in self.tallies.items() if not tally.runs + tally.cut]
        rows += [f"not begun in this time: {', '.join(idle)}"] if idle else []
        return "\n".join(rows + [f"find: {path}" for path in self.finds])


def virtual_s(output: str) -> int:
    """Returns how many virtual seconds a simulation says it has run."""
    return sum(int(number) for number in re.findall(r"^ *(\d+)  virtual seconds$", output, re.MULTILINE))


def write_find(ended: Ended, folder: Path) -> Path:
    """Writes down what a job has found, with the command that repeats it; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    job = ended.job
    name = re.sub(r"[^\w.]+", "-", job.kind.name).strip("-")
    path = folder / f"{name}-{job.seed}.txt"
    lines = ended.output.splitlines()
    path.write_text(
        f"{job.kind.name}, seed {job.seed}, exit status {ended.status} after {ended.elapsed_s:.0f} s\n\n"
        f"repeat it with\n    {repeated(job, ended.output)}\n\n"
        f"its last lines\n" + "\n".join(lines[-TAIL_LINES:]) + f"\n\nall {len(lines)} lines\n{ended.output}",
        encoding="utf-8",
    )
    return path


def repeated(job: Job, output: str) -> str:
    """Returns the line that repeats a find: of the one seed that the output names, if the kind has a command for that."""
    named = re.search(r"\[seed (\d+)", output)
    if not named or not job.kind.repeat:
        return job.line
    words = shlex.join(word.replace("{seed}", named[1]) for word in job.kind.repeat)
    return f"{job.line.partition(' ')[0]} {words}"
