"""Tokens of OAUTHBEARER: whom they are of, and which are refused; keys from a file and from a URL, and newer ones."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from replog.access.exchanges import Identity
from replog.broker.node import tokens as tokens_module
from replog.broker.node.tokens import Tokens
from replog.config.security_keys import SaslKeys
from replog.errors import ConfigError, SaslAuthenticationError

T = TypeVar("T")

NOW_S = 1_700_000_000
RSA, EC, STRANGER = RSAKey.generate_key(2048), ECKey.generate_key("P-256"), RSAKey.generate_key(2048)
CLAIMS = {"sub": "alice", "aud": "replog", "iss": "https://issuer", "exp": NOW_S + 60}


def signed(claims: dict[str, Any], key: Any = RSA, alg: str = "RS256") -> str:
    return jwt.encode({"alg": alg, "kid": key.thumbprint()}, claims, key, algorithms=[alg])


def key_set(*keys: Any) -> str:
    return json.dumps({"keys": [{**key.as_dict(private=False), "kid": key.thumbprint()} for key in keys]})


async def run(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


def tokens(url: str, **others: Any) -> Tokens:
    keys = SaslKeys(sasl_oauthbearer_jwks_endpoint_url=url, sasl_oauthbearer_expected_audience="replog", **others)
    return Tokens(keys, "OUTSIDE", run, lambda: NOW_S)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "keys of others.json"
    found.write_text(key_set(RSA, EC))
    return found


@pytest.mark.parametrize(("key", "alg"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256")])
async def test_a_token_is_of_its_subject_until_it_ends(path: Path, key: Any, alg: str) -> None:
    verifier = tokens(path.as_uri(), sasl_oauthbearer_expected_issuer="https://issuer")
    await verifier.start()
    assert await verifier.verify(signed(CLAIMS, key, alg)) == Identity("alice", (NOW_S + 60 + 30) * 1000)
    assert (await verifier.verify(signed(CLAIMS | {"aud": ["other", "replog"]}))).name == "alice"
    assert (await verifier.verify(signed(CLAIMS | {"exp": NOW_S - 29}))).name == "alice", "clocks differ"


async def test_the_user_may_be_in_another_claim(path: Path) -> None:
    verifier = tokens(path.as_uri(), sasl_oauthbearer_sub_claim_name="client_id")
    await verifier.start()
    assert (await verifier.verify(signed(CLAIMS | {"client_id": "billing"}))).name == "billing"
    with pytest.raises(SaslAuthenticationError, match="names no user by client_id"):
        await verifier.verify(signed(CLAIMS))


def unsigned() -> str:
    parts = ({"alg": "none"}, CLAIMS)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def by_public_key() -> str:
    """One who takes the public key for a secret (RFC 8725, 2.1)."""
    parts = ({"alg": "HS256", "kid": RSA.thumbprint()}, CLAIMS)
    text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    mac = hmac.digest(RSA.as_pem(private=False), text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


REFUSED = {
    "another-audience": lambda: signed(CLAIMS | {"aud": "other"}),
    "no-audience": lambda: signed({key: CLAIMS[key] for key in CLAIMS if key != "aud"}),
    "another-issuer": lambda: signed(CLAIMS | {"iss": "https://other"}),
    "no-end": lambda: signed({key: CLAIMS[key] for key in CLAIMS if key != "exp"}),
    "ended": lambda: signed(CLAIMS | {"exp": NOW_S - 31}),
    "not-begun": lambda: signed(CLAIMS | {"nbf": NOW_S + 31}),
    "end-is-text": lambda: signed(CLAIMS | {"exp": "soon"}),
    "end-is-never": lambda: signed(CLAIMS | {"exp": float("inf")}),
    "no-subject": lambda: signed(CLAIMS | {"sub": ""}),
    "number-as-subject": lambda: signed(CLAIMS | {"sub": 5}),
    "stranger": lambda: signed(CLAIMS, STRANGER),
    "unsigned": unsigned,
    "public-key-as-secret": by_public_key,
    "changed": lambda: signed(CLAIMS)[:-8] + "AAAAAAAA",
    "empty": lambda: "",
    "words": lambda: "a.b.c",
    "deep": lambda: ".".join([base64.urlsafe_b64encode(b"[" * 40_000).decode(), "e30", "x"]),
    "bytes": lambda: "\x00" * 60_000,
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_tokens_that_are_refused(path: Path, case: str) -> None:
    verifier = tokens(path.as_uri(), sasl_oauthbearer_expected_issuer="https://issuer")
    await verifier.start()
    with pytest.raises(SaslAuthenticationError):
        await verifier.verify(REFUSED[case]())
    verifier.stop()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"keys": []}', '{"keys": [5]}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', '{"keys": [{"kty": "RSA"}]}']
)  # fmt: skip
async def test_a_file_without_keys_ends_the_start(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match="has no keys that sign tokens"):
        await tokens(path.as_uri()).start()


async def test_a_file_that_is_missing_or_too_large_ends_the_start(path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        await tokens(path.with_name("none").as_uri()).start()
    path.write_text(" " * (1 << 20) + "{}")
    with pytest.raises(ConfigError, match="larger than"):
        await tokens(path.as_uri()).start()


async def test_a_new_key_is_read_when_a_token_needs_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a login does not wait for the keys, and a set that cannot be used leaves those that there are."""
    monkeypatch.setattr(tokens_module, "AGAIN_S", 0.0)
    verifier = tokens(path.as_uri())
    await verifier.start()
    path.write_text("nothing")
    for _ in range(2):
        with pytest.raises(SaslAuthenticationError):
            await verifier.verify(signed(CLAIMS, STRANGER))
        assert verifier._reading is not None
        await verifier._reading
        assert (await verifier.verify(signed(CLAIMS))).name == "alice"
        path.write_text("{}")
    path.write_text(key_set(STRANGER))
    with pytest.raises(SaslAuthenticationError):
        await verifier.verify(signed(CLAIMS, STRANGER))
    await verifier._reading
    assert (await verifier.verify(signed(CLAIMS, STRANGER))).name == "alice"


class _Keys(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        moved = self.path == "/moved"
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(key_set(RSA).encode())

    def log_message(self, *_arguments: Any) -> None:
        """Says nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Keys)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_keys_come_from_a_url_and_from_no_other(url: str) -> None:
    verifier = tokens(f"{url}/keys")
    await verifier.start()
    assert (await verifier.verify(signed(CLAIMS))).name == "alice"
    moved = tokens(f"{url}/moved")
    await moved.start()
    with pytest.raises(SaslAuthenticationError, match="there are no keys yet"):
        await moved.verify(signed(CLAIMS))
    moved.stop()
