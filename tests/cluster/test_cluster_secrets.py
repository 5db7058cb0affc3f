"""A canary in every secret that a node and its clients know, and a search of all that they print, store, answer and show.

Plans of Spark are looked at in `tests/spark/test_spark_security.py`, settings of programs in `tests/unit/client/security`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import traceback
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from cli_runs import command, replog_here
from cluster_kit import QUICK
from cryptography.hazmat.primitives import serialization
from joserfc import jwt
from joserfc.jwk import RSAKey

import replog
from replog.certs.authority import create_authority, issue
from replog.client import Admin, Security, SyncAdmin, SyncProducer
from replog.cluster import LocalCluster
from replog.cluster.processes import KeptPorts
from replog.errors import ReplogError, SaslAuthenticationError
from replog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from replog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.kafka.raw_client import RawClient

pytestmark = pytest.mark.cluster

KEY_PASSWORD = "canary-of-the-key"
RACK = "canary-of-the-rack"
PASSWORD = "canary-of-alice"
WRONG = "canary-that-is-wrong"
CLIENT_KEY_PASSWORD = "canary-of-the-clients-key"
BROKER = 4
"""The type of a resource that is a broker."""


def locked(path: Path, password: str) -> str:
    """Encrypts the private key in a PEM file; returns the lines of what it was."""
    text = path.read_bytes()
    begin = text.index(b"-----BEGIN CERT")
    key = serialization.load_pem_private_key(text[:begin], None)
    encryption = serialization.BestAvailableEncryption(password.encode())
    data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    path.write_bytes(data + text[begin:])
    return text[:begin].decode()


@dataclass
class Kept:
    """A node, its clients, and what nobody may read.

    Attributes:
        folder: The folder of the cluster.
        ports: The ports of the listeners, by their names.
        security: The ways in which clients log in, by their names.
        secrets: The texts to be searched for.
        metrics: The address of the metrics.
    """

    folder: Path
    ports: dict[str, int]
    security: dict[str, Security]
    metrics: str
    secrets: list[str] = field(default_factory=list)

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def found_in(self, *shown: bytes | str) -> list[str]:
        """The secrets that are in texts, as they are or in base64."""
        texts = [text.encode() if isinstance(text, str) else text for text in shown]
        forms = {each: (each.encode(), base64.b64encode(each.encode()).rstrip(b"=")) for each in self.secrets}
        return [each for each, words in forms.items() if any(word in text for word in words for text in texts)]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("secrets")
    certs = folder / "certs"
    create_authority(certs)
    for name, kind in (("broker", "node"), ("client", "client")):
        issue(certs, name, kind)
    lines = locked(certs / "broker.pem", KEY_PASSWORD) + locked(certs / "client.pem", CLIENT_KEY_PASSWORD)
    token_key = RSAKey.generate_key(2048)
    (certs / "tokens.json").write_text(json.dumps({"keys": [token_key.as_dict(private=False)]}))
    (certs / "key-password").write_text(f"{KEY_PASSWORD}\n")
    (certs / "key-password").chmod(0o600)
    (certs / "others.properties").write_text(f"rack={RACK}\n")
    ports = KeptPorts()
    with ExitStack() as stack:
        stack.callback(ports.release)
        named = dict(zip(("PLAINTEXT", "SASL_SSL", "METRICS"), ports.take(3), strict=True))
        config = {
            **QUICK,
            "listeners": [f"{name}://127.0.0.1:{named[name]}" for name in ("PLAINTEXT", "SASL_SSL")],
            "metrics.listener": f"127.0.0.1:{named['METRICS']}",
            "ssl.keystore.location": str(certs / "broker.pem"),
            "ssl.key.password": f"${{file:{certs}/key-password}}",
            "listener.name.other.ssl.key.password": f"${{file:{certs}/key-password}}",
            "broker.rack": f"${{file:{certs}/others.properties:rack}}",
            "ssl.truststore.location": str(certs / "ca.pem"),
            "listener.name.sasl_ssl.ssl.client.auth": "requested",
            "sasl.enabled.mechanisms": ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"],
            "sasl.oauthbearer.jwks.endpoint.url": (certs / "tokens.json").as_uri(),
            "sasl.oauthbearer.expected.audience": "replog",
        }
        started = LocalCluster.start(folder / "cluster", nodes=1, config=config, first_port=named["PLAINTEXT"])
        cluster = asyncio.run(started)
        try:
            tls = Security.tls(
                ca=str(certs / "ca.pem"), cert=str(certs / "client.pem"), key_password=CLIENT_KEY_PASSWORD
            )
            token = jwt.encode({"alg": "RS256"}, {"sub": "alice", "aud": "replog", "exp": 1 << 33}, token_key)
            old = jwt.encode({"alg": "RS256"}, {"sub": "alice", "aud": "replog", "exp": 1}, token_key)
            security = {
                "scram": Security.scram("alice", PASSWORD, tls=tls),
                "plain": Security.plain("alice", PASSWORD, tls=tls),
                "token": Security.oauth(lambda: token, tls=tls),
                "wrong scram": Security.scram("alice", WRONG, tls=tls),
                "wrong plain": Security.plain("alice", WRONG, tls=tls),
                "wrong token": Security.oauth(lambda: old, tls=tls),
            }
            private = [line for line in lines.splitlines() if len(line) > 40 and "PRIVATE" not in line]
            secrets = [KEY_PASSWORD, PASSWORD, WRONG, CLIENT_KEY_PASSWORD, token, old, *private]
            yield Kept(folder / "cluster", named, security, f"127.0.0.1:{named['METRICS']}", secrets)
        finally:
            asyncio.run(cluster.kill_all())


def variables(error: BaseException) -> list[str]:
    """The variables of each frame of ours in a traceback and in those of its causes, as a reporter of errors shows them."""
    told: traceback.TracebackException | None = traceback.TracebackException.from_exception(error, capture_locals=True)
    found: list[str] = []
    while told is not None:
        found += [str(frame.locals) for frame in told.stack if "/replog/" in frame.filename]
        told = told.__cause__ or told.__context__
    assert found
    return found


@pytest.fixture(scope="module")
def used(kept: Kept) -> Kept:
    """The same when everybody has logged in, or was refused; nothing that clients show of it has a secret in it."""
    with SyncAdmin(kept.at("PLAINTEXT")) as admin:
        admin.create_topic("t", 1, 1)
        admin.set_password("alice", PASSWORD)
    for name, security in kept.security.items():
        shown = [repr(security)]
        with SyncAdmin(kept.at("SASL_SSL"), security=security) as admin:
            if "wrong" in name:
                with pytest.raises(SaslAuthenticationError) as raised:
                    admin.list_topics()
                shown += [str(raised.value), repr(raised.value), *variables(raised.value)]
            else:
                assert "t" in admin.list_topics()
            shown += [repr(admin), repr(vars(admin))]
        if "wrong" not in name:
            with SyncProducer(kept.at("SASL_SSL"), security=security) as producer:
                producer.send("t", b"v").result(60)
                shown += [repr(producer), repr(vars(producer))]
        assert kept.found_in(*shown) == []
    return kept


def test_clients_show_no_secret(used: Kept) -> None:
    """The fixture has looked at each of them: who is let in, who is refused, and the tracebacks with their variables."""
    assert used.found_in(f"x{PASSWORD}x", base64.b64encode(WRONG.encode())) == [PASSWORD, WRONG], "it would be found"


def test_a_node_stores_and_logs_no_secret(used: Kept) -> None:
    files = [path for path in used.folder.rglob("*") if path.is_file()]
    assert {"server.log", "server.toml"} <= {path.name for path in files}
    assert [path for path in files if used.found_in(path.read_bytes())] == []
    assert "SASL_SSL does not know who it is" in (used.folder / "node-1" / "server.log").read_text()


def test_no_process_has_a_secret_in_its_command_line(used: Kept) -> None:
    lines = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert [line for line in lines if str(used.folder) in line], "the node is one of them"
    assert used.found_in(*lines) == []


def test_a_node_answers_no_secret(used: Kept) -> None:
    client = RawClient(used.at("PLAINTEXT"))
    with closing(client.connection):
        asked = DescribeConfigsRequest(
            [DescribeConfigsRequest.DescribeConfigsResource(BROKER, "1", None)], include_synonyms=True
        )
        described = client.ask(asked, 4, DescribeConfigsResponse)
        users = client.ask(DescribeUserScramCredentialsRequest(None), 0, DescribeUserScramCredentialsResponse)
    with urllib.request.urlopen(f"http://{used.metrics}/metrics", timeout=60) as answer:
        metrics = answer.read()
    assert "alice" in repr(users)
    sensitive = [each.name for each in described.results[0].configs if each.is_sensitive]
    assert sensitive == ["broker.rack", "delegation.token.secret.key", "listener.name", "ssl.key.password"]
    assert RACK not in repr(described)
    assert used.found_in(repr(described), repr(users), metrics) == []


COMMANDS = (
    ("configs", "describe", "--node", "1"),
    ("configs", "describe", "--node", "1", "--json"),
    ("configs", "get", "--broker", "1"),
    ("users", "list"),
    ("status",),
    ("topics", "describe"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_prints_no_secret(used: Kept, words: tuple[str, ...]) -> None:
    done = replog_here(*words, "-b", used.at("PLAINTEXT"))
    assert done.status == 0, done
    assert used.found_in(done.out, done.err) == []
    if words[0] == "configs":
        assert RACK not in done.out


def test_the_metadata_log_and_a_bundle_have_no_secret(used: Kept, tmp_path: Path) -> None:
    log = next(used.folder.rglob("__cluster_metadata-0"))
    dumped = replog_here("log", "dump", log, "--deep", "--json")
    assert "UserScramCredentialRecord" in dumped.out
    made = replog_here("debug", "bundle", "-o", tmp_path / "b.zip", "--dir", used.folder)
    assert made.status == 0, made
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        files = [bundle.read(name) for name in bundle.namelist()]
    assert used.found_in(dumped.out, made.out, made.err, *files) == []


def settings_file(kept: Kept, folder: Path, password: str) -> Path:
    """A file for `--client-config` with secrets in it."""
    certs = kept.folder.parent / "certs"
    path = folder / "client.toml"
    path.write_text(
        'security.protocol = "SASL_SSL"\nsasl.mechanism = "PLAIN"\nsasl.username = "alice"\n'
        f'sasl.password = "{password}"\nssl.truststore.location = "{certs / "ca.pem"}"\n'
        f'ssl.keystore.location = "{certs / "client.pem"}"\nssl.key.password = "{CLIENT_KEY_PASSWORD}"\n'
    )
    path.chmod(0o600)
    return path


ASKED_OF = {
    ("registry", "serve", "--listen", "127.0.0.1:0"): ("subjects", "config", "schemas/ids/1"),
    ("console", "--listen", "127.0.0.1:0"): ("", "api/about", "api/health", "api/topics", "api/nothing"),
}
"""Servers that log in for those who ask them, and what they are asked."""


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
@pytest.mark.parametrize("words", ASKED_OF, ids=lambda words: words[0])
def test_a_server_that_logs_in_tells_nobody_its_password(
    used: Kept, words: tuple[str, ...], password: str, tmp_path: Path
) -> None:
    """One whose password is wrong ends, or says to those who ask it that it is refused."""
    file = settings_file(used, tmp_path, password)
    started = command("--client-config", file, *words, "-b", used.at("SASL_SSL"))
    answers: list[tuple[int, bytes]] = []
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            shown = psutil.Process(server.pid).cmdline()
            for line in server.stdout:
                shown.append(line)
                if found := re.search(r"http://\S+", line):
                    answers = [asked(f"{found[0].rstrip('/.')}/{path}") for path in ASKED_OF[words]]
                    break
        finally:
            server.terminate()
            shown += server.communicate(timeout=60)[0].splitlines()
    if password == PASSWORD:
        assert {200, 404} == {status for status, _ in answers}
    else:
        assert b"login of user" in b"".join(body for _, body in answers) + "".join(shown).encode()
    assert used.found_in(*shown, *(body for _, body in answers)) == []


def test_brokers_in_this_process_show_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The private keys that they make, and a secret among the keys that they are given."""
    token_key = "canary-of-the-token-key"
    keys = {"delegation.token.secret.key": token_key}
    with replog.embedded(tmp_path / "data", secure=True, config=keys) as cluster:
        certs = next(tmp_path.rglob("client.toml")).parent
        pems = [
            line for path in certs.glob("*.pem") for line in path.read_text().partition("-----BEGIN CERT")[0].split()
        ]
        kept = Kept(tmp_path, {}, {}, "", [token_key, *(line for line in pems if len(line) > 40)])
        assert len(kept.secrets) > 3
        done = [
            replog_here("--client-config", certs / "client.toml", *words, "-b", cluster.bootstrap_servers)
            for words in COMMANDS
        ]
        shown = [f"{each.out}{each.err}" for each in done if not each.status]
        assert len(shown) == len(COMMANDS), done
        shown += [repr(each) for each in (cluster, cluster.security, *cluster.nodes, cluster.nodes[0].config)]
        shown += [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != certs]
    assert [path for path in files if kept.found_in(path.read_bytes())] == []
    assert [path for path in certs.iterdir() if path.stat().st_mode & 0o077 and kept.found_in(path.read_bytes())] == []
    for wrong in ({"delegation.token.secret.key": [token_key]}, {**keys, "no.key": 1}, [token_key]):
        with pytest.raises(ReplogError) as raised, replog.embedded(config=wrong):  # type: ignore[arg-type]  # the last one
            pass
        shown.append(f"{raised.value}{raised.value!r}{vars(raised.value)}")
    assert kept.found_in(*shown, caplog.text) == []


def asked(url: str) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read() + repr(answer.headers.items()).encode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read() + repr(error.headers.items()).encode()


async def test_errors_of_a_node_whose_secret_is_not_there_show_none(used: Kept, tmp_path: Path) -> None:
    """A node that does not start says which reference is wrong."""
    file = tmp_path / "server.toml"
    text = (used.folder / "node-1" / "server.toml").read_text()
    file.write_text(text.replace("/key-password}", "/nothing}"))
    done = await asyncio.to_thread(replog_here, "storage", "format", "--config", file)
    assert done.status != 0
    assert "/nothing}: " in done.err
    assert "cannot be read: No such file" in done.err
    assert used.found_in(done.out, done.err) == []
    async with Admin(used.at("PLAINTEXT")) as admin:
        assert await admin.list_topics()
