"""The processes of nodes: forked from one that has loaded what a node needs, or started by themselves.

A fork is what `LocalCluster` wants: it listens after a tenth of the CPU.  A node whose surroundings are its own (`NodePlace`) is
started by itself, as operations start nodes; so are all where the system has no pidfd (Linux before 5.3, macOS).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from msgspec import Struct, field

from replog.broker.fork_server import PADDING, NodeRequest, pair, read_message
from replog.cluster.processes import POLL_S, Child, ProcessId

READY_TIMEOUT_S: Final = 60.0
"""As long as a busy machine may take to start an interpreter that loads a broker's modules."""

FORK_TIMEOUT_S: Final = 30.0
"""As long as a busy machine may take to fork a process."""


class NodePlace(Struct, frozen=True):
    """What the process of a node finds around it.

    Attributes:
        host: The address by which it is known.
        listens_on: The address it binds, such as 0.0.0.0; "": `host`.
        launcher: The command to put before its own, which it must become (`exec`), with the same process id.
        environment: The variables of its own, over those of this process.
    """

    host: str = "127.0.0.1"
    listens_on: str = ""
    launcher: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_usual(self) -> bool:
        """Whether its process may be a fork of one with the surroundings of this process."""
        return not self.launcher and not self.environment


def spawn_node(
    config_file: Path, log_file: Path, place: NodePlace, *, die_with_parent: bool, accept_empty: bool
) -> Child:
    """Starts the process of one node; as a fork where `prepare_forks` has been awaited and nothing speaks against it.

    Args:
        config_file: The TOML file of the node.
        log_file: The file that gets what it prints; appended to.
        place: The place where it runs.
        die_with_parent: Whether the kernel ends it when this process ends, whatever ended that; otherwise it gets a
            session of its own and outlives the terminal.
        accept_empty: Whether log directories without data are formatted.
    """
    arguments = ["--config", str(config_file)]
    if accept_empty:
        arguments.append("--accept-empty")
    server = _ready_server() if place.is_usual else None
    if server is not None:
        with suppress(ForkServerGoneError):
            return server.fork(NodeRequest(tuple(arguments), outlives_parent=not die_with_parent), log_file)
    # -P: a random.py in the working directory is none of the node's modules
    command = [*place.launcher, sys.executable, "-P", "-m", "replog.broker", *arguments]
    if die_with_parent:
        command += ["--parent-pid", str(os.getpid())]
    with log_file.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 -- our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | place.environment,
            start_new_session=not die_with_parent,
        )


def begin_forks() -> None:
    """Starts what `prepare_forks` waits for: it loads modules for some tenths of a second."""
    _started_server()


async def prepare_forks() -> None:
    """Makes nodes that this process starts from now on forks, where the system can; returns when that is so.

    The process that forks them is started once, and ends with this one.
    """
    if (server := _started_server()) is not None:
        await server.wait_until_ready()


_server: _Server | None = None
_servers_before: list[subprocess.Popen[bytes]] = []
"""Those of other surroundings: each ends when its nodes have ended."""
_starting = threading.Lock()


def _ready_server() -> _Server | None:
    """Returns the process that can be asked for a fork now, if there is one."""
    return _server if _server is not None and _server.fits and _server.is_ready else None


def _started_server() -> _Server | None:
    """Returns the process that can be asked for forks as soon as it is ready, and starts it where there is none.

    Returns:
        None where the system cannot have one.
    """
    global _server, _servers_before  # noqa: PLW0603 -- one for the whole process
    with _starting:
        if _server is None or not _server.fits:
            _servers_before = [process for process in _servers_before if process.poll() is None]
            if _server is not None and _server.is_own:
                _servers_before.append(_server.process)
            _server = None
            if hasattr(os, "pidfd_open"):
                with suppress(OSError):
                    _server = _Server.start()
        return _server


class ForkServerGoneError(Exception):
    """The process that forks nodes has ended: somebody must have ended it."""


_READ_BY_NODES: Final = (
    "GLIBC_",
    "GRPC_",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "OPENSSL_",
    "PYTHON",
    "REPLOG_",
    "TMPDIR",
    "TZ",
)
"""How the variables begin that a node, or what it is made of, reads; some others change all the time, as pytest's do."""


def _surroundings() -> tuple[object, ...]:
    """Returns what a process has from the one that starts it, so that a fork of an earlier one would lack what is new."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(_READ_BY_NODES)}
    limits = tuple(resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_"))
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    umask = [line for line in status if line.startswith("Umask:")]
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    where = (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), os.getpgrp())
    return (variables, sys.executable, limits, umask, ignored, where)


class _Server:
    """The process that forks nodes for this one: `replog.broker.fork_server`.

    It ends by itself, with this process or when nothing is left to do.

    Invariants:
        - a child that was forked from this process never asks it;
        - it is asked only while this process has the surroundings that it had when it started it.
    """

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._control = control
        self._owner_pid = os.getpid()
        self._surroundings = _surroundings()
        self._is_ready = False
        weakref.finalize(self, control.close)

    @classmethod
    def start(cls) -> Self:
        """Starts one.

        Raises:
            OSError: There can be no more processes or descriptors.
        """
        control, other = pair()
        arguments = [str(os.getpid()), str(other.fileno()), PADDING]
        try:
            with other:
                process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
                    [sys.executable, "-P", "-m", "replog.broker.fork_server", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[other.fileno()],
                )
        except BaseException:
            control.close()
            raise
        atexit.register(_leave, process)
        return cls(control, process)

    @property
    def is_own(self) -> bool:
        """Whether this process started it, and not the one that this was forked from."""
        return self._owner_pid == os.getpid()

    @property
    def fits(self) -> bool:
        """Whether it is this process's own, has not ended, and would give a node what this process has now."""
        return self.is_own and self.process.poll() is None and self._surroundings == _surroundings()

    @property
    def is_ready(self) -> bool:
        """Whether it has loaded the modules."""
        if not self._is_ready:
            with suppress(OSError):  # nothing is there yet, or never will be
                self._is_ready = self._control.recv(1, socket.MSG_DONTWAIT) != b""
        return self._is_ready

    async def wait_until_ready(self) -> None:
        """Returns when it can be asked, or never will be."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.is_ready or self.process.poll() is not None:
                return
            await asyncio.sleep(POLL_S)

    def fork(self, request: NodeRequest, log_file: Path) -> ForkedNode:
        """Forks the process of a node.

        Raises:
            ForkServerGoneError: It has ended.
            TimeoutError: It does not answer; it forks nothing for this request any more.
            OSError: There can be no more processes or descriptors, or no log file.
        """
        told, other = pair()
        told.settimeout(FORK_TIMEOUT_S)
        try:
            with other, log_file.open("ab") as log, _working_directory() as directory:
                told.send(request.to_message())  # before anybody waits for it
                socket.send_fds(self._control, [b"."], [other.fileno(), log.fileno(), directory])
            return ForkedNode(_pid_in(read_message(told) or {}), told)
        except BaseException as error:
            told.close()
            if isinstance(error, BrokenPipeError | ConnectionResetError):
                raise ForkServerGoneError from error
            if isinstance(error, TimeoutError):
                raise TimeoutError(
                    f"process {self.process.pid}, which forks nodes, has not answered for {FORK_TIMEOUT_S:.0f} s. If it"
                    f" is stopped, let it go on: kill -CONT {self.process.pid}"
                ) from error
            raise


def _leave(server: subprocess.Popen[bytes]) -> None:
    """Takes a server for ended at the end of this process, behind which it ends: nobody is to warn of it."""
    if server.poll() is None:
        server.returncode = 0


@contextmanager
def _working_directory() -> Iterator[int]:
    """Opens the directory in which this process works, which need not have a path any more."""
    descriptor = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _pid_in(answer: Mapping[str, int]) -> int:
    """Returns the process of an answer.

    Raises:
        OSError: There can be no more processes.
        ForkServerGoneError: The answer is empty: the server has ended, or may open nothing more.
    """
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    if "pid" not in answer:
        raise ForkServerGoneError
    return answer["pid"]


class ForkedNode:
    """The process of a node that was forked for this one: a `Child`.

    Its parent is the process that forks, which tells its end over a socket.
    """

    def __init__(self, pid: int, told: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._process = ProcessId.of(pid)
        self._told = told
        self._lock = threading.Lock()
        told.settimeout(0)
        weakref.finalize(self, told.close)

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""
        with self._lock:
            if self.returncode is None:
                with suppress(BlockingIOError):
                    answer = read_message(self._told)
                    self.returncode = answer["status"] if answer else self._status_that_nobody_told()
            if self.returncode is not None:
                self._told.close()
            return self.returncode

    def _status_that_nobody_told(self) -> int | None:
        """Returns the status where the process that forks was ended, and with it each node that does not outlive it."""
        return None if self._process.is_alive() else -signal.SIGKILL

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; returns the exit status.

        Raises:
            subprocess.TimeoutExpired: It has not ended within so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"node {self.pid}", timeout or 0.0)
            time.sleep(POLL_S)
        return status

    def kill(self) -> None:
        """Ends it with SIGKILL, if it still runs."""
        self._process.signal(signal.SIGKILL)
