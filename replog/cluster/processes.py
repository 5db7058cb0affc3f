"""Processes of ours: recognised again by pid and start time, ended by id only; the ports that they are given."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

POLL_S = 0.02
PORTS_FROM = 10_240
"""The first port that a cluster of this machine may be given: below, services have theirs."""
PORT_TRIES = 50
"""How many ports are tried before the kernel is asked for any."""
_LAST_LINES_BYTES = 64 * 1024


class ProcessId(Struct, frozen=True):
    """A process that cannot be mistaken for a later one with the same pid.

    `started`: start time in clock ticks since boot (Linux ``/proc``); 0 where the system does not tell.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        return cls(pid, _start_time(pid))

    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return False  # somebody else's process has this pid now
        return _start_time(self.pid) == self.started and not _is_zombie(self.pid)

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal if the process is still ours; whether it was."""
        if not self.is_alive():
            return False
        os.kill(self.pid, number)
        return True


class Child(Protocol):
    """A process that this one has started, and whose end it hears of: a part of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; returns the exit status.

        Raises:
            subprocess.TimeoutExpired: It has not ended within so many seconds.
        """

    def kill(self) -> None:
        """Ends it with SIGKILL."""


async def wait_until_gone(process: ProcessId, child: Child | None, timeout_s: float) -> bool:
    """Whether the process ended in time; reaps it if it is our child."""
    deadline = time.monotonic() + timeout_s
    while True:
        if child is not None and child.poll() is not None:
            return True
        if child is None and not process.is_alive():
            return True
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(POLL_S)


class KeptPorts:
    """Ports of 127.0.0.1 that nobody used, and that nobody else who looks for one is given, until they are released.

    A node that asks for such a port by its number gets it: with SO_REUSEADDR on both sides, a socket that does not listen
    is in nobody's way.  They are released with the object: a cluster may be left to run by whoever started it.  The kernel
    has them for no connection either, not even afterwards, where there are others: a node that was killed is to find its
    port free whenever it is started again.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        weakref.finalize(self, _close_all, self._sockets)

    def take(self, count: int) -> list[int]:
        """Finds and keeps so many more ports, all different."""
        for _ in range(count):
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._sockets.append(one)
            _bind_unused(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # from here on, so that no two keep the same one
        return [one.getsockname()[1] for one in self._sockets[len(self._sockets) - count :]]

    def release(self) -> None:
        """Lets others have them again."""
        _close_all(self._sockets)


def _bind_unused(one: socket.socket) -> None:
    """Binds a socket to a port that nobody uses, below those that connections get, or else to any."""
    first_of_connections = _first_port_of_connections()
    for _ in range(PORT_TRIES if first_of_connections > PORTS_FROM else 0):
        try:
            one.bind(("127.0.0.1", PORTS_FROM + secrets.randbelow(first_of_connections - PORTS_FROM)))
        except OSError:
            continue
        return
    one.bind(("127.0.0.1", 0))


def _first_port_of_connections() -> int:
    """Returns where the ports begin that the kernel gives to connections; 0 where it does not say."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _close_all(sockets: list[socket.socket]) -> None:
    while sockets:
        sockets.pop().close()


def is_free(port: int) -> bool:
    """Whether nobody uses a port of 127.0.0.1 at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have just ended do not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def last_lines(file: Path, count: int) -> str:
    """Returns the end of a log file, however large that is, for error messages and progress; "" where there is none."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_LINES_BYTES))
            lines: Sequence[str] = log.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-count:])


def _stat_fields(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat from the state on; the command name before may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _start_time(pid: int) -> int:
    fields = _stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def _is_zombie(pid: int) -> bool:
    return _stat_fields(pid)[:1] == ["Z"]
