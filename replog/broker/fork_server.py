"""A process that has loaded a broker's modules, and forks a node for each request: ``python -m replog.broker.fork_server``.

Why: loading the modules costs a process most of the CPU that it needs until it listens.  A node that is forked from one that
has loaded them finds them there, and shares their memory with its neighbours.  `replog.cluster` starts one such process
for the nodes of its clusters; operations start nodes by `python -m replog.broker`, which this leads to as well.

A node is a process of its own, with its id, its log file, its limits and its end.  gRPC's rule about forks is kept: its
modules are loaded here, none of its objects is made, and there is one thread (https://grpc.io/docs/, "fork support").

Why not the fork server of `multiprocessing`: there is one for the whole program, which the application may use for itself; it
imports the application's main module into each child, and its children outlive the program.

The process that asks has the other end of the control socket.  A request is one message on it: a byte, and with it three
descriptors: a socket of the node's own, on which the `NodeRequest` has been sent, its log file, and its working directory.
On the node's socket come in answer, each a message of JSON: ``{"pid": 4711}``, or ``{"errno": 11}`` where there is no fork;
at the end of the node ``{"status": 0}``, negative for a signal.

The process ends, and with it each node that is to, when the process that asks has ended, whatever ended that; or when that
has closed the control socket and no node is left.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

DESCRIPTORS_PER_REQUEST: Final = 3
MESSAGE_BYTES_MAX: Final = 1 << 20
PADDING: Final = "." * 1024
"""The last argument of the process: room for the arguments of a node, which `ps` then shows."""

_ENDS_OF_ARGUMENTS = (48, 49)
"""The fields of /proc/PID/stat that say between which addresses the arguments of a process are (proc(5))."""

_LEFT_TO_THE_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals for a whole group of processes: nodes take them; this process ends when they, and its parent, have ended."""


class NodeRequest(Struct, frozen=True):
    """What the process of a node is told.

    Attributes:
        arguments: The arguments of `replog.broker.__main__.main`.
        outlives_parent: Whether it gets a session of its own and goes on when the process that asked ends.
    """

    arguments: tuple[str, ...]
    outlives_parent: bool

    def to_message(self) -> bytes:
        """Returns the request as it is sent."""
        return to_message([self.arguments, self.outlives_parent])

    @classmethod
    def read(cls, one: socket.socket) -> NodeRequest:
        """Reads the request that was sent."""
        arguments, outlives_parent = read_message(one)
        return cls(tuple(arguments), outlives_parent)


def pair() -> tuple[socket.socket, socket.socket]:
    """Makes two ends of a connection that keeps messages apart: nobody reads half of one, or two at once."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def to_message(values: object) -> bytes:
    """Returns what goes over the socket of a node."""
    return json.dumps(values).encode()


def read_message(one: socket.socket) -> Any:
    """Reads what `to_message` made; returns None where the other end is closed.

    Raises:
        BlockingIOError: Nothing is there, and the socket does not wait.
    """
    message = one.recv(MESSAGE_BYTES_MAX)
    return json.loads(message) if message else None


class _Node(Struct, frozen=True):
    """A node that was forked: its process, and the socket on which its end is told."""

    pid: int
    told: socket.socket
    ended: int
    """The descriptor (pidfd) that is readable when the process has ended."""


class _Start(Struct, frozen=True):
    """What the process of a new node takes over from this one's parent."""

    request: NodeRequest
    log: int
    directory: int
    server_pid: int


class ForkServer:
    """Forks nodes until nobody can ask any more.

    Args:
        control: The socket on which requests arrive.
        parent: The descriptor (pidfd) of the process that asks.
    """

    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._parent = parent
        self._nodes: dict[int, _Node] = {}
        self._selector = selectors.DefaultSelector()

    def serve(self) -> _Start | None:
        """Serves requests; returns None at the end, and in the process of each new node what that begins with."""
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._parent, selectors.EVENT_READ)
        may_ask = True
        while may_ask or self._nodes:
            for key, _ in self._selector.select():
                if key.fd == self._parent:
                    return None
                if key.fd != self._control.fileno():
                    self._tell_end(self._nodes.pop(key.fd))
                    continue
                asked, descriptors, _, _ = socket.recv_fds(self._control, 1, DESCRIPTORS_PER_REQUEST)
                if not asked:
                    may_ask = False
                    self._selector.unregister(self._control)
                elif len(descriptors) < DESCRIPTORS_PER_REQUEST:  # no more may be open; closing tells it
                    for descriptor in descriptors:
                        os.close(descriptor)
                elif (start := self._fork(descriptors)) is not None:
                    return start
        return None

    def _fork(self, descriptors: Sequence[int]) -> _Start | None:
        """Forks a node; returns in its process alone what it begins with."""
        own, log, directory = descriptors
        told = socket.socket(fileno=own)
        start = _Start(NodeRequest.read(told), log, directory, os.getpid())
        try:
            pid = None if _is_closed(told) else os.fork()
        except OSError as error:
            _send(told, {"errno": error.errno})
            pid = None
        if pid == 0:
            told.close()
            self._close_in_child()
            return start
        if pid is None:
            told.close()
        else:
            node = _Node(pid, told, os.pidfd_open(pid))
            self._nodes[node.ended] = node
            self._selector.register(node.ended, selectors.EVENT_READ)
            _send(told, {"pid": pid})
        os.close(log)
        os.close(directory)
        return None

    def _close_in_child(self) -> None:
        self._selector.close()
        self._control.close()
        os.close(self._parent)
        for node in self._nodes.values():
            node.told.close()
            os.close(node.ended)

    def _tell_end(self, node: _Node) -> None:
        self._selector.unregister(node.ended)
        os.close(node.ended)
        _, status = os.waitpid(node.pid, 0)
        _send(node.told, {"status": os.waitstatus_to_exitcode(status)})
        node.told.close()


def _is_closed(told: socket.socket) -> bool:
    """Whether the process that asks has closed its end: it waits no more."""
    try:
        return not told.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _send(told: socket.socket, values: object) -> None:
    with suppress(OSError):  # nobody wants to know any more
        told.send(to_message(values))


def _become_node(start: _Start, handlers: dict[signal.Signals, signal._HANDLER]) -> list[str]:
    """Makes the process of a new node what it would be had it been started by itself; returns its arguments."""
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for descriptor in (1, 2):
        os.dup2(start.log, descriptor)
    os.fchdir(start.directory)
    os.close(start.log)
    os.close(start.directory)
    arguments = list(start.request.arguments)
    if start.request.outlives_parent:
        os.setsid()
    else:
        arguments += ["--parent-pid", str(start.server_pid)]
    sys.argv = ["replog.broker", *arguments]
    show_arguments([sys.executable, "-P", "-m", "replog.broker", *arguments])
    return arguments


def show_arguments(arguments: Sequence[str]) -> None:
    """Makes `ps` and /proc/PID/cmdline show these arguments, as far as those with which the process started leave room.

    The kernel reads them from the process's own memory, and says where that is; a last byte that is not 0 tells it that they
    are one text (proc(5)).
    """
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    begin, end = (int(fields[number - 3]) for number in _ENDS_OF_ARGUMENTS)
    room = end - begin - 2
    if begin and room > 0:  # 0: the kernel does not say
        text = os.fsencode(" ".join(arguments))[:room]
        ctypes.memmove(begin, text.ljust(room + 1, b"\0") + b".", room + 2)


def main(argv: Sequence[str]) -> int:
    """Serves the process that asks; returns the exit status, and in the process of each node that of the node.

    Args:
        argv: The id of the process that asks, the descriptor of the control socket, and `PADDING`.
    """
    handlers = {number: signal.getsignal(number) for number in _LEFT_TO_THE_PARENT}
    for number in _LEFT_TO_THE_PARENT:
        signal.signal(number, signal.SIG_IGN)
    parent_pid, control_descriptor = map(int, argv[:2])
    parent = os.pidfd_open(parent_pid)
    if os.getppid() != parent_pid:
        return 0  # it has ended, and somebody else may have its id
    control = socket.socket(fileno=control_descriptor)

    gc.disable()  # modules stay: looks at them would find nothing
    import replog.rpc.grpc.transport  # noqa: F401 -- the usual way to other nodes, for all of them
    from replog.broker.__main__ import main as run_node
    from replog.broker.node.late_modules import load_late_modules

    load_late_modules()
    gc.freeze()  # no node looks at the modules again, and so keeps the memory that all share
    gc.enable()
    control.send(b".")  # ready
    start = ForkServer(control, parent).serve()
    return 0 if start is None else run_node(_become_node(start, handlers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
