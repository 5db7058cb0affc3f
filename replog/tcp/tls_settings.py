"""What a listener that speaks TLS is told; apart from the rest, so that who reads a configuration does not load OpenSSL."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from replog.access.secret import Secret
from replog.tcp.principals import DEFAULT_RULES


class ClientAuth(Enum):
    """Whether clients show a certificate (`ssl.client.auth`)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsVersion(Enum):
    """The versions of TLS (`ssl.enabled.protocols`)."""

    TLS_1_2 = "TLSv1.2"
    TLS_1_3 = "TLSv1.3"


class PortProtocol(Enum):
    """What is spoken at a port that knows no logins: that of other nodes, that of metrics."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"


class TlsSettings(Struct, frozen=True):
    """What a listener proves, and whom it believes.

    Attributes:
        keystore: The path of a PEM file with the private key, its certificate and those between it and the authority.
        truststore: The path of a PEM file with the certificates of the authorities that clients' are signed by; "": none.
        client_auth: Whether clients show one.
        versions: The versions of TLS that are spoken.
        mapping_rules: The rules that make the names of clients.
        key_password: What the private key is encrypted with; None: it is not.
    """

    keystore: str
    truststore: str = ""
    client_auth: ClientAuth = ClientAuth.NONE
    versions: tuple[TlsVersion, ...] = tuple(TlsVersion)
    mapping_rules: str = DEFAULT_RULES
    key_password: Secret | None = None
