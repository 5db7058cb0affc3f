"""A node that serves clients over TLS, and connections to it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from replog.access.principal import Principal
from tests.kafka.raw_client import RawClient
from tests.tls_files import Authority
from tests.unit.kafka.kafka_node_kit import Served, serving

TIMEOUT_S = 20.0


class TlsFiles:
    """What a node and its clients prove themselves by.

    Attributes:
        authority: Who signs both.
        broker, client: The PEM files of a broker and of a client.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.broker = self.authority.issue("broker")
        self.client = self.authority.issue("billing")

    def keys(self, **others: object) -> dict[str, Any]:
        """The keys of a node whose clients have to show a certificate."""
        return {
            "listeners": ["SSL://127.0.0.1:0"],
            "inter_broker_listener": "127.0.0.1:0",
            "ssl_keystore_location": str(self.broker),
            "ssl_truststore_location": str(self.authority.path),
            "ssl_client_auth": "required",
            **others,
        }

    def context(self, own: Path | None = None) -> ssl.SSLContext:
        """What a client speaks with that shows the certificate of a file; None: it shows none."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        if own is not None:
            context.load_cert_chain(str(own))
        return context


@contextlib.asynccontextmanager
async def serving_tls(files: TlsFiles, **others: object) -> AsyncIterator[Served]:
    """A node on a disk in memory whose one listener speaks TLS."""
    async with serving(**files.keys(**others)) as it:
        yield it


def connected(address: str, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    """A connection whose handshake is over as far as the client sees it; with the session of an earlier one, if it may."""
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    try:
        return context.wrap_socket(plain, server_hostname="localhost", session=session)
    except BaseException:
        plain.close()
        raise


class TlsClient(RawClient):
    """One connection over TLS, a request at a time."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        self.connection = connected(address, context)
        self._correlation_id = 0


def is_ended(connection: socket.socket) -> bool:
    """Whether the other side ends a connection before it answers; an empty request is sent, for who waits for one."""
    try:
        connection.sendall(struct.pack(">ihhi", 10, 18, 0, 1) + b"\xff\xff")
        return not connection.recv(1)
    except (ConnectionError, ssl.SSLError):
        return True


def principals(it: Served) -> list[Principal | None]:
    """Who the clients of a node are; None: it is not known yet."""
    ports = it.node._clients
    assert ports is not None
    assert ports._listener is not None
    callers = [connection._caller for connection in ports._listener._connections]
    return [None if caller is None else caller.principal for caller in callers]
