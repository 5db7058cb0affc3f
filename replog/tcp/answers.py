"""What is written to a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from replog.waiting.unread_answers import UnreadAnswer


class Successor(Protocol):
    """The object that takes over a connection which does not go on with requests and answers."""

    @property
    def stream(self) -> asyncio.BaseProtocol:
        """The protocol that takes the bytes from here on."""
        ...

    @property
    def closed(self) -> asyncio.Future[None]:
        """The future that is done when the connection has ended."""
        ...

    async def serve(self) -> None:
        """Serves the client until the connection has ended."""
        ...


class Answer(NamedTuple):
    """The answer to a request, as it is written.

    Attributes:
        buffers: The bytes of the answer, its size in front.
        mute_s: The seconds for which no request of the client is taken up: the throttle time that it is told.
        is_last: Whether the connection ends behind it.
        becomes: The function that returns the successor which has the connection behind this answer, of the client's
            address; None: it goes on.
        unread: The share that it holds of the memory for records until it has left; None: it has none.
    """

    buffers: Sequence[bytes | bytearray | memoryview] = ()
    mute_s: float = 0.0
    is_last: bool = False
    becomes: Callable[[str], Successor] | None = None
    unread: UnreadAnswer | None = None
