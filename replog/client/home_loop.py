"""The event loop that a client lives in: the one that it was first used in, and no other.

Why: tasks, futures and connections of a client belong to a loop.  Used in another one, such as that of a second
`asyncio.run`, they would wait for what never comes.

A fork copies a client that belongs to the parent.  Every use of the copy is an error, and so is a delivery that is awaited in
the child: the child makes clients of its own.
"""

from __future__ import annotations

import asyncio

from replog.errors import InvalidRequestError
from replog.host.forks import is_carried, note_home, raise_if_carried

_NEXT_STEP = (
    "Make a client inside of each asyncio.run, or use SyncProducer, SyncConsumer or SyncAdmin, which need no event loop"
)


class HomeLoop:
    """Remembers the loop of the first use.

    Attributes:
        loop: The loop; None before the first use.
    """

    __slots__ = ("loop",)

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the loop was closed: nothing of the client runs any more, and nothing of it can be waited for."""
        return self.loop is not None and self.loop.is_closed()

    @property
    def is_carried(self) -> bool:
        """Whether this is a fork's copy."""
        return is_carried(self.loop)

    def enter(self) -> None:
        """Makes the running loop the client's, if it has none.

        Raises:
            InvalidRequestError: The client belongs to another loop.
            BrokerClosedError: It is a fork's copy.
        """
        if self.loop is None:
            loop = asyncio.get_running_loop()
            raise_if_carried(loop)
            note_home(loop)
            self.loop = loop
        else:
            require_loop(self.loop)


def require_loop(home: asyncio.AbstractEventLoop) -> None:
    """Refuses to use in the running loop what belongs to another one.

    Args:
        home: The loop that it belongs to.

    Raises:
        InvalidRequestError: Another loop is running here, `home` is running in another thread, or it was closed.
        BrokerClosedError: `home` is of the process that this one was forked from.
    """
    raise_if_carried(home)
    running = asyncio._get_running_loop()  # noqa: SLF001 -- the documented twin raises where none is running
    if running is home or (running is None and not home.is_running() and not home.is_closed()):
        return
    state = "closed" if home.is_closed() else "not the one that is running here"
    raise InvalidRequestError(f"this client belongs to an event loop that is {state}. {_NEXT_STEP}")
