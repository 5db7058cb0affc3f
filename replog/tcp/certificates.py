"""The certificates of a listener: read from PEM files, and read again when these change, while connections go on.

Files are looked at when a client connects, at most every few seconds.  One that cannot be used is told in the log once, and what was
read before goes on: replace a file by renaming another into its place, so that nobody reads half of it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from replog.access.principal import Principal
from replog.errors import ConfigError
from replog.host.private_files import warn_if_open
from replog.tcp.principals import certificate_principal, parse_rules
from replog.tcp.tls_settings import ClientAuth, TlsSettings, TlsVersion

LOOK_EVERY_S = 2.0
"""How often the files are looked at, at most."""

SUITES: Final = "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20"
"""The suites of TLS 1.2, as OpenSSL names them: keys that are of no use later, and no CBC, which has failed again and again.  TLS 1.3 has no others."""

GROUP: Final = "prime256v1"
"""The one group of keys, which every client speaks.  OpenSSL would take others that clients offer, among them ffdhe8192, which costs 150 ms of CPU a
handshake: one stranger could hold the loop up (CVE-2002-20001).  Python's `ssl` names a single one before 3.15."""

_log = logging.getLogger(__name__)


_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS = {TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3}

_Stamp = tuple[tuple[int, int, int], ...]


class PemFiles(Struct, frozen=True):
    """What stood in the files.

    Attributes:
        keystore: The private key, its certificate and the chain.
        truststore: The certificates of the authorities; empty: none are named.
    """

    keystore: bytes
    truststore: bytes


class Certificates:
    """Gives each new connection what was read last.  Of one event loop.

    Args:
        settings: The files, and what is done with them.
        listener: The name of the listener, for errors.
        now_s: The function that returns seconds of a clock that never goes back.
        identify: The function that makes an identity of a verified certificate in DER, or of None where none was shown; it raises
            `ValueError` where that is nobody.  None: by the rules of the settings.
        check: The function that raises `ValueError` where the own certificate, in DER, is not the right one; None: any is.
        dials: Whether these connections are opened from this side, to others that listen.
        is_over_grpc: Whether `files` is what is used: gRPC takes no private key with a password.

    Attributes:
        identify: As given.

    Raises:
        ConfigError: A file cannot be used.
    """

    def __init__(
        self,
        settings: TlsSettings,
        listener: str,
        now_s: Callable[[], float] = monotonic,
        *,
        identify: Callable[[bytes | None], Principal] | None = None,
        check: Callable[[bytes], None] | None = None,
        dials: bool = False,
        is_over_grpc: bool = False,
    ) -> None:
        self._settings = settings
        self._is_over_grpc = is_over_grpc
        self._listener = listener
        self._now_s = now_s
        self.identify = identify or partial(certificate_principal, rules=parse_rules(settings.mapping_rules))
        self._check = check
        self._dials = dials
        self._looked_s = now_s()
        self._told = ""
        self._stamp = self._stamped()
        self._context, self._files = self._read()

    def context(self) -> ssl.SSLContext:
        """Returns what the next connection is served with."""
        self._look_again()
        return self._context

    def files(self) -> PemFiles:
        """Returns the same for gRPC, which has contexts of its own; another object when the files have changed."""
        self._look_again()
        return self._files

    def _look_again(self) -> None:
        if self._now_s() - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = self._now_s()
            self._look()

    def _look(self) -> None:
        """Reads the files again if they have changed."""
        try:
            stamp = self._stamped()
            if stamp == self._stamp:
                return
            if (password := self._settings.key_password) is not None:
                self._settings = replace(self._settings, key_password=password.renewed())
            self._context, self._files = self._read()
            self._stamp = stamp  # behind it: what cannot be used is tried again, its password may come later
        except ConfigError as error:
            if self._told != str(error):
                self._told = str(error)
                _log.error("%s. The certificates that were read before go on", error)
        else:
            self._told = ""
            _log.info("listener %s has new certificates: %s", self._listener, self._settings.keystore)

    def _stamped(self) -> _Stamp:
        """Returns what tells a file from the one before it."""
        found = []
        for path in filter(None, (self._settings.keystore, self._settings.truststore)):
            try:
                state = Path(path).stat()
            except OSError as error:
                raise self._unusable(path, error.strerror or str(error)) from None
            found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return tuple(found)

    def _read(self) -> tuple[ssl.SSLContext, PemFiles]:
        settings = self._settings
        files = PemFiles(self._bytes_of(settings.keystore), self._bytes_of(settings.truststore))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if self._dials else ssl.PROTOCOL_TLS_SERVER)
        versions = [_VERSIONS[version] for version in settings.versions]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        context.set_ciphers(SUITES)
        context.set_ecdh_curve(GROUP)
        # no connection goes on with the session of an earlier one: each certificate is verified as of now
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        if not self._dials:
            context.num_tickets = 0
        try:
            self._load_own(context)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise self._unusable(settings.keystore, _reason(error)) from None
        self._check_own()
        if settings.truststore:
            try:
                context.load_verify_locations(settings.truststore)
            except OSError as error:
                raise self._unusable(settings.truststore, _reason(error)) from None
        context.check_hostname = False  # who dials asks for a name of its own kind: `identify`
        context.verify_mode = _VERIFY[settings.client_auth]
        return context, files

    def _bytes_of(self, path: str) -> bytes:
        """Returns what stands in a file; of none, nothing."""
        try:
            return Path(path).read_bytes() if path else b""
        except OSError as error:
            raise self._unusable(path, error.strerror or str(error)) from None

    def _load_own(self, context: ssl.SSLContext) -> None:
        """Reads the private key and its certificates; the password, if the key has one.

        Raises:
            OSError: The file cannot be read, or what is in it.
            ValueError: The password is missing, or another one, or is of no use.
        """
        password, is_asked = self._settings.key_password, False

        def told() -> str:
            nonlocal is_asked
            is_asked = True
            if self._is_over_grpc:
                raise ValueError(
                    "its private key has a password, and gRPC takes none: give nodes a key without one, which only their user may "
                    "read, or set inter.broker.transport to tcp on all of them"
                )
            if password is None:  # or OpenSSL would ask on the terminal
                raise ValueError("its private key has a password: set ssl.key.password")
            return password.reveal()

        try:
            context.load_cert_chain(self._settings.keystore, password=told)
        except ssl.SSLError:
            if is_asked:
                raise ValueError("its private key cannot be decrypted with this ssl.key.password") from None
            raise

    def _check_own(self) -> None:
        """Looks whether the own certificate is the right one, and says how others are kept from its key."""
        path = self._settings.keystore
        if self._check is not None:
            try:
                self._check(_first_certificate(path))
            except (ValueError, IndexError, StopIteration) as error:
                raise self._unusable(path, str(error) or "its certificate cannot be read") from None
        if not self._dials:
            warn_if_open(Path(path), f"the private key of listener {self._listener}")

    def _unusable(self, path: str, reason: str) -> ConfigError:
        is_own = path == self._settings.keystore
        key = f"ssl.{'keystore' if is_own else 'truststore'}.location"
        holds = "a private key, its certificate and the chain" if is_own else "certificates"
        return ConfigError(
            key,
            path,
            f"{key} of listener {self._listener}: {path} cannot be used: {reason}. It is a PEM file with {holds}",
        )


def _first_certificate(path: str) -> bytes:
    """Returns the first certificate of a PEM file in DER: the one that is proved by the private key."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = Path(path).read_text(encoding="ascii", errors="replace")
    return ssl.PEM_cert_to_DER_cert(begin + text.split(begin, 1)[1].split(end, 1)[0] + end)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
