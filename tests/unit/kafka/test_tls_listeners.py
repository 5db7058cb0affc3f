"""A listener that speaks TLS: who is believed, what they are called, and certificates that change meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import struct
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from msgspec.structs import force_setattr

from replog.access.principal import ANONYMOUS, Principal
from replog.broker.node.client_ports import ClientPorts
from replog.config.server import ServerConfig
from replog.errors import ConfigError
from replog.tcp import certificates
from replog.tcp.port import bind
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.tls_files import Authority
from tests.unit.kafka.kafka_node_kit import Served, batch, serving
from tests.unit.kafka.tls_kit import TlsClient, TlsFiles, connected, is_ended, principals, serving_tls


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def asked_in_plain_text(connection: socket.socket) -> bytes:
    """Asks for the versions of the APIs without TLS; returns what is answered before the connection ends: an alert of TLS."""
    connection.sendall(struct.pack(">ihhi", 10, 18, 0, 1) + b"\xff\xff")
    answered = b""
    while piece := connection.recv(100):
        answered += piece
    return answered


def refused_count(it: Served) -> int:
    ports = it.node._clients
    assert ports is not None
    return sum(ports.read().refused.values())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_is_who_its_certificate_says(files: TlsFiles, version: ssl.TLSVersion) -> None:
    context = files.context(files.client)
    context.minimum_version = context.maximum_version = version
    async with serving_tls(files) as it:
        client = await asyncio.to_thread(TlsClient, it.node.address, context)
        with client.connection:
            (broker,) = (await it.ask(MetadataRequest(None), 12, MetadataResponse, client)).brokers
            assert f"{broker.host}:{broker.port}" == it.node.address
            assert principals(it) == [Principal("CN=billing,O=Example")]
            assert refused_count(it) == 0


async def test_rules_make_names_and_who_has_none_is_refused(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    rules = "RULE:^CN=(b[^,]+),.*$/$1/U"
    other = files.authority.issue("other")
    async with serving_tls(files, ssl_principal_mapping_rules=rules) as it:
        with await asyncio.to_thread(connected, it.node.address, files.context(files.client)):
            await it.until(lambda: principals(it) == [Principal("BILLING")])
            with await asyncio.to_thread(connected, it.node.address, files.context(other)) as refused:
                assert await asyncio.to_thread(is_ended, refused)
            assert refused_count(it) == 1
    assert "no rule of ssl.principal.mapping.rules fits the certificate's subject CN=other,O=Example" in caplog.text


async def test_who_is_not_believed_gets_nothing(
    files: TlsFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Authority(tmp_path, "stranger").issue("billing")
    async with serving_tls(files) as it:
        shown = (None, stranger, files.authority.issue("late", expired=True))
        for count, own in enumerate(shown, 1):
            with await asyncio.to_thread(connected, it.node.address, files.context(own)) as client:
                assert await asyncio.to_thread(is_ended, client), own
            await it.until(lambda count=count: refused_count(it) == count)
        assert principals(it) == []
    (told,) = (record for record in caplog.records if getattr(record, "event", "") == "authentication_failed")
    assert told.levelno == logging.WARNING
    assert (told.listener, told.address) == ("SSL", "127.0.0.1")  # type: ignore[attr-defined]
    assert "peer did not return a certificate" in told.message


async def test_who_shows_no_certificate_where_none_is_needed_is_anonymous(files: TlsFiles) -> None:
    for auth in ("requested", "none"):
        async with serving_tls(files, ssl_client_auth=auth) as it:
            client = await asyncio.to_thread(TlsClient, it.node.address, files.context())
            with client.connection:
                assert (await it.ask(MetadataRequest(None), 12, MetadataResponse, client)).brokers
                assert principals(it) == [ANONYMOUS]


async def test_plain_text_is_told_from_tls(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    async with serving_tls(files) as it:
        host, _, port = it.node.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as plain:
            assert await asyncio.to_thread(asked_in_plain_text, plain) == b"\x15\x03\x03\0\x02\x02\x0a"
    assert "its first bytes are no TLS hello: this listener speaks TLS, set security.protocol=SSL" in caplog.text


def test_a_listener_that_is_to_speak_tls_never_speaks_plain_text(files: TlsFiles) -> None:
    """Trap: the certificate is missing all the same, past the check of the configuration."""
    config = ServerConfig.from_mapping(
        {
            "node.id": 1,
            "log.dirs": ["/data"],
            "listeners": ["127.0.0.1:0", "SSL://127.0.0.1:0"],
            "ssl.keystore.location": str(files.broker),
        }
    )
    ports = [bind("127.0.0.1", 0) for _ in config.listeners]
    with contextlib.ExitStack() as stack:
        for port in ports:
            stack.callback(port.close)
        ClientPorts(config, ports)
        force_setattr(config, "ssl_keystore_location", None)
        with pytest.raises(ConfigError, match="listener SSL"):
            ClientPorts(config, ports)


async def test_records_come_and_go_over_tls(files: TlsFiles) -> None:
    """As many as make several records of TLS, several pieces and several turns, both ways."""
    big = os.urandom(3 << 20)
    async with serving_tls(files, message_max_bytes=8 << 20, log_segment_bytes=16 << 20) as it:
        await it.create(max_message_bytes="8388608")
        client = await asyncio.to_thread(TlsClient, it.node.address, files.context(files.client))
        it._clients.append(client)
        assert await it.produce(batch(big), batch(b"small"), batch(big)) == 2
        asked = FetchRequest.FetchTopic(
            "t", partitions=[FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=16 << 20)]
        )
        answer = await it.ask(FetchRequest(max_wait_ms=0, max_bytes=16 << 20, topics=[asked]), 12, FetchResponse)
        records = bytes(answer.responses[0].partitions[0].records)
        assert (records.count(big), records.count(b"small")) == (2, 1)


async def test_a_renamed_file_is_read_and_connections_go_on(
    files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    own = TlsFiles(tmp_path)
    async with serving_tls(own) as it:
        before = await asyncio.to_thread(TlsClient, it.node.address, own.context(own.client))
        with before.connection:
            serial = before.connection.getpeercert()["serialNumber"]  # type: ignore[index, call-overload]
            own.broker.write_text("half of a f")
            with await asyncio.to_thread(connected, it.node.address, own.context(own.client)) as still:
                assert still.getpeercert()["serialNumber"] == serial  # type: ignore[index]
            assert "The certificates that were read before go on" in caplog.text
            own.authority.issue("broker")
            with await asyncio.to_thread(connected, it.node.address, own.context(own.client)) as after:
                assert after.getpeercert()["serialNumber"] != serial  # type: ignore[index]
            assert (await it.ask(MetadataRequest(None), 12, MetadataResponse, before)).brokers


async def test_an_authority_that_is_taken_away_is_believed_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    own = TlsFiles(tmp_path)
    context = own.context(own.client)
    async with serving_tls(own) as it:
        with await asyncio.to_thread(connected, it.node.address, context) as first:
            assert not await asyncio.to_thread(is_ended, first)
            session = first.session
        Authority(tmp_path)  # another one of its name, in its file
        with await asyncio.to_thread(connected, it.node.address, context, session) as again:
            assert await asyncio.to_thread(is_ended, again)


@pytest.mark.parametrize(
    ("broken", "key", "reason"),
    [
        ({"ssl_keystore_location": "/nowhere.pem"}, "ssl.keystore.location", "No such file"),
        ({"ssl_truststore_location": "/nowhere.pem"}, "ssl.truststore.location", "No such file"),
        ({"ssl_keystore_location": "authority.pem"}, "ssl.keystore.location", "cannot be used"),
    ],
)
async def test_a_file_that_cannot_be_used_ends_the_start(
    files: TlsFiles, broken: dict[str, str], key: str, reason: str
) -> None:
    broken = {name: value if value.startswith("/") else str(files.folder / value) for name, value in broken.items()}
    with pytest.raises(ConfigError, match=reason) as raised:
        async with serving(**files.keys(**broken)):
            pass
    assert raised.value.field == key


def locked(files: TlsFiles, password: bytes) -> str:
    """A file as that of the broker, with a private key that is encrypted."""
    text = files.broker.read_bytes()
    key = serialization.load_pem_private_key(text, None)
    encryption = serialization.BestAvailableEncryption(password)
    data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    path = files.folder / "locked.pem"
    path.write_bytes(data + text[text.index(b"-----BEGIN CERT") :])
    return str(path)


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({}, "has a password: set ssl.key.password"),
        ({"ssl_key_password": "canary"}, "cannot be decrypted with this ssl.key.password"),
    ],
)
async def test_a_key_whose_password_is_not_known_is_refused_without_asking_for_it(
    files: TlsFiles, others: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        async with serving(**files.keys(ssl_keystore_location=locked(files, b"secret"), **others)):
            pass
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize("line", ["secret", "${file:kept}"])
async def test_a_key_is_replaced_by_one_with_another_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    """The key comes first, and its password, in the node's file or where that refers to, a moment later."""
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    caplog.set_level(logging.INFO, "replog.tcp.certificates")
    own, kept, file = TlsFiles(tmp_path), tmp_path / "kept", tmp_path / "server.toml"
    kept.write_text("secret\n")
    kept.chmod(0o600)
    file.write_text(f'"node.id" = 1\n"log.dirs" = ["data"]\n"ssl.key.password" = "{line}"\n')
    password = ServerConfig.from_toml(file).ssl_key_password
    keys = own.keys(ssl_keystore_location=locked(own, b"secret"), ssl_key_password=password)
    async with serving(**keys) as it:

        async def serial() -> object:
            with await asyncio.to_thread(connected, it.node.address, own.context(own.client)) as client:
                return client.getpeercert()["serialNumber"]  # type: ignore[index]

        before = await serial()
        own.authority.issue("broker")
        locked(own, b"another")
        assert await serial() == before
        assert "cannot be decrypted with this ssl.key.password" in caplog.text
        kept.write_text("another\n")
        file.write_text(file.read_text().replace('"secret"', '"another"'))
        assert await serial() != before
        assert "listener SSL has new certificates" in caplog.text


async def test_a_key_may_have_a_password(files: TlsFiles) -> None:
    keys = files.keys(ssl_keystore_location=locked(files, b"secret"), ssl_key_password="secret")
    async with serving(**keys) as it:
        client = await asyncio.to_thread(TlsClient, it.node.address, files.context(files.client))
        with client.connection:
            assert (await it.ask(MetadataRequest(None), 12, MetadataResponse, client)).brokers
