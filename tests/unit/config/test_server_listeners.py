"""Addresses of a node: where it listens, what others are told, and what needs permission."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from replog.config.kinds import parse_endpoint, quoted
from replog.config.server import Endpoint, ServerConfig
from replog.errors import ConfigError
from replog.metadata.records import SecurityProtocol
from replog.tcp.tls_settings import ClientAuth
from tests.unit.config.minimal_config import MINIMAL, refused

A_IS_PLAIN = {"listener.security.protocol.map": "A:PLAINTEXT,PLAINTEXT:PLAINTEXT"}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_loopback_needs_no_permission(host: str) -> None:
    assert ServerConfig.from_mapping(MINIMAL | {"listeners": [f"{host}:0"]}).client_listener.is_loopback


@pytest.mark.parametrize("listener", ["192.168.1.7:9092", "broker-1.example:9092", "[2001:db8::1]:9092"])
def test_other_addresses_need_allow_insecure(listener: str) -> None:
    error = refused({"listeners": [listener]})
    assert error.field == "listeners"
    assert "allow.insecure = true" in str(error)
    assert ServerConfig.from_mapping(MINIMAL | {"listeners": [listener], "allow.insecure": True})


@pytest.mark.parametrize("listener", ["0.0.0.0:9092", "[::]:9092"])
def test_a_wildcard_needs_an_advertised_address(listener: str) -> None:
    values: dict[str, object] = {"listeners": [listener], "allow.insecure": True}
    assert refused(values).field == "advertised.listeners"
    assert ServerConfig.from_mapping(MINIMAL | values | {"advertised.listeners": ["10.0.0.1:9092"]})


@pytest.mark.parametrize("endpoint", ["10.0.0.1:0", "0.0.0.0:9092"])
def test_advertised_addresses_can_be_connected_to(endpoint: str) -> None:
    assert refused({"advertised.listeners": [endpoint]}).field == "advertised.listeners"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("PLAINTEXT://h:1", "write host:port"),
        ("h", "not host:port"),
        ("h:", "not host:port"),
        ("h:65536", "not host:port"),
        ("h:-1", "not host:port"),
        ("h:٣", "not host:port"),
        (":9092", "127.0.0.1:9092"),
        ("::1:9092", "brackets"),
    ],
)
def test_malformed_addresses(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("127.0.0.1:0", Endpoint("127.0.0.1", 0)), ("[::1]:9100", Endpoint("::1", 9100)), ("", None), (" ", None)],
)
def test_metrics_are_served_where_it_is_said(text: str, endpoint: Endpoint | None) -> None:
    config = ServerConfig.from_mapping(MINIMAL | {"metrics.listener": text})
    assert config.metrics_listener == endpoint
    assert ServerConfig.from_mapping(tomllib.loads(config.to_toml())) == config
    assert ServerConfig.from_mapping(MINIMAL).metrics_listener is None


def test_metrics_for_other_machines_need_allow_insecure() -> None:
    values = MINIMAL | {"metrics.listener": "0.0.0.0:9100"}
    with pytest.raises(ConfigError, match=r"allow\.insecure") as raised:
        ServerConfig.from_mapping(values)
    assert raised.value.field == "metrics.listener"
    assert ServerConfig.from_mapping(values | {"allow.insecure": True}).metrics_listener == Endpoint("0.0.0.0", 9100)
    with pytest.raises(ConfigError, match="host:port"):
        ServerConfig.from_mapping(MINIMAL | {"metrics.listener": "9100"})
    with pytest.raises(ConfigError, match="is not a string"):
        ServerConfig.from_mapping(MINIMAL | {"metrics.listener": 9100})


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    listener = ServerConfig.from_mapping(MINIMAL | {"listeners": ["[::1]:9001"]}).client_listener
    assert (listener, str(listener)) == (Endpoint("::1", 9001), "[::1]:9001")


def test_nodes_come_to_the_port_behind_that_of_clients_unless_they_have_one_of_their_own() -> None:
    default = ServerConfig.from_mapping(MINIMAL)
    assert (default.client_listener, default.peer_listener) == (
        Endpoint("127.0.0.1", 9092),
        Endpoint("127.0.0.1", 9093),
    )
    free = ServerConfig.from_mapping(MINIMAL | {"listeners": ["127.0.0.1:0"]})
    assert free.peer_listener == Endpoint("127.0.0.1", 0)
    own = ServerConfig.from_mapping(MINIMAL | {"inter.broker.listener": "localhost:7000"})
    assert own.peer_listener == own.told_peer_listener(7000) == Endpoint("localhost", 7000)


def test_nodes_are_told_the_advertised_host_unless_they_have_an_address_of_their_own() -> None:
    values = {"listeners": "0.0.0.0:9092", "allow.insecure": True, "advertised.listeners": "b1.example:19092"}
    config = ServerConfig.from_mapping(MINIMAL | values)
    assert config.told_client_listener(config.listeners[0], 9092) == Endpoint("b1.example", 19092)
    assert config.told_peer_listener(9093) == Endpoint("b1.example", 9093)
    own = ServerConfig.from_mapping(MINIMAL | values | {"inter.broker.advertised.listener": "b1.internal:7"})
    assert own.told_peer_listener(9093) == Endpoint("b1.internal", 7)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"listeners": ["127.0.0.1:65535"]}, "inter.broker.listener"),
        ({"inter.broker.listener": "127.0.0.1:9092"}, "inter.broker.listener"),
        ({"inter.broker.listener": "192.168.1.7:9093"}, "inter.broker.listener"),
        ({"inter.broker.listener": "0.0.0.0:9093", "allow.insecure": True}, "inter.broker.advertised.listener"),
        ({"inter.broker.advertised.listener": "10.0.0.1:0"}, "inter.broker.advertised.listener"),
    ],
)
def test_a_port_for_nodes_that_cannot_be_one_is_refused(values: dict[str, object], field: str) -> None:
    assert refused(values).field == field


@pytest.mark.parametrize(
    ("values", "field", "reason"),
    [
        ({"listeners": ["127.0.0.1:9001", "127.0.0.1:9002"]}, "listeners", "names a listener twice"),
        ({"listeners": ["A://127.0.0.1:1", "a://127.0.0.1:2"]}, "listeners", "names a listener twice"),
        ({"listeners": ["A b://127.0.0.1:1"]}, "listeners", "name of a listener"),
        ({"listeners": ["PLAINTEXT://127.0.0.1:1", "A://127.0.0.1:1"]} | A_IS_PLAIN, "listeners", "the same address"),
        ({"listeners": ["A://127.0.0.1:1"]}, "listener.security.protocol.map", "lacks the listener A"),
        ({"listener.security.protocol.map": "A:TLS"}, "listener.security.protocol.map", "names no protocol"),
        (
            {"listeners": ["A://127.0.0.1:1", "127.0.0.1:2"], "inter.broker.listener": "127.0.0.1:2"} | A_IS_PLAIN,
            "inter.broker.listener",
            "are both",
        ),
        (
            {"listeners": ["127.0.0.1:1"], "advertised.listeners": ["A://h:1"]},
            "advertised.listeners",
            "listeners has PLAINTEXT",
        ),
        (
            {"listeners": ["127.0.0.1:1", "A://0.0.0.0:2"], "allow.insecure": True} | A_IS_PLAIN,
            "advertised.listeners",
            "missing",
        ),
    ],
)
def test_listeners_that_contradict_one_another_are_refused(values: dict[str, object], field: str, reason: str) -> None:
    error = refused(values)
    assert error.field == field
    assert reason in str(error)


def test_each_listener_has_its_name_its_protocol_and_what_its_clients_are_told() -> None:
    values = {
        "listeners": "127.0.0.1:9092,outside://[::1]:9094",
        "advertised.listeners": "Outside://b1.example:19094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,outside:PLAINTEXT",
    }
    config = ServerConfig.from_mapping(MINIMAL | values)
    inside, outside = config.listeners
    assert (inside.name, outside.name, str(inside), str(outside)) == (
        "PLAINTEXT",
        "OUTSIDE",
        "127.0.0.1:9092",
        "OUTSIDE://[::1]:9094",
    )
    assert config.protocol_of("OUTSIDE") is SecurityProtocol.PLAINTEXT
    assert config.told_client_listener(outside, 9094) == Endpoint("b1.example", 19094)
    assert config.told_client_listener(inside, 7) == Endpoint("127.0.0.1", 7)
    assert ServerConfig.from_mapping(tomllib.loads(config.to_toml())) == config


def test_the_console_is_for_this_machine_whatever_is_allowed() -> None:
    values = MINIMAL | {"console.listener": "0.0.0.0:8090", "allow.insecure": True}
    with pytest.raises(ConfigError, match="asks nobody who they are") as raised:
        ServerConfig.from_mapping(values)
    assert raised.value.field == "console.listener"
    config = ServerConfig.from_mapping(MINIMAL | {"console.listener": "localhost:0"})
    assert (config.console_listener, config.console_allow_changes) == (Endpoint("localhost", 0), False)
    assert ServerConfig.from_mapping(MINIMAL).console_listener is None


def test_the_console_is_of_brokers() -> None:
    values = {"console.listener": "127.0.0.1:0", "process.roles": ["controller"]}
    with pytest.raises(ConfigError, match="is of brokers"):
        ServerConfig.from_mapping(MINIMAL | values | {"controller.quorum.voters": ["1@127.0.0.1:9093"]})


TLS = {
    "listeners": ["SSL://127.0.0.1:0"],
    "ssl.keystore.location": "/broker.pem",
    "ssl.truststore.location": "/authority.pem",
    "ssl.client.auth": "required",
}


def test_a_listener_that_knows_its_clients_needs_no_permission() -> None:
    outside = {"listeners": ["SSL://0.0.0.0:9092"], "advertised.listeners": ["SSL://b1:9092"]}
    nodes = {"inter.broker.listener": "127.0.0.1:9093"}
    assert ServerConfig.from_mapping(MINIMAL | TLS | outside | nodes).asks_who_they_are("SSL")
    assert refused(TLS | outside).field == "inter.broker.listener", "the port for nodes asks nobody"
    for auth in ("none", "requested"):
        error = refused(TLS | outside | nodes | {"ssl.client.auth": auth})
        assert error.field == "listeners"
        assert "ssl.client.auth = required" in str(error)
    plain = refused(TLS | outside | nodes | {"listener.security.protocol.map": "SSL:PLAINTEXT"})
    assert plain.field == "listeners", "the name of a listener proves nothing"


@pytest.mark.parametrize(
    ("values", "field", "reason"),
    [
        ({"ssl.keystore.location": ""}, "ssl.keystore.location", "is missing"),
        ({"ssl.truststore.location": ""}, "ssl.truststore.location", "is missing"),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type", '"PEM"'),
        ({"ssl.client.auth": "want"}, "ssl.client.auth", "is none of the choices"),
        ({"ssl.enabled.protocols": ["TLSv1.1"]}, "ssl.enabled.protocols", "is none of the choices"),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "ssl.principal.mapping.rules", "which is none"),
        ({"listener.name.ssl.ssl.client.aut": "none"}, "listener.name", "no key of a listener"),
        ({"listener.name.ssl.ssl.client.auth": "want"}, "ssl.client.auth", "is none of the choices"),
        (
            {"listener.name.a.ssl.client.auth": "none", "listener.name.A.ssl.client.auth": "none"},
            "listener.name",
            "twice",
        ),
        ({"console.listener": "127.0.0.1:0"}, "console.listener", "PLAINTEXT"),
    ],
)
def test_tls_that_cannot_be_is_refused(values: dict[str, object], field: str, reason: str) -> None:
    error = refused(TLS | values)
    assert error.field == field
    assert reason in str(error)


def test_a_listener_may_have_values_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    own = 'name.inside.ssl."client.auth" = "none"\nname.inside."ssl.keystore.location" = "inside.pem"\n'
    shared = "".join(f'"{key}" = {quoted(str(value))}\n' for key, value in TLS.items() if key != "listeners")
    file.write_text(
        f'"node.id" = 1\n"log.dirs" = ["data"]\n"listeners" = ["INSIDE://127.0.0.1:1", "SSL://127.0.0.1:7"]\n{shared}'
        f'"listener.security.protocol.map" = "INSIDE:SSL,SSL:SSL"\n[listener]\n{own}'
    )
    config = ServerConfig.from_toml(file)
    inside, outside = config.security_of("INSIDE"), config.security_of("SSL")
    assert (inside.ssl_client_auth, inside.ssl_keystore_location) == (ClientAuth.NONE, str(tmp_path / "inside.pem"))
    assert (outside.ssl_client_auth, outside.ssl_keystore_location) == (ClientAuth.REQUIRED, "/broker.pem")
    assert (config.asks_who_they_are("INSIDE"), config.asks_who_they_are("SSL")) == (False, True)
    assert ServerConfig.from_mapping(tomllib.loads(config.to_toml())) == config


SASL = TLS | {"listeners": ["SASL_SSL://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]}
OAUTH = {
    "listener.name.sasl_ssl.sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
    "sasl.oauthbearer.expected.audience": "replog",
}


def test_a_listener_has_ways_to_log_in_of_its_own() -> None:
    own = {
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.connections.max.reauth.ms": 5,
    }
    config = ServerConfig.from_mapping(MINIMAL | SASL | own)
    inside, outside = config.security_of("SASL_PLAINTEXT"), config.security_of("SASL_SSL")
    assert [each.value for each in inside.sasl_enabled_mechanisms] == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    assert [each.value for each in outside.sasl_enabled_mechanisms] == ["PLAIN"]
    assert (inside.connections_max_reauth_ms, outside.connections_max_reauth_ms) == (0, 5)


def test_logins_over_tls_need_no_permission_and_those_in_plain_text_do() -> None:
    nodes = {"inter.broker.listener": "127.0.0.1:9093", "ssl.client.auth": "none"}
    for name, may in (("SASL_SSL", True), ("SASL_PLAINTEXT", False)):
        outside = {"listeners": [f"{name}://0.0.0.0:9092"], "advertised.listeners": [f"{name}://b1:9092"]}
        if may:
            assert ServerConfig.from_mapping(MINIMAL | TLS | outside | nodes).asks_who_they_are(name)
        else:
            assert "asks nobody who they are" in str(refused(TLS | outside | nodes))


@pytest.mark.parametrize(
    ("values", "field", "reason"),
    [
        ({"ssl.keystore.location": ""}, "ssl.keystore.location", "is missing"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms", "is none of the choices"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms", "whoever listens there"),
        (OAUTH | {"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.enabled.mechanisms", "whoever listens there"),
        (
            {"listener.name.sasl_ssl.sasl.enabled.mechanisms": "OAUTHBEARER"},
            "sasl.oauthbearer.jwks.endpoint.url",
            "is missing",
        ),
        (
            OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "http://x/keys"},
            "sasl.oauthbearer.jwks.endpoint.url",
            "plain text",
        ),
        (
            OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1@x/"},
            "sasl.oauthbearer.jwks.endpoint.url",
            "plain text",
        ),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}, "sasl.oauthbearer.jwks.endpoint.url", "a URL"),
        ({key: OAUTH[key] for key in list(OAUTH)[:2]}, "sasl.oauthbearer.expected.audience", "is missing"),
        ({"listener.name.sasl_ssl.sasl.mechanism": "PLAIN"}, "listener.name", "no key of a listener"),
        ({"sasl.server.max.receive.size": 1 << 20}, "sasl.server.max.receive.size", "out of range"),
    ],
)
def test_logins_that_cannot_be_are_refused(values: dict[str, object], field: str, reason: str) -> None:
    error = refused(SASL | values)
    assert error.field == field
    assert reason in str(error)


BETWEEN_NODES = {
    "security.inter.broker.protocol": "SSL",
    "listener.name.inter.broker.ssl.keystore.location": "node-1.pem",
    "listener.name.inter.broker.ssl.truststore.location": "ca.pem",
}


@pytest.mark.parametrize("transport", ["grpc", "tcp"])
def test_nodes_speak_tls_whatever_they_meet_over(transport: str) -> None:
    """Goal: then others may reach the port without a permission, too."""
    values = BETWEEN_NODES | {"inter.broker.transport": transport, "inter.broker.listener": "10.0.0.1:9093"}
    assert ServerConfig.from_mapping(MINIMAL | values).nodes_speak_tls


@pytest.mark.parametrize(
    ("values", "field", "reason"),
    [
        (
            {"listener.name.inter.broker.ssl.enabled.protocols": ["TLSv1.3"]},
            "ssl.enabled.protocols",
            "is TLSv1.3, and gRPC, over which nodes meet, speaks all versions of TLS from 1.2 on",
        ),
        ({"listener.name.inter.broker.ssl.keystore.location": ""}, "ssl.keystore.location", "is missing"),
        ({"listener.name.inter.broker.ssl.truststore.location": ""}, "ssl.truststore.location", "is missing"),
        ({"inter.broker.accepted.protocols": ["PLAINTEXT"]}, "inter.broker.accepted.protocols", "lacks SSL"),
        (
            {"security.inter.broker.protocol": "SASL_SSL"},
            "security.inter.broker.protocol",
            "there are no logins between nodes: by SSL each proves who it is by a certificate",
        ),
    ],
)
def test_tls_between_nodes_that_cannot_be_is_refused(values: dict[str, object], field: str, reason: str) -> None:
    error = refused(BETWEEN_NODES | values)
    assert error.field == field
    assert reason in str(error)
    if field == "ssl.enabled.protocols":
        assert ServerConfig.from_mapping(MINIMAL | BETWEEN_NODES | values | {"inter.broker.transport": "tcp"})
