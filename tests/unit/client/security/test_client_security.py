"""What users say about security: what is taken, what is refused and how, and that nobody reads a secret."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import pytest

from replog.access.secret import Secret
from replog.client import Admin, Security
from replog.client.protocol.connection import KafkaTransport
from replog.errors import ConfigError

CANARY = "canary-Xy7=,secret"
TLS = Security.tls(ca="ca.pem", cert="me.pem", key="me.key", key_password=CANARY)
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"

MADE = {
    "tls": TLS,
    "scram": Security.scram("alice", CANARY, tls=TLS),
    "scram-in-the-open": Security.scram("alice", CANARY, mechanism="SCRAM-SHA-256"),
    "plain": Security.plain("alice", CANARY, tls=TLS),
    "token": Security.oauth(str, tls=TLS),
    "nothing": Security(),
}


@pytest.mark.parametrize("name", MADE)
def test_nothing_that_shows_a_security_shows_a_secret(name: str) -> None:
    security = MADE[name]
    shown = [
        repr(security),
        str(security),
        f"{security}",
        f"{security!r}",
        repr([security]),
        repr(msgspec.structs.asdict(security)),
    ]
    shown += [repr(each) for each in (security.encryption, security.login)]
    assert not any(CANARY in text for text in shown)


def test_what_returns_tokens_is_not_shown() -> None:
    """Example: the secret of an OAuth client among the arguments of a `partial`, which Python shows."""
    security = Security.oauth(partial(str, CANARY), tls=TLS)
    assert CANARY in repr(partial(str, CANARY))
    assert CANARY not in f"{security}{security!r}{security.login!r}{[security]}"
    assert "mechanism='OAUTHBEARER', username='', password=None, token_provider=[hidden]" in repr(security)


@pytest.mark.parametrize("name", MADE)
def test_a_security_is_the_same_in_another_process(name: str) -> None:
    security = MADE[name]
    assert pickle.loads(pickle.dumps(security)) == security == copy.deepcopy(security)
    assert hash(pickle.loads(pickle.dumps(security))) == hash(security)
    with pytest.raises(AttributeError):
        security.login = None  # type: ignore[misc]  # that it cannot be changed is the point


def test_secrets_are_told_apart_and_not_shown() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert str(Secret(CANARY)) == repr(Secret(CANARY)) == f"{Secret(CANARY)}" == "[hidden]"
    assert Secret(CANARY).reveal() == CANARY


def test_kafkas_four_protocols() -> None:
    assert [MADE[name].protocol for name in ("nothing", "tls", "scram-in-the-open", "plain")] == [
        *("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ]


SASL_SSL = {"security.protocol": "SASL_SSL", "sasl.username": "alice", "sasl.password": CANARY}

SETTINGS: Mapping[str, tuple[dict[str, object], Security]] = {
    "nothing": ({}, Security()),
    "plain-text": ({"security.protocol": "plaintext"}, Security()),
    "tls-of-the-system": ({"security.protocol": "SSL"}, Security.tls()),
    "librdkafka": (
        {
            "security.protocol": "ssl",
            "ssl.ca.location": "ca.pem",
            "ssl.certificate.location": "me.pem",
            "ssl.key.location": "me.key",
            "ssl.key.password": CANARY,
        },
        TLS,
    ),
    "java": (
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": "me.pem",
            "ssl.keystore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
        },
        Security.tls(ca="ca.pem", cert="me.pem", check_hostname=False),
    ),
    "scram": ({**SASL_SSL, "sasl.mechanism": "SCRAM-SHA-512"}, Security.scram("alice", CANARY, tls=Security.tls())),
    "scram-256": (
        {**SASL_SSL, "sasl.mechanisms": "SCRAM-SHA-256"},
        Security.scram("alice", CANARY, mechanism="SCRAM-SHA-256", tls=Security.tls()),
    ),
    "plain": ({**SASL_SSL, "sasl.mechanism": "PLAIN"}, Security.plain("alice", CANARY, tls=Security.tls())),
    "plain-in-the-open": (
        {**SASL_SSL, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
        Security.plain("alice", CANARY, insecure=True),
    ),
    "jaas": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f' {JAAS} username=alice password="a\\"b\\\\c;d" ; ',
        },
        Security.scram("alice", 'a"b\\c;d'),
    ),
    "jaas-of-a-token": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{JAAS} username="id" password="hm+c==" tokenauth="true";',
        },
        Security.delegation_token("id", "hm+c==", mechanism="SCRAM-SHA-256"),
    ),
    "token": (
        {**SASL_SSL, "sasl.mechanism": "SCRAM-SHA-512", "sasl.tokenauth": "true"},
        Security.delegation_token("alice", CANARY, tls=Security.tls()),
    ),
    "no-token": (
        {**SASL_SSL, "sasl.mechanism": "PLAIN", "sasl.tokenauth": "False"},
        Security.plain("alice", CANARY, tls=Security.tls()),
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_kafkas_names_say_the_same(name: str) -> None:
    settings, security = SETTINGS[name]
    assert Security.from_settings(settings) == security


WRONG: Mapping[str, tuple[Callable[[], object], str]] = {
    "protocol": (
        lambda: Security.from_settings({"security.protocol": "TLS"}),
        "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    ),
    "unknown": (
        lambda: Security.from_settings({"ssl.cafile": "x"}),
        "ssl.cafile is not known here: the settings about security are",
    ),
    "store-password": (lambda: Security.from_settings({"ssl.truststore.password": CANARY}), "needs no password"),
    "java-store": (
        lambda: Security.from_settings(
            {"security.protocol": "SSL", "ssl.truststore.location": "a", "ssl.truststore.type": "JKS"}
        ),
        "only PEM is read; `openssl pkcs12",
    ),
    "kerberos": (
        lambda: Security.from_settings({"sasl.kerberos.service.name": "kafka"}),
        "there is no Kerberos: use SCRAM",
    ),
    "gssapi": (
        lambda: Security.from_settings({**SASL_SSL, "sasl.mechanism": "GSSAPI"}),
        "is GSSAPI; it must be one of PLAIN, SCRAM",
    ),
    "token": (lambda: Security.from_settings({**SASL_SSL, "sasl.mechanism": "OAUTHBEARER"}), "use Security.oauth"),
    "no-mechanism": (lambda: Security.from_settings(SASL_SSL), "sasl.mechanism is not set"),
    "no-password": (
        lambda: Security.from_settings(
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
        ),
        "sasl.password is not set; PLAIN needs it",
    ),
    "password-for-nothing": (
        lambda: Security.from_settings({"sasl.password": CANARY}),
        "sasl.password is set, and security.protocol is PLAINTEXT: set it to SASL_PLAINTEXT or SASL_SSL",
    ),
    "ca-for-nothing": (lambda: Security.from_settings({"ssl.ca.location": "x"}), "set it to SSL or SASL_SSL"),
    "twice": (
        lambda: Security.from_settings(
            {"security.protocol": "SSL", "ssl.ca.location": "a", "ssl.truststore.location": "b"}
        ),
        "differ: they mean the same",
    ),
    "jaas-and-password": (
        lambda: Security.from_settings({**SASL_SSL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": CANARY}),
        "are both set",
    ),
    "jaas-of-another": (
        lambda: Security.from_settings(
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{JAAS} username="a" password="{CANARY}";',
            }
        ),
        "cannot be read as .* use sasl.username and sasl.password",
    ),
    "token-by-plain": (
        lambda: Security.from_settings({**SASL_SSL, "sasl.mechanism": "PLAIN", "sasl.tokenauth": "true"}),
        "true for SCRAM alone",
    ),
    "token-or-not": (
        lambda: Security.from_settings({**SASL_SSL, "sasl.mechanism": "SCRAM-SHA-512", "sasl.tokenauth": "yes"}),
        "must be true or false",
    ),
    "no-token-id": (lambda: Security.delegation_token("", CANARY), "must be text without NUL"),
    "no-hmac": (lambda: Security.delegation_token("id", ""), "hmac .* must be text that is not empty"),
    "jaas-without-end": (
        lambda: Security.from_settings(
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{JAAS} password="{CANARY}"',
            }
        ),
        "cannot be read",
    ),
    "jaas-without-name": (
        lambda: Security.from_settings(
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{JAAS} password="{CANARY}";',
            }
        ),
        "must have username and password",
    ),
    "no-text": (lambda: Security.from_settings({"sasl.password": CANARY.encode()}), "is a bytes; it must be text"),
    "plain-without-tls": (lambda: Security.plain("alice", CANARY), "PLAIN without TLS sends the password readable"),
    "token-without-tls": (lambda: Security.oauth(str), "OAUTHBEARER without TLS sends the token readable"),
    "tls-of-another-type": (lambda: Security.scram("a", CANARY, tls=MADE["scram"]), "must be what Security.tls"),
    "empty-password": (lambda: Security.scram("a", ""), "password .* must be text that is not empty"),
    "password-of-bytes": (lambda: Security.scram("a", CANARY.encode()), "password .bytes. must be text"),  # type: ignore[arg-type]
    "empty-name": (lambda: Security.scram("", CANARY), "username is ''"),
    "mechanism": (lambda: Security.scram("a", CANARY, mechanism="SCRAM-SHA-1"), "must be one of"),  # type: ignore[arg-type]
    "key-alone": (lambda: Security.tls(key="k"), "give cert, too"),
    "no-provider": (lambda: Security.oauth(CANARY, tls=TLS), "must be a function"),  # type: ignore[arg-type]
    "no-security": (
        lambda: Admin("h:1", security={"sasl.password": CANARY}),
        "security is a dict; it must be made by Security",
    ),  # type: ignore[arg-type]
    "both": (lambda: Admin("h:1", security=TLS, transport=KafkaTransport()), "give one of them"),
    "no-such-file": (lambda: Admin("h:1", security=Security.tls(ca="/no/such.pem")), "ca: /no/such.pem cannot be read"),
    "no-pem": (lambda: Admin("h:1", security=Security.tls(ca=__file__)), "no such thing in PEM"),
    "setting-of-kafka": (lambda: Admin("h:1", sasl_password=CANARY), "use security: Security.tls, scram"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_and_no_secret_shown(name: str) -> None:
    make, text = WRONG[name]
    with pytest.raises(ConfigError, match=text) as raised:
        make()
    shown = "".join(traceback.format_exception(raised.value)).replace(f"sasl_password={CANARY}", "")
    lines = [line for line in shown.splitlines() if not line.lstrip().startswith(("lambda", "{", "lambda:"))]
    assert CANARY not in str(raised.value)
    assert CANARY not in repr(raised.value)
    assert not any(CANARY in line for line in lines)


def test_clients_in_plain_text_load_nothing_of_it() -> None:
    """Goal: neither the modules of security nor a digest library are paid for by who does not use them."""
    text = (
        "import sys; from replog.client import Producer, Consumer, Admin; Admin('h:1'); Producer; Consumer; "
        "print([m for m in sys.modules if m.startswith(('replog.client.security', 'replog.client.protocol.secure', 'replog.certs', "
        "'cryptography')) or m == 'hmac'])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
