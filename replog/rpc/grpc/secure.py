"""TLS between nodes over gRPC, which shakes hands by itself: what it is given, and who it says was there.

| what is looked at | by what |
|---|---|
| an authority has signed the certificate, it has not run out, it is for this end of a connection | gRPC, at both ends |
| the node that was looked for is there | gRPC, by a name of a host in the certificate (`replog.tcp.node_names.host_of_node`) |
| it has not run out since, when a session is taken up again | `caller_of`, at each call and stream |
| the node that a hello names is the one of the certificate | `NodeTls.check_hello`, which is given gRPC's copy of the certificate |

A handshake that fails at the node that was dialed is told there by gRPC alone, in a line of its own on the error output.
"""

from __future__ import annotations

import datetime as dt
import re
import ssl
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import grpc

from replog.access.principal import ANONYMOUS, Principal
from replog.errors import InvalidRequestError
from replog.rpc.node_tls import KEYS, NodeTls
from replog.tcp.certificates import PemFiles
from replog.tcp.der import end_of_validity
from replog.tcp.node_names import NodeName, host_of_node, node_principal

_CERTIFICATE: Final = "x509_pem_cert"
"""The key of gRPC's of the certificate that a caller has shown."""

_NOT_BELIEVED: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)")
_NOT_CONNECTED: Final = "failed to connect"
_ENDED: Final = ("Socket closed", "Connection reset", "Broken pipe", "Stream removed")


def server_credentials(files: PemFiles) -> grpc.ServerCredentials:
    """Returns what a port is opened with, which has it to its end: every caller shows a certificate.

    Args:
        files: What the node proves, and whom it believes.
    """
    return grpc.ssl_server_credentials(
        [(files.keystore, files.keystore)], root_certificates=files.truststore, require_client_auth=True
    )


class ClientFiles:
    """Gives channels to one node what this node proves.

    Args:
        tls: What the node proves, and whom it believes.
        node_id: The id of the node that is looked for; None: any of the cluster.
    """

    def __init__(self, tls: NodeTls, node_id: int | None) -> None:
        self._certificates = tls.dialing
        self._used: PemFiles | None = None
        self.options = [("grpc.ssl_target_name_override", host_of_node(tls.own.cluster_id, node_id))]

    def credentials(self) -> grpc.ChannelCredentials:
        """Returns what a channel is opened with, which has it to its end."""
        self._used = files = self._certificates.files()
        return grpc.ssl_channel_credentials(files.truststore, files.keystore, files.keystore)

    @property
    def have_changed(self) -> bool:
        """Whether the files are others than those of the last channel."""
        return self._certificates.files() is not self._used


def caller_of(context: Any, now: dt.datetime) -> Principal:
    """Returns who calls, by the certificate that gRPC has verified; ANONYMOUS: it came in plain text.

    Args:
        context: The context of a call, of gRPC.
        now: The time: gRPC goes on with sessions whose certificate has run out meanwhile.

    Raises:
        InvalidRequestError: The certificate names two nodes, or something that only looks like one, or it has run out.
    """
    shown = context.auth_context().get(_CERTIFICATE)
    if not shown:
        return ANONYMOUS
    try:
        principal, not_after = _caller(shown[0])
    except (ValueError, IndexError, StopIteration) as error:
        raise InvalidRequestError(str(error) or "its certificate cannot be read") from None
    if now > not_after:
        raise InvalidRequestError(
            f"its certificate is not believed: certificate has expired ({not_after:%Y-%m-%d %H:%M:%S} UTC)"
        )
    return principal


@lru_cache(maxsize=1_000)
def _caller(certificate: bytes) -> tuple[Principal, dt.datetime]:
    der = ssl.PEM_cert_to_DER_cert(certificate.decode("ascii"))
    return node_principal(der), end_of_validity(der)


def host_of(peer: str) -> str:
    """Returns the host of an address as gRPC writes it: ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def why_not_reached(details: str, own: NodeName | None, node_id: int | None) -> str:
    """Returns in words why a channel did not connect; "" where certificates and protocols have nothing to do with it.

    Args:
        details: The text of gRPC.
        own: The node that dialed, over TLS; None: it dialed in plain text.
        node_id: The id of the node that was looked for; None: any.
    """
    if _NOT_CONNECTED not in details:
        return ""
    if own is None:
        return f"the other side ended the connection. Does it speak TLS? See {KEYS}" if _has_ended(details) else ""
    if found := _NOT_BELIEVED.search(details):
        return f"its certificate is not believed: {found[1].strip()}"
    if "Hostname Verification" in details:
        wanted = "any" if node_id is None else str(node_id)
        return (
            f"another node, or one of another cluster, is there, and node {wanted} of cluster {own.cluster_id} was looked for. Check the"
            " addresses (controller.quorum.voters)"
        )
    if "WRONG_VERSION_NUMBER" in details:
        return f"the other side ended the handshake of TLS. Does it speak TLS? See {KEYS} there"
    if _has_ended(details):
        return (
            "the other side ended the handshake of TLS, and its log says why: it may not believe the certificate of this node, which has"
            f" run out or is of another authority, or speak no TLS. See {KEYS} there"
        )
    return ""


def _has_ended(details: str) -> bool:
    return any(text in details for text in _ENDED)
