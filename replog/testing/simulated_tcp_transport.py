"""An asyncio transport over a simulated TCP connection: what it does and does not notice is what asyncio's own notices.

Its protocol is called in steps of the process that owns it: those of a paused one wait, those of a dead one never come.
Who has paused reading does not hear of a reset until it reads or writes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, cast

from replog.testing.simulated_process import PROCESS
from replog.testing.simulated_tcp_pipe import BytePipe, Finish, Reset
from replog.testing.virtual_loop import VirtualLoop

READ_BYTES_MAX = 256 << 10
HIGH_WATER_BYTES = 64 << 10


class SimulatedTcpTransport(asyncio.Transport):
    """One end of a connection.

    Args:
        loop: The loop of the simulation.
        context: The context of the process that owns it.
        incoming: The direction to it.
        outgoing: The direction from it.
        leave: The function that is told when it takes nothing any more.
        extra: What `get_extra_info` knows.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        context: Context,
        incoming: BytePipe,
        outgoing: BytePipe,
        leave: Callable[[], None],
        extra: dict[str, Any],
    ) -> None:
        super().__init__(extra)
        self._loop = loop
        self._context = context
        self._incoming = incoming
        self._outgoing = outgoing
        self._leave = leave
        self._protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self._low, self._high = HIGH_WATER_BYTES // 4, HIGH_WATER_BYTES
        self._is_paused = False
        self._is_protocol_paused = False
        self._is_closing = False
        self._is_lost = False
        self._has_told_end = False
        self._is_waking = False
        self._has_written_eof = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Begins, as a step of the process that owns it; bytes may have come before."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._incoming.on_arrival = self._wake
        self._outgoing.on_sent = self._wake
        self._wake()

    # ---- what protocols ask ----------------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hands what comes from here on to another protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Returns the protocol."""
        return self._protocol

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Whether what comes is handed on."""
        return not self._is_closing and not self._is_paused

    def pause_reading(self) -> None:
        """Hands nothing on until `resume_reading`."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Hands on what comes."""
        self._is_paused = False
        self._wake()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes; keeps those for which there is no room."""
        if self._has_written_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_closing or _is_owner_dead():
            return
        if isinstance(self._incoming.end, Reset):
            self._lose(self._incoming.end.error)
            return
        self._outgoing.write(bytes(data))
        if self._outgoing.unsent_bytes > self._high and not self._is_protocol_paused:
            self._is_protocol_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Whether its half can be closed alone: it can."""
        return True

    def write_eof(self) -> None:
        """Closes its half, behind what was written."""
        if not self._is_closing and not self._has_written_eof and not _is_owner_dead():
            self._has_written_eof = True
            self._outgoing.finish()

    def get_write_buffer_size(self) -> int:
        """Returns how many bytes are kept."""
        return self._outgoing.unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Returns where writing goes on, and where it pauses."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets where writing pauses, and where it goes on."""
        self._high = high if high is not None else HIGH_WATER_BYTES if low is None else 4 * low
        self._low = low if low is not None else self._high // 4

    def close(self) -> None:
        """Ends the connection behind what was written; hands nothing more on."""
        if self._is_closing or _is_owner_dead():
            return
        self._is_closing = True
        if not self._outgoing.unsent_bytes:
            self._lose(None)

    def abort(self) -> None:
        """Ends the connection; what is kept is lost."""
        if not self._is_lost and not _is_owner_dead():
            self._lose(None)

    # ---- steps -----------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_waking and not self._is_lost:
            self._is_waking = True
            self._loop.call_soon(self._step, context=self._context)

    def _step(self) -> None:
        """Takes one step: something has come, or left."""
        self._is_waking = False
        if self._is_lost:
            return
        try:
            self._sent()
            self._receive()
        except Exception as error:  # noqa: BLE001 -- asyncio's transports do the same: the connection ends, and it is told
            self._loop.call_exception_handler({"message": "a protocol failed", "exception": error, "transport": self})
            self._lose(error)

    def _sent(self) -> None:
        unsent = self._outgoing.unsent_bytes
        if self._is_protocol_paused and unsent <= self._low:
            self._is_protocol_paused = False
            self._protocol.resume_writing()
        if self._is_closing and not self._outgoing.unsent_bytes and not isinstance(self._incoming.end, Reset):
            self._lose(None)

    def _receive(self) -> None:
        """Hands on what has come, or the end of it."""
        pipe = self._incoming
        if self._is_lost:
            return
        is_reset = isinstance(pipe.end, Reset)
        if is_reset and (self._is_closing or self._is_protocol_paused):
            self._lose(cast("Reset", pipe.end).error)
        elif not self.is_reading():
            return
        elif pipe.arrived:
            self._hand_on()
            self._wake()
        elif is_reset:
            self._lose(cast("Reset", pipe.end).error)
        elif isinstance(pipe.end, Finish) and not self._has_told_end:
            self._has_told_end = True
            if not cast("asyncio.Protocol", self._protocol).eof_received():
                self.close()

    def _hand_on(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            data = self._incoming.read(len(buffer))
            buffer[: len(data)] = data
            protocol.buffer_updated(len(data))
        else:
            cast("asyncio.Protocol", protocol).data_received(self._incoming.read(READ_BYTES_MAX))

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._leave()
            self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)


def _is_owner_dead() -> bool:
    """Whether this is what the `finally` blocks of a dead process say."""
    process = PROCESS.get()
    return process is not None and process.is_dead
