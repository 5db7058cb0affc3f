"""What the demo shows: numbered steps, events as they happen, and always a sign of life.

On a terminal a bar or spinner runs below the events.  Elsewhere (CI, a file) a line appears whenever nothing else has
been printed for a second and a half, so that nobody wonders whether it hangs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn

QUIET_S_MAX = 1.5
STEPS_COUNT = 6


class WorkOverError(Exception):
    """Nobody waits for this work any more."""


class Work:
    """Something that takes a while.

    Args:
        text: The words for what is being done.
        total: The number of the things that are counted; None where nothing is counted.
        noun: The word for the things.
    """

    def __init__(self, text: str, total: int | None, noun: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.text = text
        self.total = total
        self.done = 0
        self._noun = noun
        self._is_over = False
        self._clock = clock
        self._started_s = clock()

    def advance(self, count: int) -> None:
        """Adds to what is done; from any thread.

        Raises:
            WorkOverError: The work is over or was given up: a thread that counts here should end.
        """
        if self._is_over:
            raise WorkOverError(self.text)
        self.done += count

    def end(self) -> None:
        """Ends the work: it is done, or given up."""
        self._is_over = True

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started_s

    def measure(self) -> str:
        """Says `120,000 of 336,776 rows, 41,000/s, 3 s`, or the elapsed time alone."""
        elapsed = f"{self.elapsed_s:.0f} s"
        if self.total is None:
            return elapsed
        rate = self.done / self.elapsed_s if self.elapsed_s > 0 else 0
        return f"{self.done:,} of {self.total:,} {self._noun}, {rate:,.0f}/s, {elapsed}"


class Display:
    """One per run; one `working` at a time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed_s = time.monotonic()

    def step(self, number: int, text: str) -> None:
        """Prints the heading of a step."""
        self._print(f"\n[bold]{number}/{STEPS_COUNT}  {escape(text)}[/bold]")

    def event(self, text: str, *, style: str = "") -> None:
        """Prints something that happened, a line below its step."""
        shown = escape(text)
        self._print(f"     [{style}]{shown}[/{style}]" if style else f"     {shown}")

    def show(self, renderable: RenderableType) -> None:
        """Prints a table."""
        self._print(renderable)

    def last_line(self, text: str, *, good: bool) -> None:
        self._print(f"\n[bold {'green' if good else 'red'}]{escape(text)}[/]")

    def _print(self, renderable: RenderableType) -> None:
        self._printed_s = time.monotonic()
        self._console.print(renderable, soft_wrap=isinstance(renderable, str))

    @asynccontextmanager
    async def working(self, text: str, total: int | None = None, noun: str = "rows") -> AsyncIterator[Work]:
        """Shows `text` and how far it is until the block ends."""
        work = Work(text, total, noun)
        runner = self._animate(work) if self._console.is_terminal else self._write_lines(work)
        task = asyncio.create_task(runner, name="demo-display")
        try:
            yield work
        finally:
            work.end()
            task.cancel()
            await asyncio.wait({task})  # unlike `await task` under suppress, this does not swallow a Ctrl-C of ours
            if not task.cancelled():
                task.result()

    async def _animate(self, work: Work) -> None:
        columns = (
            TextColumn("   "),
            SpinnerColumn(),
            TextColumn("{task.description}"),
            _BarWhereCounted(bar_width=30),
            TextColumn("{task.fields[measure]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            bar = progress.add_task(escape(work.text), total=work.total, measure="")
            while True:
                progress.update(bar, completed=work.done, measure=work.measure())
                await asyncio.sleep(0.1)

    async def _write_lines(self, work: Work) -> None:
        while True:
            await asyncio.sleep(0.1)
            if time.monotonic() - self._printed_s >= QUIET_S_MAX:
                self._print(f"     {escape(work.text)}: {work.measure()}")


class _BarWhereCounted(BarColumn):
    """No bar where there is nothing to count."""

    def render(self, task: Task) -> RenderableType:  # type: ignore[override]  # a bar or nothing
        return super().render(task) if task.total is not None else ""
