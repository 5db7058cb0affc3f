"""Cuts the bytes of a connection into frames, and puts answers in the order of their requests.

A frame is a size of 4 bytes, big-endian, and as many bytes: in Kafka's protocol an API key, a version, a correlation id and
the rest, in our own a tag and a message (`replog.rpc.tcp.wire`).  Nothing here does I/O: `FrameReader` says where the next
bytes go and which frames have come, `OrderedAnswers` which answers may be written.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Generic, TypeVar

A = TypeVar("A")

SIZE_BYTES = 4
FRAME_BYTES_MIN = 8
"""Size of the smallest request: an API key, a version and a correlation id."""

SHARED_BYTES = 64 << 10
"""Size of the buffer that small frames share; a larger one gets a buffer of its own."""

SPARE_BUFFERS_MAX = 16
"""How many shared buffers wait for the next connection that gets bytes."""

_size = struct.Struct(">i")
_NO_BUFFER = memoryview(b"")

_FOREIGN = (
    (b"PRI * HTTP/2", "an HTTP/2 connection, as of gRPC: nodes come to inter.broker.listener"),
    *((word, "an HTTP request") for word in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN")),
    (b"\x16\x03", "a TLS hello: this listener speaks plain text, set security.protocol=PLAINTEXT"),
    (b"\x15\x03", "a TLS alert: that listener speaks TLS, use security.protocol=SSL or SASL_SSL (Security.tls)"),
    (b"HTTP/", "the answer of a web server"),
    (b"SSH-", "SSH"),
)


def described(first: bytes) -> str:
    """Returns a guess for people at the kind of a connection, by its first bytes; "" if they tell nothing."""
    return next((text for start, text in _FOREIGN if first.startswith(start)), "")


class SpareBuffers:
    """Shared buffers of connections that are between frames: thousands of idle ones have none.  Threads may share them."""

    def __init__(self) -> None:
        self._buffers: list[memoryview] = []

    def take(self) -> memoryview:
        """Returns a buffer; its old content is still in it."""
        try:
            return self._buffers.pop()
        except IndexError:
            return memoryview(bytearray(SHARED_BYTES))

    def give_back(self, buffer: memoryview) -> None:
        """Keeps a buffer for the next connection that needs one, if few are kept."""
        if len(self._buffers) < SPARE_BUFFERS_MAX:
            self._buffers.append(buffer)


class FrameReader:
    """Cuts a stream of bytes into frames.

    A frame that does not fit into the shared buffer waits for `admit` before memory is taken for it; until then nothing
    more is read.  Small frames are copies; a large one is the buffer that it was read into.

    Args:
        bytes_max: The size of the largest frame.
        spares: The buffers that connections share.
        bytes_min: The size of the smallest frame.

    Attributes:
        bytes_max: The size of the largest frame, which may be changed between frames.
        wanted_bytes: The size of the large frame that waits for `admit`; 0 while none does.
        trouble: The reason why no more frames can be cut; "" while they can.
    """

    def __init__(self, bytes_max: int, spares: SpareBuffers, bytes_min: int = FRAME_BYTES_MIN) -> None:
        self.wanted_bytes = 0
        self.trouble = ""
        self.bytes_max = bytes_max
        self._bytes_min = bytes_min
        self._spares = spares
        self._shared = _NO_BUFFER  # but while it is being filled
        self._filled = 0  # of the shared buffer
        self._large: memoryview | None = None
        self._large_filled = 0

    @property
    def is_between_frames(self) -> bool:
        """Whether only whole frames have come so far."""
        return self._large is None and not self._filled

    @property
    def wanted_start(self) -> memoryview:
        """The first bytes of the frame that waits for `admit`: as many as the smallest one has, or more."""
        return self._shared[SIZE_BYTES : self._filled]

    @property
    def come_bytes(self) -> int:
        """How much of the large frame has come that was admitted; 0 where none was."""
        return self._large_filled

    def buffer(self) -> memoryview:
        """Returns where the next bytes go: at least one.  Nothing is read while a frame waits for `admit`."""
        if self._large is not None:
            return self._large[self._large_filled :]
        if not self._shared:
            self._shared = self._spares.take()
        return self._shared[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """Takes in bytes that were put into `buffer()`; returns the frames that are whole now, without their sizes.

        A frame that is smaller or larger than one may be is `trouble`: the frames before it are returned, and none after it.

        Args:
            count: How many bytes there are.
        """
        if self.trouble:
            return []
        if self._large is None:
            self._filled += count
            return self._cut()
        self._large_filled += count
        if self._large_filled < len(self._large):
            return []
        frame, self._large, self._large_filled = self._large, None, 0
        return [frame]

    def admit(self) -> None:
        """Takes memory for the frame that waits, and moves its first bytes there."""
        self._large = memoryview(bytearray(self.wanted_bytes))
        self._large_filled = self._filled - SIZE_BYTES
        self._large[: self._large_filled] = self._shared[SIZE_BYTES : self._filled]
        self.wanted_bytes = 0
        self._drop(self._filled)

    def refuse(self, trouble: str) -> None:
        """Refuses the frame that waits for `admit`, and everything after it."""
        self.trouble, self.wanted_bytes = trouble, 0
        self._drop(self._filled)

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _cut(self) -> list[memoryview]:
        frames: list[memoryview] = []
        at = 0
        while self._filled - at >= SIZE_BYTES:
            size: int = _size.unpack_from(self._shared, at)[0]
            if not self._bytes_min <= size <= self.bytes_max:
                self.trouble = self._described_trouble(size, at)
                break
            if size > SHARED_BYTES - SIZE_BYTES:
                if self._filled - at >= SIZE_BYTES + self._bytes_min:  # its first bytes tell its kind
                    self.wanted_bytes = size
                break
            end = at + SIZE_BYTES + size
            if end > self._filled:
                break
            frames.append(memoryview(bytes(self._shared[at + SIZE_BYTES : end])))
            at = end
        self._drop(self._filled if self.trouble else at)
        return frames

    def _described_trouble(self, size: int, at: int) -> str:
        what = described(bytes(self._shared[at : min(at + 16, self._filled)]))
        seen = f"; its first bytes look like {what}" if what else ""
        return f"a frame is said to have {size} bytes, and has {self._bytes_min} to {self.bytes_max}{seen}"

    def _drop(self, count: int) -> None:
        """Moves the bytes behind the first `count` of the shared buffer to its front."""
        if count:
            left = self._filled - count
            self._shared[:left] = bytes(self._shared[count : self._filled])
            self._filled = left
        if not self._filled:
            self._spares.give_back(self._shared)
            self._shared = _NO_BUFFER


class OrderedAnswers(Generic[A]):
    """Holds answers back until those of all earlier requests are there: clients count on their order.

    Java's client takes the first answer for that to its first request, with any correlation id.
    """

    def __init__(self) -> None:
        self._first = 0  # the number of the oldest request without an answer
        self._answers: deque[tuple[A | None] | None] = (
            deque()
        )  # one for each request from there on; None: not there yet

    def __len__(self) -> int:
        return len(self._answers)

    def begin(self) -> int:
        """Takes in the next request; returns its number."""
        self._answers.append(None)
        return self._first + len(self._answers) - 1

    def finish(self, number: int, answer: A | None) -> list[A]:
        """Takes in an answer; returns the answers that may be written now, in order.

        Args:
            number: The number of the request, from `begin`; each is finished once.
            answer: The answer; None: the request has none.
        """
        self._answers[number - self._first] = (answer,)
        ready: list[A] = []
        while self._answers and (held := self._answers[0]) is not None:
            self._answers.popleft()
            self._first += 1
            if held[0] is not None:
                ready.append(held[0])
        return ready
