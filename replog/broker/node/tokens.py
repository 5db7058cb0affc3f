"""Tokens of OAUTHBEARER: whom they are of, by the keys of those who sign them (RFC 7519, RFC 7517).

Keys come from a file or a URL, a set of JSON Web Keys.  They are read at the start, and again in the background: a login never waits
for that, so that strangers cannot make a node ask.  Only keys that sign without being a secret count: RSA and elliptic curves.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from replog.access.exchanges import Identity, RunBeside
from replog.config.security_keys import SaslKeys
from replog.errors import ConfigError, SaslAuthenticationError
from replog.host.extras import install_command

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

KEYS_BYTES_MAX: Final = 1 << 20
"""Size of the largest set of keys."""

FETCH_TIMEOUT_S: Final = 10.0
"""How long a URL may take to answer."""

AGAIN_S: Final = 10.0
"""The least time between two readings that a login causes, in seconds."""

_ALGORITHMS: Final = tuple(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512))
_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"

_log = logging.getLogger(__name__)


class Tokens:
    """Verifies the tokens of one listener.

    Args:
        keys: The keys of the listener.
        listener: The name of the listener, for the log.
        run: The function that verifies a signature beside the loop.
        wall_clock: The function that returns seconds since 1970.

    Raises:
        ConfigError: The library for it is not installed.
    """

    def __init__(
        self, keys: SaslKeys, listener: str, run: RunBeside, wall_clock: Callable[[], float] = time.time
    ) -> None:
        try:
            import joserfc  # noqa: F401 -- an extra
        except ModuleNotFoundError:
            raise ConfigError(
                "sasl.enabled.mechanisms", "OAUTHBEARER", f"OAUTHBEARER needs joserfc: {install_command('security')}"
            ) from None
        self._keys = keys
        self._url = keys.sasl_oauthbearer_jwks_endpoint_url or ""  # there is one: `check_together`
        self._listener = listener
        self._run = run
        self._wall_clock = wall_clock
        self._signers: KeySet | None = None
        self._read_s = -math.inf
        self._reading: asyncio.Task[None] | None = None
        self._told = ""

    async def start(self) -> None:
        """Reads the keys.

        Raises:
            ConfigError: A file has none.  What a URL does not answer is told in the log, and asked for again.
        """
        await self._read()
        if self._signers is None and self._url.startswith("file:"):
            raise ConfigError(_KEY, self._url, f"{_KEY} of listener {self._listener}: {self._told}")

    def stop(self) -> None:
        """Gives up what is being read."""
        if self._reading is not None:
            self._reading.cancel()

    async def verify(self, token: str) -> Identity:
        """Returns whom a token is of.

        Raises:
            SaslAuthenticationError: It is not believed.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s - self._read_s >= self._keys.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000:
            self._read_soon()
        signers = self._signers
        if signers is None:
            self._read_soon()
            raise SaslAuthenticationError("its token cannot be verified: there are no keys yet")
        claims = await self._run(lambda: _claims(token, signers))
        if claims is None:
            self._read_soon()
            raise SaslAuthenticationError("its token is none, or signed by nobody whose key is known")
        return self._identity(claims)

    def _identity(self, claims: dict[str, Any]) -> Identity:
        from joserfc.errors import JoseError
        from joserfc.jwt import JWTClaimsRegistry

        keys, skew_s = self._keys, self._keys.sasl_oauthbearer_clock_skew_seconds
        wanted: dict[str, Any] = {"exp": {"essential": True}}
        wanted["aud"] = {"essential": True, "value": keys.sasl_oauthbearer_expected_audience}
        if keys.sasl_oauthbearer_expected_issuer is not None:
            wanted["iss"] = {"essential": True, "value": keys.sasl_oauthbearer_expected_issuer}
        try:
            JWTClaimsRegistry(int(self._wall_clock()), skew_s, **wanted).validate(claims)
            expires_ms = int((claims["exp"] + skew_s) * 1000)
        except (JoseError, TypeError, ValueError, OverflowError) as error:
            raise SaslAuthenticationError(f"its token is refused: {error}") from None
        name = claims.get(keys.sasl_oauthbearer_sub_claim_name)
        if not isinstance(name, str) or not name:
            raise SaslAuthenticationError(f"its token names no user by {keys.sasl_oauthbearer_sub_claim_name}")
        return Identity(name, expires_ms)

    def _read_soon(self) -> None:
        """Reads the keys again beside the logins, unless that was just done."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._read_s >= AGAIN_S and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read(), name="replog-token-keys")

    async def _read(self) -> None:
        try:
            self._signers = await asyncio.to_thread(_read_keys, self._url)
        except (OSError, ValueError) as error:
            reason = f"{self._url} has no keys that sign tokens: {error}"
            if self._told != reason:
                _log.error("listener %s: %s. What was read before goes on", self._listener, reason)
            self._told = reason
        else:
            self._told = ""
        self._read_s = asyncio.get_running_loop().time()


def _claims(token: str, signers: KeySet) -> dict[str, Any] | None:
    """Returns what a token says; None: it is none, or nobody who is known has signed it."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        return dict(jwt.decode(token, signers, algorithms=_ALGORITHMS).claims)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # a stranger made it
        return None


def _read_keys(url: str) -> KeySet:
    """Reads the keys of a URL.

    Raises:
        OSError: It does not answer.
        ValueError: It answers with something else.
    """
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    found = json.loads(_read_bytes(url))
    try:
        kinds = [each for each in found["keys"] if each.get("kty") in {"RSA", "EC"} and each.get("use", "sig") == "sig"]
        if not kinds:
            raise ValueError("it names no key of RSA or of an elliptic curve")
        return KeySet.import_key_set({"keys": kinds})
    except (JoseError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is no set of JSON Web Keys: {error}") from None


def _read_bytes(url: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            data = file.read(KEYS_BYTES_MAX + 1)
    else:
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(url, timeout=FETCH_TIMEOUT_S) as answer:
            data = answer.read(KEYS_BYTES_MAX + 1)
    if len(data) > KEYS_BYTES_MAX:
        raise ValueError(f"it is larger than {KEYS_BYTES_MAX:,} bytes")
    return bytes(data)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Takes keys from the address that was configured alone."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None
