"""What a forked child may do: whatever a new process may, but for what it was forked with.

A client belongs to its event loop, which the child has a copy of, and to its connections, which are the parent's: copies of
clients are refused, and copies of connections closed, so that the other side sees the parent's end.  New clients are as in
any process.

gRPC, by which nodes meet, does not survive a fork: its threads and locks stay behind, and a child that uses it dies with
SIGSEGV, or waits for ever.  A node in a child of a process that has had one is refused.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import Final, Protocol
from weakref import WeakSet

from replog.errors import BrokerClosedError

FORKED_TEXT: Final = (
    "this client is of the process that this one was forked from, which has its connections: make a new client here, in an "
    "event loop of this process (asyncio.run), or a SyncProducer, SyncConsumer or SyncAdmin"
)

GRPC_FORKED_TEXT: Final = (
    "this process was forked from one with a replog node in it, and gRPC, by which nodes meet, does not survive a fork. "
    'Start processes with multiprocessing.get_context("spawn"), or start nodes in the parent only after the fork'
)


class _Carried(Protocol):
    """Something of the parent's that would act without asking whether it may."""

    def handle_fork(self) -> None:
        """Makes every use an error from now on; called in the child of a fork."""


_homes: WeakSet[asyncio.AbstractEventLoop] = WeakSet()  # loops of clients
_carried_homes: WeakSet[asyncio.AbstractEventLoop] = WeakSet()  # those of the process that this one was forked from
_carried: WeakSet[_Carried] = WeakSet()
_sockets: WeakSet[socket.socket] = WeakSet()
_lock = threading.Lock()
_uses_grpc = False
_lost_grpc = False


def note_home(loop: asyncio.AbstractEventLoop) -> None:
    """Notes that a client lives in an event loop."""
    with _lock:
        _homes.add(loop)


def is_carried(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether clients of an event loop are a fork's copies."""
    return bool(_carried_homes) and loop is not None and loop in _carried_homes


def raise_if_carried(loop: asyncio.AbstractEventLoop | None) -> None:
    """Refuses what needs a client's event loop.

    Raises:
        BrokerClosedError: The loop is of the process that this one was forked from.
    """
    if is_carried(loop):
        raise BrokerClosedError(FORKED_TEXT)


def tell_at_fork(carried: _Carried) -> None:
    """Calls `carried.handle_fork` in children that are forked, as long as `carried` lives."""
    with _lock:
        _carried.add(carried)


def close_at_fork(sock: socket.socket) -> None:
    """Closes a connection's copy in children that are forked."""
    with _lock:
        _sockets.add(sock)


def note_grpc_use() -> None:
    """Notes that gRPC is about to be used.

    Raises:
        BrokerClosedError: This process was forked from one that had used gRPC.
    """
    global _uses_grpc  # noqa: PLW0603 -- one per process, as gRPC's own state is
    if _lost_grpc:
        raise BrokerClosedError(GRPC_FORKED_TEXT)
    _uses_grpc = True


def _after_in_child() -> None:
    global _lost_grpc, _lock  # noqa: PLW0603 -- see above
    _lock = threading.Lock()  # another thread of the parent may have held it
    _lost_grpc = _lost_grpc or _uses_grpc
    _carried_homes.update(_homes)
    for sock in list(_sockets):
        sock.close()
    for carried in list(_carried):
        carried.handle_fork()


os.register_at_fork(after_in_child=_after_in_child)
