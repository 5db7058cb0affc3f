"""Brokers with a listener of each kind, of Apache Kafka and of ours, and what clients need for it."""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from joserfc import jwt
from joserfc.jwk import RSAKey

from replog.certs import authority
from replog.certs.authority import create_authority, issue
from replog.client import Security, SyncAdmin
from replog.client.security.kafka_names import SCRAM
from replog.cluster import LocalCluster
from replog.cluster.node_spec import ConfigValue
from replog.cluster.processes import KeptPorts
from tests.kafka.kafka_install import KafkaInstall
from tests.kafka.kafka_node import KafkaNode
from tests.kafka.served_cluster import QUICK, run

USER = "alice"
PASSWORD = "canary-password=1, of alice"
AUDIENCE = "replog"
"""Whom the tokens for brokers of ours are meant for."""

KEY_PASSWORD = "canary-key-password"
TOKEN_KEY = "canary-key-of-delegation-tokens"
RENEWAL_MS = 1_500
"""How long a login holds at the listener RENEWED."""

DOORS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "RENEWED": "SASL_SSL",
    "PLAIN_ONLY": "SASL_SSL",
}
"""The listeners by their names, and the protocol of each."""

_MODULES = "org.apache.kafka.common.security"
_JAAS = {
    "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
    "plain": f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "oauthbearer": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
}


@dataclass(frozen=True, slots=True)
class SecureDoors:
    """A broker that runs.

    Attributes:
        kafka: Kafka's own tools; None with a broker of ours.
        certs: The folder of the authority, of the broker's certificate, and of `client.pem`.
        strangers: The folder of an authority that the broker does not know, with a `client.pem`, too.
        ports: The ports of the listeners, by their names; PLAINTEXT is one of them.
    """

    kafka: KafkaInstall | None
    certs: Path
    strangers: Path
    ports: dict[str, int]

    def at(self, door: str) -> str:
        """The bootstrap servers of a listener."""
        return f"127.0.0.1:{self.ports[door]}"

    def add_user(self, name: str, password: str) -> None:
        """Gives a user a credential for each mechanism of SCRAM."""
        if self.kafka is None:
            with SyncAdmin(self.at("PLAINTEXT")) as admin:
                admin.set_password(name, password)
            return
        for mechanism in SCRAM:
            self._alter_user(name, "--add-config", f"{mechanism}=[iterations=4096,password={password}]")

    def delete_user(self, name: str) -> None:
        """Takes a user's credentials away."""
        if self.kafka is None:
            with SyncAdmin(self.at("PLAINTEXT")) as admin:
                admin.remove_user(name)
            return
        for mechanism in SCRAM:
            self._alter_user(name, "--delete-config", mechanism)

    def _alter_user(self, name: str, *change: str) -> None:
        assert self.kafka is not None, "users of brokers of ours are changed by `Admin`"
        servers = ("--bootstrap-server", self.at("PLAINTEXT"))
        entity = ("--entity-type", "users", "--entity-name", name)
        self.kafka.run("kafka.admin.ConfigCommand", *servers, "--alter", *entity, *change)

    def tls(self, **others: str) -> Security:
        """TLS that believes the broker."""
        return Security.tls(ca=str(self.certs / "ca.pem"), **others)

    def mtls(self) -> Security:
        """TLS with a certificate that the broker believes."""
        return self.tls(cert=str(self.certs / "client.pem"))

    def token(self, lifetime_s: int = 3600) -> str:
        """A token that the broker believes, while it lasts."""
        if self.kafka is not None:
            return unsecured_token(lifetime_s)
        key = RSAKey.import_key((self.certs / "tokens.pem").read_bytes())
        claims = {"sub": USER, "aud": AUDIENCE, "exp": int(time.time()) + lifetime_s}
        return jwt.encode({"alg": "RS256"}, claims, key)

    def scram(self, password: str = PASSWORD) -> Security:
        """A login that the broker believes, over TLS."""
        return Security.scram(USER, password, tls=self.tls())


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """Makes both authorities, and what they sign."""
    certs, strangers = folder / "certs", folder / "strangers"
    for each in (certs, strangers):
        create_authority(each)
        issue(each, "client", "client")
    issue(certs, "node", "node")
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=3)
    with mock.patch.object(authority, "_now", return_value=past):
        issue(certs, "expired", "node", days=1)
    return certs, strangers


def unsecured_token(lifetime_s: int = 3600) -> str:
    """A token that Kafka's brokers take where nothing else was set: nobody has signed it (RFC 7515, appendix A.5)."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + lifetime_s})
    return ".".join([base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]) + "."


@contextmanager
def kafka_doors(kafka: KafkaInstall, folder: Path) -> Iterator[SecureDoors]:
    """Runs a node of Kafka for as long as the block."""
    certs, strangers = make_certificates(folder)
    kept = KeptPorts()
    node = KafkaNode(kafka, folder / "node")
    try:
        ports = {**dict(zip(DOORS, kept.take(len(DOORS)), strict=True)), "PLAINTEXT": node.port}
        with node._config.open("a") as file:
            file.write(_settings(node, ports, certs))
        node.start()
        doors = SecureDoors(kafka, certs, strangers, ports)
        doors.add_user(USER, PASSWORD)
        yield doors
    finally:
        node.give_up()
        kept.release()


@contextmanager
def replog_doors(folder: Path) -> Iterator[SecureDoors]:
    """Runs a node of ours, in a process of its own, for as long as the block."""
    certs, strangers = make_certificates(folder)
    key = RSAKey.generate_key(2048)
    (certs / "tokens.pem").write_bytes(key.as_pem(private=True))
    (certs / "tokens.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    kept = KeptPorts()
    try:
        names = ["PLAINTEXT", *DOORS]
        ports = dict(zip(names, kept.take(len(names)), strict=True))
        tls: dict[str, ConfigValue] = {
            "listeners": [f"{name}://127.0.0.1:{port}" for name, port in ports.items()],
            "listener.security.protocol.map": [f"{name}:{DOORS.get(name, name)}" for name in names],
            "ssl.keystore.location": str(certs / "node.pem"),
            "ssl.truststore.location": str(certs / "ca.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.location": str(certs / "expired.pem"),
            "sasl.enabled.mechanisms": ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"],
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": ["SCRAM-SHA-512", "SCRAM-SHA-256"],
            "listener.name.plain_only.sasl.enabled.mechanisms": ["PLAIN"],
            "listener.name.renewed.connections.max.reauth.ms": RENEWAL_MS,
            "sasl.oauthbearer.jwks.endpoint.url": (certs / "tokens.json").as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connection.failed.authentication.delay.ms": 20,
            "delegation.token.secret.key": TOKEN_KEY,
        }
        config = {**QUICK, **tls}
        cluster = run(LocalCluster.start(folder / "cluster", nodes=1, config=config, first_port=ports["PLAINTEXT"]))
        try:
            doors = SecureDoors(None, certs, strangers, ports)
            doors.add_user(USER, PASSWORD)
            yield doors
        finally:
            run(cluster.kill_all())
    finally:
        kept.release()


def _settings(node: KafkaNode, ports: dict[str, int], certs: Path) -> str:
    advertised = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    protocols = {**DOORS, "PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    given = {
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{node.controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certs / "node.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certs / "ca.pem",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.expired.ssl.keystore.type": "PEM",
        "listener.name.expired.ssl.keystore.location": certs / "expired.pem",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        "listener.name.plain_only.sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": 20,
        "delegation.token.secret.key": TOKEN_KEY,
    }
    for name, protocol in DOORS.items():
        for mechanism, text in _JAAS.items() if protocol.startswith("SASL") else ():
            given[f"listener.name.{name.lower()}.{mechanism}.sasl.jaas.config"] = text
            if name == "RENEWED":
                given[f"listener.name.{name.lower()}.{mechanism}.connections.max.reauth.ms"] = RENEWAL_MS
    return "".join(f"{key}={value}\n" for key, value in given.items())
