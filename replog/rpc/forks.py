"""What a forked child may do: nothing that needs gRPC, once the process that it was forked from has used it.

gRPC's threads and locks stay behind in a fork; a child that uses it all the same dies with SIGSEGV, or waits for ever.  So
the first connection or server notes that gRPC is in use, and a fork after that turns every use into an error.  Where the
parent has only imported replog, or made a client without connecting it, the child is as good as any process.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet

from replog.errors import BrokerClosedError

FORKED_TEXT: Final = (
    "this process was forked from one that had used replog, and gRPC does not survive a fork. Start processes with "
    'multiprocessing.get_context("spawn"), or use replog in the parent only after the fork'
)


class _Carried(Protocol):
    """Something of the parent's that would act without asking whether it may."""

    def handle_fork(self) -> None:
        """Makes every use an error from now on; called in the child of a fork."""


_in_use = False
_is_forked = False
_carried: WeakSet[_Carried] = WeakSet()
_lock = threading.Lock()


def note_use() -> None:
    """Notes that gRPC is about to be used.

    Raises:
        BrokerClosedError: This process was forked from one that had used gRPC.
    """
    global _in_use  # noqa: PLW0603 -- one per process, as gRPC's own state is
    raise_if_forked()
    _in_use = True


def tell_at_fork(carried: _Carried) -> None:
    """Calls `carried.handle_fork` in children that are forked while gRPC is in use, as long as `carried` lives."""
    with _lock:
        _carried.add(carried)


def is_forked() -> bool:
    """Whether gRPC cannot be used in this process, because of a fork."""
    return _is_forked


def raise_if_forked() -> None:
    """Refuses what needs gRPC.

    Raises:
        BrokerClosedError: This process was forked from one that had used gRPC.
    """
    if _is_forked:
        raise BrokerClosedError(FORKED_TEXT)


def _after_in_child() -> None:
    global _is_forked, _lock  # noqa: PLW0603 -- see above
    _lock = threading.Lock()  # another thread of the parent may have held it
    if not _in_use:
        return
    _is_forked = True
    for carried in list(_carried):
        carried.handle_fork()


os.register_at_fork(after_in_child=_after_in_child)
