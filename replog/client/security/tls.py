"""TLS of a client: the context of its settings, and what an error of it says to people."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Final, NoReturn

from replog.client.security.security import Encryption
from replog.errors import ConfigError, TlsAuthenticationError

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_WRONG_NAMES: Final = (62, 64)
_UNKNOWN_AUTHORITIES: Final = (2, 18, 19, 20, 21)
"""Numbers of OpenSSL's X509_V_ERR."""

_ALERTS: Final = (
    (
        ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE"),
        "the broker wants a certificate of the client that it can check: give cert and key",
    ),
    (
        ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "UNSUPPORTED_CERTIFICATE", "CERTIFICATE_REVOKED"),
        "the broker does not take the client's certificate: cert must be signed by an authority that the broker knows, with the chain",
    ),
    (("CERTIFICATE_EXPIRED",), "the client's certificate has expired: renew what cert names"),
    (
        ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"),
        "the two sides share no version of TLS: 1.2 and 1.3 are spoken here",
    ),
    (
        (
            "WRONG_VERSION_NUMBER",
            "RECORD_LAYER_FAILURE",
            "PACKET_LENGTH_TOO_LONG",
            "HTTP_REQUEST",
            "UNEXPECTED_MESSAGE",
        ),
        "what listens there does not speak TLS: use the port of an SSL or SASL_SSL listener, or no TLS",
    ),
)
"""What the reason of an error has in it, and what it means."""


class TlsContexts:
    """Makes the contexts of connections: a new one where a file has changed, so that renewed certificates need no new client.

    Args:
        settings: What the user has set.

    Raises:
        ConfigError: A file cannot be read, is none of PEM, or a key does not belong to its certificate.
    """

    def __init__(self, settings: Encryption) -> None:
        self._settings = settings
        self._seen = self._stamps()
        self._context = context_of(settings)

    def current(self) -> ssl.SSLContext:
        """Returns the context of the files as they are now; the one before, where they cannot be used."""
        stamps = self._stamps()
        if stamps != self._seen:
            with contextlib.suppress(ConfigError):  # in the middle of being replaced: the next connection looks again
                self._context, self._seen = context_of(self._settings), stamps
        return self._context

    def server_name(self, host: str) -> str:
        """Returns the name that the certificate of a broker at a host must be for."""
        return self._settings.server_name or host

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        settings = self._settings
        return [_stamp(path) for path in (settings.ca, settings.cert, settings.key) if path]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def context_of(settings: Encryption) -> ssl.SSLContext:
    """Makes a context of settings.

    Raises:
        ConfigError: A file cannot be read, is none of PEM, or a key does not belong to its certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # looks at certificates and names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.check_hostname
    if settings.ca:
        try:
            context.load_verify_locations(cafile=settings.ca)
        except (OSError, ssl.SSLError) as error:
            _refuse("ca", settings.ca, error)
    else:
        context.load_default_certs()
    if settings.cert:
        _load_own(context, settings)
    return context


def _load_own(context: ssl.SSLContext, settings: Encryption) -> None:
    password, path, is_asked = settings.key_password, settings.key or settings.cert, False

    def told() -> str:
        nonlocal is_asked
        is_asked = True
        if password is None:  # or OpenSSL would ask on the terminal
            raise ConfigError("key_password", None, f"the private key in {path} is encrypted: give key_password")
        return password.reveal()

    try:
        context.load_cert_chain(settings.cert, settings.key or None, told)
    except ssl.SSLError as error:
        if is_asked:
            reason = f"the private key in {path} cannot be decrypted with this key_password"
            raise ConfigError("key_password", None, reason) from None
        if "MISMATCH" in (error.reason or ""):
            reason = f"the private key in {path} does not belong to the certificate in {settings.cert}"
            raise ConfigError("key", path, reason) from None
        _refuse("cert", f"{settings.cert} or {path}" if settings.key else path, error)
    except OSError as error:
        _refuse("cert", f"{settings.cert} or {path}" if settings.key else path, error)


def _refuse(name: str, path: str, error: OSError) -> NoReturn:
    if not isinstance(error, ssl.SSLError):
        raise ConfigError(name, path, f"{name}: {path} cannot be read ({error.strerror})") from None
    why = "there is no such thing in PEM in it; `openssl pkcs12 -in FILE -out FILE.pem` converts a store of Java"
    raise ConfigError(name, path, f"{name}: {path}: {why}") from None


def tls_error(address: str, error: BaseException | None, server_name: str) -> TlsAuthenticationError | None:
    """Returns what an error of TLS means; None where it is none of TLS, or may pass.

    Args:
        address: The host:port of the broker.
        error: The error, None for none.
        server_name: The name that was looked for.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsAuthenticationError(f"{address}: {_untrusted(error, server_name)}")
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    reason = error.reason or ""
    for words, meaning in _ALERTS:
        if any(word in reason for word in words):
            return TlsAuthenticationError(f"{address}: {meaning} ({reason})")
    return None  # an alert of a broker that is starting or stopping, bytes that were damaged on the way


def _untrusted(error: ssl.SSLCertVerificationError, server_name: str) -> str:
    if error.verify_code in _WRONG_NAMES:
        return (
            f"the broker's certificate is not for {server_name}. Use a name that it is for in bootstrap servers and "
            "advertised.listeners, or give server_name"
        )
    if error.verify_code == _EXPIRED:
        return "the broker's certificate, or one of its chain, has expired: renew it at the broker"
    if error.verify_code == _NOT_YET_VALID:
        return "the broker's certificate is not valid yet: check the clocks of both machines"
    if error.verify_code in _UNKNOWN_AUTHORITIES:
        return (
            "the broker's certificate is signed by an authority that this client does not know: give ca, the PEM file of that "
            f"authority ({error.verify_message})"
        )
    return f"the broker's certificate is not taken: {error.verify_message}"
