"""TLS between nodes: each side proves by its certificate which node of which cluster it is (`replog.tcp.node_names`).

| who is at the other end | what happens |
|---|---|
| shows no certificate, or one of another authority, or an expired one | the handshake fails |
| a client, with a certificate of the same authority | is told that only nodes are served |
| a node of another cluster | is told so |
| a node that says in its hello that it is another one | is told so |
| listens where another node was looked for | hears no hello: the connection ends behind the handshake |

What the hello is believed for: `replog.broker.requests.peer_handlers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import Any, Final, cast

from msgspec.structs import replace

from replog.access.principal import ANONYMOUS, Principal
from replog.errors import InconsistentClusterIdError, InvalidRequestError
from replog.rpc.messages import Hello
from replog.tcp.certificates import Certificates
from replog.tcp.connection_log import ToldAddresses
from replog.tcp.dialing import Connect
from replog.tcp.node_names import (
    NodeName,
    certified_hosts,
    certified_node,
    hosts_of_node,
    node_principal,
    parse_node_name,
)
from replog.tcp.tls import TlsTransport, TlsTurns
from replog.tcp.tls_settings import ClientAuth, TlsSettings

LISTENER: Final = "inter.broker"
"""The name of the port of other nodes, in keys, logs and metrics."""

KEY: Final = "inter.broker.listener"
"""The configuration key of that port."""

KEYS: Final = "security.inter.broker.protocol and inter.broker.accepted.protocols"
"""The keys that say what nodes speak, for errors."""

_log = logging.getLogger(__name__)


class NodeTls:
    """What a node proves to other nodes, and whom it believes.  Of one event loop.

    Args:
        own: The node.
        settings: Its files; clients always show certificates here.
        dials: Whether this node speaks TLS to others.
        accepts_plain: Whether others may speak plain text to it, too.
        is_over_grpc: Whether nodes meet over gRPC: those who dial compare names of hosts, which the certificate has to have, and
            the private key has no password.

    Attributes:
        own, dials, accepts_plain: As given.
        certificates: What its port proves.
        dialing: What it proves where it dials.

    Raises:
        ConfigError: A file cannot be used, or the certificate is not that of this node.
    """

    def __init__(
        self,
        own: NodeName,
        settings: TlsSettings,
        *,
        dials: bool,
        accepts_plain: bool,
        is_over_grpc: bool = False,
    ) -> None:
        self.own = own
        self.dials = dials
        self.accepts_plain = accepts_plain
        settings = replace(settings, client_auth=ClientAuth.REQUIRED)
        check = partial(_require_own, own, hosts=hosts_of_node(own) if is_over_grpc else ())
        self.certificates = Certificates(
            settings, LISTENER, identify=node_principal, check=check, is_over_grpc=is_over_grpc
        )
        self.dialing = Certificates(
            settings, LISTENER, identify=node_principal, check=check, dials=True, is_over_grpc=is_over_grpc
        )
        self._turns: TlsTurns | None = None
        self._told = ToldAddresses()

    async def open(
        self, stream: asyncio.BufferedProtocol, host: str, port: int, node_id: int | None, connect: Connect
    ) -> NodeName:
        """Connects a stream to a node, which has proved by then which one it is.

        Args:
            stream: The protocol that has the connection behind the handshake.
            host: The host of the node.
            port: Its port.
            node_id: The id that it has to prove; None: that of any node of the cluster.
            connect: The function that connects.

        Raises:
            OSError: It cannot be reached, or one side does not believe the other.
        """
        if self._turns is None:
            self._turns = TlsTurns()
        dialed = _Dialed(stream, partial(self._why_not, node_id))
        make: Any = partial(TlsTransport, dialed, self.dialing, self._turns, dials=True)
        transport = cast("asyncio.Transport", (await connect(make, host, port))[0])
        try:
            return await dialed.found
        except BaseException as error:  # also who gives up just when the stream has been handed the connection
            transport.abort()
            if isinstance(error, OSError):
                self.tell(f"{host}:{port}", str(error))
            raise

    def check_hello(self, principal: Principal, hello: Hello) -> None:
        """Raises unless the node that a hello names is the one of the certificate.

        Args:
            principal: Who the certificate says it is; ANONYMOUS: it came in plain text, and this node takes that, too.
            hello: The hello; the node id -1 is a node that does not say which it is.

        Raises:
            InvalidRequestError: It is a client, or another node.
            InconsistentClusterIdError: It is a node of another cluster.
        """
        if principal == ANONYMOUS and self.accepts_plain:
            return
        name = parse_node_name(principal.name)
        if name is None:
            raise InvalidRequestError(
                f"{self.own} meets nodes here, and the certificate of {principal} names none ({self.own} is such a name). Clients"
                " come to the address in listeners; `replog certs node` makes certificates of nodes"
            )
        if name.cluster_id != self.own.cluster_id:
            raise InconsistentClusterIdError(
                f"{self.own} meets nodes of its cluster here, and the certificate is that of {name}. Check the address, or make a"
                f" certificate for cluster {self.own.cluster_id} by `replog certs node`"
            )
        if hello.node_id not in {-1, name.node_id}:
            raise InvalidRequestError(
                f"the certificate is that of {name}, and the caller says that it is node {hello.node_id}. Give node {hello.node_id} a"
                " certificate of its own (listener.name.inter.broker.ssl.keystore.location)"
            )

    def _why_not(self, node_id: int | None, principal: Principal) -> str:
        """Returns why whoever was dialed is not the node that was looked for; "" if it is."""
        name = parse_node_name(principal.name)
        if name is None:
            return f"the certificate of {principal} names no node. Is this the port of nodes (inter.broker.listener)?"
        if name.cluster_id != self.own.cluster_id:
            return f"{name} is there, a node of another cluster than {self.own}. Check the address"
        if node_id not in {None, name.node_id}:
            return f"{name} is there, and node {node_id} was looked for. Check the addresses (controller.quorum.voters)"
        return ""

    def tell(self, address: str, reason: str) -> None:
        """Says why a node was not reached over TLS: one line an address and minute."""
        if not self._told.is_due(address):
            return
        parts = {"event": "authentication_failed", "listener": LISTENER, "address": address, "reason": reason}
        _log.warning("%s does not reach the node at %s over TLS: %s", self.own, address, reason, extra=parts)


class _Dialed(asyncio.BufferedProtocol):
    """Has a connection until the other side has proved who it is, and hands it to the stream then.

    Args:
        stream: The stream.
        why_not: The function that returns why it is the wrong one, or "".

    Attributes:
        found: The future of the node that is there; the stream has the connection then.
    """

    def __init__(self, stream: asyncio.BufferedProtocol, why_not: Any) -> None:
        self._stream = stream
        self._why_not = why_not
        self._transport: asyncio.BaseTransport | None = None
        self.found: asyncio.Future[NodeName] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def identify(self, principal: Principal) -> None:
        """Hands the connection over, or ends it."""
        name = parse_node_name(principal.name)
        reason = self._why_not(principal)
        if reason or name is None or self._transport is None or self.found.done():
            self.refuse_identity(reason)
            return
        self._transport.set_protocol(self._stream)
        self._stream.connection_made(self._transport)
        self.found.set_result(name)

    def refuse_identity(self, reason: str) -> None:
        """Says why the other side is not believed; who dialed ends the connection."""
        if not self.found.done():
            self.found.set_exception(ConnectionError(reason))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        return memoryview(bytearray(1))  # nothing is asked for before the connection is the stream's

    def connection_lost(self, exc: Exception | None) -> None:
        cause = f" ({exc})" if exc is not None else ""
        self.refuse_identity(f"the other side ended the handshake of TLS{cause}. Does it speak TLS? See {KEYS} there")


def _require_own(own: NodeName, certificate: bytes, hosts: Collection[str]) -> None:
    """Raises ValueError unless a certificate is that of this node, and for some names of hosts."""
    name = certified_node(certificate)
    if name != own:
        raise ValueError(f"its certificate names {name or 'no node'}, and this is {own}: {_make_one(own)}")
    if missing := sorted(set(hosts) - set(certified_hosts(certificate))):
        raise ValueError(
            f"its certificate is not for the host {' nor for '.join(missing)}, by which other nodes find {own} over gRPC:"
            f" {_make_one(own)}"
        )


def _make_one(own: NodeName) -> str:
    return f"make one by `replog certs node DIR --node-id {own.node_id} --cluster-id={own.cluster_id}`"
