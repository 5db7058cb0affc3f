"""The server's side of SCRAM, PLAIN and OAUTHBEARER: the vectors of the RFCs, our own client, and whoever is not believed."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import TypeVar

import pytest

from replog.access.credentials import ScramCredential, ScramMechanism
from replog.access.exchanges import BearerExchange, Identity, Passwords, PlainExchange, ScramExchange, ServerExchange
from replog.access.scram import credential_of, new_salt, salted_password, stand_in
from replog.client.security.sasl import ScramClient
from replog.errors import SaslAuthenticationError

T = TypeVar("T")

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def kept(
    password: str, mechanism: ScramMechanism = SHA_256, salt: bytes = b"salt", iterations: int = 4096
) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password.encode(), salt, iterations), salt, iterations)


def passwords(users: dict[tuple[ScramMechanism, str], ScramCredential]) -> Passwords:
    return Passwords(lambda mechanism, name: users.get((mechanism, name)), b"secret")


USERS = passwords(
    {(SHA_256, "alice"): kept("pw"), (SHA_512, "alice"): kept("pw", SHA_512), (SHA_512, "a=,b"): kept("x", SHA_512)}
)


async def run(work: Callable[[], T]) -> T:
    return work()


async def test_the_exchange_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = passwords({(SHA_256, "user"): kept("pencil", salt=salt)})
    exchange = ScramExchange(SHA_256, known, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = await exchange.reply(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first.data.decode() == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = await exchange.reply(f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode())
    assert last.data == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.identity == Identity("user")


async def scram(mechanism: ScramMechanism, name: str, password: str, known: Passwords = USERS) -> Identity | None:
    """Who our own client is believed to be, which looks at the server's proof, too."""
    client, exchange = ScramClient(mechanism.sasl_name, name, "nonce"), ScramExchange(mechanism, known)
    told = client.server_first((await exchange.reply(client.first())).data)
    last = await exchange.reply(client.final(client.salted(password, told), told))
    client.verify(last.data)
    return last.identity


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_our_client_is_believed_and_believes(mechanism: ScramMechanism) -> None:
    assert await scram(mechanism, "alice", "pw") == Identity("alice")
    with pytest.raises(SaslAuthenticationError, match="password of user 'alice' is wrong"):
        await scram(mechanism, "alice", "pW")
    with pytest.raises(SaslAuthenticationError, match="no user 'bob'"):
        await scram(mechanism, "bob", "pw")


async def test_names_with_commas_and_equals_signs() -> None:
    assert await scram(SHA_512, "a=,b", "x") == Identity("a=,b")


async def test_nobody_learns_whether_there_is_a_user() -> None:
    """What a stranger is told first of a user that there is not looks like that of one, and is the same at each attempt."""
    real = passwords({(SHA_256, "alice"): kept("pw", salt=new_salt())})
    first = [
        await ScramExchange(SHA_256, real, "own").reply(f"n,,n={name},r=n".encode()) for name in ("alice", "bob", "bob")
    ]
    assert first[1] == first[2]
    shapes = [[(part[:2], len(part)) for part in each.data.decode().split(",")] for each in first]
    assert [shape[0] for shape in shapes] == [("r=", 6)] * 3
    assert {shape[2] for shape in shapes} == {("i=", 6)}
    assert all(24 <= len(stand_in(b"x", SHA_256, f"user-{number}").salt) <= 26 for number in range(100))
    assert all(20 <= len(new_salt()) <= 26 and new_salt().isalnum() for _ in range(100))


@pytest.mark.parametrize(
    "first",
    [
        b"", b",", b"n,,", b"\xff", b"n,,n=,r=n", b"n,,n=alice", b"n,,n=alice,r=", b"n,,n=alice,r=a b", b"p=tls-unique,,n=alice,r=n",
        b"n,a=bob,n=alice,r=n", b"n,alice,n=alice,r=n", b"n,,n=al=ice,r=n", b"n,,n=alice,r=n,tokenauth=true", b"n,,m=x,n=alice,r=n",
        b"n,,n=alice,r=n,m=x", b"n,,n=" + b"a" * 1025 + b",r=n", b"n,,n=alice,r=" + b"n" * 1025, b"n,,n=\x00" + b"\0" * (1 << 20),
    ],
)  # fmt: skip
async def test_what_is_no_first_message_of_scram(first: bytes) -> None:
    with pytest.raises(SaslAuthenticationError) as raised:
        await ScramExchange(SHA_256, USERS).reply(first)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("last", ["", "c=biws", "c=biws,r=nown", "c=biws,r=other,p=eA==", "c=eSws,r=nown,p=eA==", "c=biws,r=nown,p=!",
                                  "c=biws,r=nown,p=", "c=biws,r=nown,p=" + base64.b64encode(bytes(33)).decode()])  # fmt: skip
async def test_what_is_no_proof_of_scram(last: str) -> None:
    exchange = ScramExchange(SHA_256, USERS, "own")
    await exchange.reply(b"n,,n=alice,r=n")
    with pytest.raises(SaslAuthenticationError):
        await exchange.reply(last.encode())


async def test_a_proof_that_is_right_and_longer_is_none() -> None:
    client, exchange = ScramClient("SCRAM-SHA-256", "alice", "nonce"), ScramExchange(SHA_256, USERS)
    told = client.server_first((await exchange.reply(client.first())).data)
    message, _, proof = client.final(client.salted("pw", told), told).decode().rpartition(",p=")
    longer = base64.b64encode(base64.b64decode(proof) + b"x").decode()
    with pytest.raises(SaslAuthenticationError, match="is wrong"):
        await exchange.reply(f"{message},p={longer}".encode())


@pytest.mark.parametrize("message", [b"\0alice\0pw", b"alice\0alice\0pw", b"\0a=,b\0x"])
async def test_plain_is_verified_by_what_is_kept_for_scram(message: bytes) -> None:
    reply = await PlainExchange(USERS, run).reply(message)
    assert reply.identity == Identity(message.split(b"\0")[1].decode())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\0alice\0pW", "is wrong"),
        (b"\0bob\0pw", "no user 'bob'"),
        (b"bob\0alice\0pw", "act as somebody else"),
        (b"\0alice\0", "is empty"),
        (b"\0\0pw", "has 0 bytes"),
        (b"\0alice\0" + b"x" * 1025, "longer than"),
        (b"\0" + b"a" * (1 << 20) + b"\0pw", "has 1,048,576 bytes"),
        (b"alice\0pw", "none of RFC 4616"),
        (b"\0alice\0pw\0", "none of RFC 4616"),
        (b"\0al\xffice\0pw", "no text"),
    ],
)
async def test_who_is_not_believed_by_plain(message: bytes, reason: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=reason) as raised:
        await PlainExchange(USERS, run).reply(message)
    assert "pW" not in str(raised.value)


async def test_a_bearer_token_is_who_it_is_of() -> None:
    async def verify(token: str) -> Identity:
        await asyncio.sleep(0)
        if token != "good":
            raise SaslAuthenticationError("it is bad")
        return Identity("alice", 5)

    def exchange() -> ServerExchange:
        return BearerExchange(verify)

    for message in (b"n,,\x01auth=Bearer good\x01\x01", b"n,a=alice,\x01auth=bearer good\x01host=h\x01\x01"):
        assert (await exchange().reply(message)).identity == Identity("alice", 5)
    for message in (b"n,,\x01auth=Bearer bad\x01\x01", b"n,a=bob,\x01auth=Bearer good\x01\x01"):
        refused = exchange()
        reply = await refused.reply(message)
        assert reply.identity is None
        assert b"invalid_token" in reply.data
        with pytest.raises(SaslAuthenticationError):
            await refused.reply(b"\x01")
    for message in (
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"p=x,,\x01auth=Bearer good\x01\x01",
    ):
        with pytest.raises(SaslAuthenticationError):
            await exchange().reply(message)


def test_what_is_kept_is_never_shown() -> None:
    assert repr(kept("pw")) == "ScramCredential(iterations=4096)"
