"""A TLS transport that takes no more than it can pass on.

Why: asyncio encrypts a write as a whole and hands it to the transport below, however much that is; its own buffer is empty then, so
that `pause_writing` comes with the next write only (measured: 60 MiB unread, `get_write_buffer_size()` says 0, and the
transport below holds 59 MB).  What is written in small pieces stops with the piece by which the transport below has enough.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

PIECE_BYTES: Final = 64 << 10
"""As many as four records of TLS; the most by which a write passes the limit of the buffers."""


class PacedTransport:
    """Writes in pieces, for as long as the transport does not ask to pause; the rest waits as it is, neither copied nor encrypted.

    Its protocol passes on `pause_writing` and `resume_writing`.

    Args:
        transport: The transport that encrypts.

    Attributes:
        is_paused: Whether it has enough to write.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.is_paused = False
        self._transport = transport
        self._unsent: deque[memoryview] = deque()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Writes bytes behind those that wait."""
        self._unsent.append(memoryview(data))
        self._pump()

    def pause(self) -> None:
        """Writes no more."""
        self.is_paused = True

    def resume(self) -> None:
        """Goes on, until it is paused again."""
        self.is_paused = False
        self._pump()

    def is_closing(self) -> bool:
        """Whether the connection ends, or has ended."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Ends the connection at once; what waits is dropped."""
        self._unsent.clear()
        self._transport.abort()

    def _pump(self) -> None:
        while self._unsent and not self.is_paused:
            data = self._unsent.popleft()
            if len(data) > PIECE_BYTES:
                self._unsent.appendleft(data[PIECE_BYTES:])
                data = data[:PIECE_BYTES]
            self._transport.write(data)
