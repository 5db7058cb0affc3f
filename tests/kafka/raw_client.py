"""One connection that speaks Kafka's protocol, a request at a time, with the messages that are generated."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

from replog.wire.messages.headers import RequestHeader, ResponseHeader
from replog.wire.primitives import Reader, Writer

API_VERSIONS_KEY = 18
TIMEOUT_S = 20.0


class RawClient:
    """Sends requests as they are given, right or wrong.

    Attributes:
        connection: The socket, for bytes that are no request.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._correlation_id = 0

    def ask(self, request: Any, version: int, answer: type[Any]) -> Any:
        """Returns the answer to a request.

        Args:
            request: The request.
            version: The version in which it and its answer are written.
            answer: The class of the answer.
        """
        self.send(request, version)
        return self.receive(answer, version)

    def send(self, request: Any, version: int) -> None:
        """Sends a request."""
        self._correlation_id += 1
        is_flexible = version >= request.FLEXIBLE_FROM
        writer = Writer()
        RequestHeader(request.API_KEY, version, self._correlation_id, "raw").write(writer, 2 if is_flexible else 1)
        request.write(writer, version)
        body = writer.joined()
        self.connection.sendall(struct.pack(">i", len(body)) + body)

    def receive(self, answer: type[Any], version: int) -> Any:
        """Returns the next answer; all of it is read, or the test fails."""
        reader = Reader(memoryview(self.frame()))
        has_tags = version >= answer.FLEXIBLE_FROM and answer.API_KEY != API_VERSIONS_KEY
        ResponseHeader.read(reader, 1 if has_tags else 0)
        response = answer.read(reader, version)
        reader.finish()
        return response

    def frame(self) -> bytes:
        """Returns the bytes of the next answer, without their size.  Raises: EOFError: The other side has closed."""
        return self._take(struct.unpack(">i", self._take(4))[0])

    def is_closed(self) -> bool:
        """Whether the other side closes without another byte."""
        try:
            return self.connection.recv(1) == b""
        except ConnectionResetError:
            return True

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            part = self.connection.recv(size - len(taken))
            if not part:
                raise EOFError("the connection was closed")
            taken += part
        return bytes(taken)


@contextlib.contextmanager
def raw_client(address: str) -> Iterator[RawClient]:
    """Connects to host:port for as long as the block runs."""
    client = RawClient(address)
    try:
        yield client
    finally:
        client.connection.close()
