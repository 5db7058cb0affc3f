"""A program beside a node: a process of its own that is started again when it ends, and that ends with the node.

Why a process: what people click on must not hold the loop of a broker, nor take it down.  The node holds the program's standard
input and writes nothing to it: its end tells the program that the node is gone, also after a kill that let nobody clean up.

| what happens                           | what follows                                                                     |
|----------------------------------------|----------------------------------------------------------------------------------|
| the program ends                       | it is started again after a pause, which doubles while it keeps on ending        |
| the node stops                         | its input is closed; who has not ended `GRACE_S` later is killed                 |
| the node is killed                     | the kernel closes its input, and the program ends by itself                      |
| Ctrl-C in the terminal of the node     | reaches the node only: the program is in a session of its own                    |
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Sequence
from typing import Final

from replog.waiting.task_ends import end_tasks

GRACE_S: Final = 3.0
PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 30.0

STEADY_S: Final = 60.0
"""A program that has run for so long begins anew with the shortest pause."""

_log = logging.getLogger(__name__)


class Companion:
    """Keeps one program running; it is made on the loop that drives the node.

    Args:
        name: The name of the program, for the log.
        arguments: The program and its arguments; it ends when its standard input does, and says a line when it
            serves; programs that it starts must not outlive it with its output open.

    Attributes:
        starts_count: How often it was started.
    """

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.starts_count = 0
        self._arguments = tuple(arguments)
        self._task: asyncio.Task[None] | None = None
        self._said: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Begins to keep it running."""
        self._task = asyncio.create_task(self._run(), name=f"companion-{self.name}")

    async def stop(self) -> None:
        """Ends the program, and waits for its end."""
        await end_tasks(self._task)
        self._said.cancel()

    async def first_line(self) -> str:
        """Waits until the program says its first line; returns it.  Raises: asyncio.CancelledError: It was stopped before."""
        return await asyncio.shield(self._said)

    async def _run(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), PAUSE_S_MIN
        while True:
            began_s = loop.time()
            how = await self._run_once()
            pause_s = PAUSE_S_MIN if loop.time() - began_s >= STEADY_S else pause_s
            _log.warning("%s %s; it is started again in %g s", self.name, how, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _run_once(self) -> str:
        """Starts the program, logs what it says, and returns how it has ended."""
        try:
            process = await self._spawned()
        except OSError as error:
            return f"could not be started: {error}"
        try:
            await self._hear(process)
            return f"has ended with status {await process.wait()}"
        finally:
            await _end(process)

    async def _spawned(self) -> Process:
        """Starts the program; who is cancelled meanwhile ends it before."""
        self.starts_count += 1
        spawning = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._arguments, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True
            )
        )
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await _end(await spawning)
            raise

    async def _hear(self, process: Process) -> None:
        """Writes each line that the program says to the log, until it has ended."""
        if process.stdout is None:
            return
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than the reader takes: its beginning is dropped
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            _log.info("%s: %s", self.name, text)
            if not self._said.done():
                self._said.set_result(text)


async def _end(process: Process) -> None:
    """Closes the input of a program, gives it `GRACE_S`, then kills it; returns when it is gone."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(GRACE_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has started holds its output, too
        await process.wait()
