"""SCRAM by the examples of its standards, and what a broker may say that proves nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from replog.client.security.sasl import ITERATIONS_MAX, ScramClient
from replog.errors import SaslAuthenticationError

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def at_the_end(mechanism: str = "SCRAM-SHA-256") -> tuple[ScramClient, bytes]:
    client = ScramClient(mechanism, "user", NONCE)
    told = client.server_first(SERVER_FIRST)
    return client, client.final(client.salted("pencil", told), told)


def test_the_example_of_the_standard() -> None:
    assert ScramClient("SCRAM-SHA-256", "user", NONCE).first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    client, final = at_the_end()
    assert final == CLIENT_FINAL
    client.verify(SERVER_FINAL)


def test_sha_512_against_the_formulas_of_the_standard() -> None:
    _, final = at_the_end("SCRAM-SHA-512")
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", salt, 4096)
    key = hmac.new(salted, b"Client Key", "sha512").digest()
    signed = b"n=user,r=" + NONCE.encode() + b"," + SERVER_FIRST + b"," + final.rpartition(b",p=")[0]
    proof = base64.b64decode(final.rpartition(b",p=")[2])
    signature = hmac.new(hashlib.sha512(key).digest(), signed, "sha512").digest()
    assert bytes(a ^ b for a, b in zip(proof, signature, strict=True)) == key


def test_names_with_signs_of_the_protocol_are_escaped() -> None:
    assert ScramClient("SCRAM-SHA-256", "a=b,c", "x").first() == b"n,,n=a=3Db=2Cc,r=x"


@pytest.mark.parametrize(
    "said",
    [
        b"v=AAAA",
        b"v=",
        b"v=!",
        b"",
        b"x=1",
        b"\xff",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl94G4=",
    ],
)
def test_a_broker_that_does_not_know_the_password_is_refused(said: bytes) -> None:
    client, _ = at_the_end()
    with pytest.raises(SaslAuthenticationError):
        client.verify(said)


def test_a_signature_before_the_proof_is_refused() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", NONCE)
    with pytest.raises(SaslAuthenticationError):
        client.verify(SERVER_FINAL)


def test_the_reason_of_the_broker_is_told() -> None:
    client, _ = at_the_end()
    with pytest.raises(SaslAuthenticationError, match="refuses the user or the password: invalid-proof"):
        client.verify(b"e=invalid-proof")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"", "none of RFC 5802"),
        (b"m=x,r=a,s=b,i=1", "none of RFC 5802"),
        (b"r=other,s=W22Z,i=4096", "does not belong"),
        (b"r=" + NONCE.encode() + b",s=W22Z,i=4096", "does not belong"),
        (b"r=" + NONCE.encode() + b"x" * 2000 + b",s=W22Z,i=4096", "does not belong"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=%d" % (ITERATIONS_MAX + 1)), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-4096"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000), "iterations"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "no bytes"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s=!!!!"), "no bytes"),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_a_first_message_that_is_none_is_refused(said: bytes, text: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", NONCE)
    with pytest.raises(SaslAuthenticationError, match=text):
        client.server_first(said)
