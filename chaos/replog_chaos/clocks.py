"""Wall clocks of single nodes that jump, while their monotonic clocks and the machine's own clock go on.

A small library (`jumping_clock.c`) answers the nodes' questions for the time of day.  It is compiled with the system's C
compiler and put before libc with LD_PRELOAD; each node has a file with the offset of its clock.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from replog.errors import ReplogError

OFFSET_VARIABLE = "REPLOG_CLOCK_OFFSET"
COMPILERS = ("cc", "gcc", "clang")
SECOND_NS = 1_000_000_000
HOUR_NS = 3_600 * SECOND_NS
DAY_NS = 24 * HOUR_NS

_SOURCE = Path(__file__).with_name("jumping_clock.c")
_PROBE = "import time; print(time.time_ns(), time.monotonic_ns())"


class ClocksNotAvailableError(ReplogError):
    """This machine does not let us move the wall clock of a process; the message says why."""


class Clocks:
    """One movable wall clock for each node; all of them are right at first.

    Args:
        folder: The folder of the library and the offsets; made if it is not there.
        node_ids: The nodes that get one.

    Raises:
        ClocksNotAvailableError: There is no C compiler, or it failed.
    """

    def __init__(self, folder: Path, node_ids: Iterable[int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._library = folder / "jumping_clock.so"
        _compile(self._library)
        self._files = {node_id: folder / f"clock-{node_id}" for node_id in node_ids}
        self.mend()

    def environment(self, node_id: int) -> dict[str, str]:
        """Returns the environment variables that the process of the node must be started with."""
        preloads = [str(self._library), *os.environ.get("LD_PRELOAD", "").split()]
        return {"LD_PRELOAD": " ".join(preloads), OFFSET_VARIABLE: str(self._files[node_id])}

    def jump(self, node_id: int, offset_ns: int) -> None:
        """Sets the wall clock of the node so far ahead of the machine's, or behind it where negative."""
        fd = os.open(self._files[node_id], os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(fd, struct.pack("=q", offset_ns), 0)
        finally:
            os.close(fd)

    def mend(self) -> None:
        """Sets all clocks right again, which is one more jump."""
        for node_id in self._files:
            self.jump(node_id, 0)


def clocks_are_missing() -> str:
    """Says why no wall clock of a process can be moved; "" where it can."""
    with tempfile.TemporaryDirectory(prefix="replog-clock-") as directory:
        try:
            clocks = Clocks(Path(directory), [1])
        except ClocksNotAvailableError as error:
            return str(error)
        clocks.jump(1, DAY_NS)
        command = [sys.executable, "-c", _PROBE]
        environment = os.environ | clocks.environment(1)
        probe = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)  # noqa: S603 -- ours
        if probe.returncode:
            return f"a process does not start with a moved clock: {probe.stderr.strip()}"
        wall_ns, monotonic_ns = map(int, probe.stdout.split())
        if wall_ns - time.time_ns() < DAY_NS - HOUR_NS or monotonic_ns > time.monotonic_ns():
            return "LD_PRELOAD does not move the clock of a process here"
    return ""


def _compile(library: Path) -> None:
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise ClocksNotAvailableError("no C compiler here")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 -- our own arguments
    if done.returncode:
        raise ClocksNotAvailableError(f"{compiler} does not compile here: {done.stderr.strip()}")
