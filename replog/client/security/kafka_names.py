"""Settings of Kafka's clients about security, by the names of the Java client and of librdkafka.

What replog has not is refused by name: a setting that nobody reads would be a promise that nobody keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from replog.access.secret import Secret
from replog.errors import ConfigError

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

PROTOCOL: Final = "security.protocol"
_TLS: Final = (
    "ssl.ca.location",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.certificate.location",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_DELEGATED: Final = "sasl.tokenauth"
"""Of replog alone: what a login module says by the option tokenauth."""

_SASL: Final = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config", _DELEGATED)
KNOWN: Final = (PROTOCOL, *_TLS, *_SASL)

_FILES: Final = "use a PEM file: {} names it"
_OAUTH: Final = "use Security.oauth with a function that returns a token"
_INSTEAD: Final[Mapping[str, str]] = {
    "ssl.truststore.password": _FILES.format("ssl.truststore.location, which needs no password,"),
    "ssl.truststore.certificates": _FILES.format("ssl.truststore.location"),
    "ssl.ca.pem": _FILES.format("ssl.ca.location"),
    "ssl.keystore.password": "use a PEM file; ssl.key.password is of the private key in it",
    "ssl.keystore.key": _FILES.format("ssl.key.location"),
    "ssl.keystore.certificate.chain": _FILES.format("ssl.certificate.location"),
    "ssl.key.pem": _FILES.format("ssl.key.location"),
    "ssl.certificate.pem": _FILES.format("ssl.certificate.location"),
    "enable.ssl.certificate.verification": "a broker's certificate is always looked at; ssl.ca.location names who signs it",
    "ssl.enabled.protocols": "TLS 1.2 and 1.3 are spoken; leave it out",
    "ssl.protocol": "TLS 1.2 and 1.3 are spoken; leave it out",
    "sasl.kerberos.service.name": "there is no Kerberos: use SCRAM-SHA-512",
}

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "ScramLoginModule": SCRAM,
    "PlainLoginModule": (PLAIN,),
}
_JAAS: Final = re.compile(
    r"\s*(?P<module>[\w.]+)\s+required\s+(?P<options>(?:\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s\";]+)\s*)*);\s*"
)
_OPTION: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\";]+))")


class NamedSecurity(Struct, frozen=True):
    """What settings say.

    Attributes:
        tls: The arguments of `Security.tls`; None: plain text.
        mechanism: The mechanism of SASL; "": none.
        username: The name of the user.
        password: The password.
        by_token: Whether name and password are the id and the HMAC of a delegation token (KIP-48).
    """

    tls: dict[str, Any] | None = None
    mechanism: str = ""
    username: str = ""
    password: Secret = Secret("")
    by_token: bool = False


def read_names(settings: Mapping[str, object]) -> NamedSecurity:
    """Reads settings of Kafka's clients.

    Args:
        settings: The settings about security, by their names with dots; all are text.

    Raises:
        ConfigError: One is not known, has no such value, is missing, or is of what replog has not.  It shows no value that may be
            secret.
    """
    given = _texts(settings)
    protocol = given.get(PROTOCOL, _PROTOCOLS[0]).upper()
    if protocol not in _PROTOCOLS:
        raise _wrong(PROTOCOL, f"is {given[PROTOCOL]!r}; it must be one of {', '.join(_PROTOCOLS)}")
    _refuse_needless(given, protocol)
    tls = _tls(given) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return NamedSecurity(tls)
    mechanism = _mechanism(given)
    username, password, by_token = _name_and_password(given, mechanism)
    return NamedSecurity(tls, mechanism, username, Secret(password), by_token)


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in settings.items():
        if name not in KNOWN:
            raise _wrong(name, f"is not known here: {_advice(name)}")
        if not isinstance(value, str):
            raise _wrong(name, f"is a {type(value).__name__}; it must be text")
        found[name] = value
    return found


def _advice(name: str) -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    if name.startswith(("sasl.oauthbearer.", "sasl.login.")):
        return _OAUTH
    return f"the settings about security are {', '.join(KNOWN)}"


def _refuse_needless(given: Mapping[str, str], protocol: str) -> None:
    """Refuses settings that the protocol makes no use of: whoever gives a password wants it to be asked for."""
    for names, word in ((_TLS, "SSL"), (_SASL, "SASL")):
        needless = next((name for name in names if name in given and word not in protocol), None)
        if needless is not None:
            wanted = " or ".join(each for each in _PROTOCOLS if word in each)
            raise _wrong(needless, f"is set, and {PROTOCOL} is {protocol}: set it to {wanted}")


def _tls(given: Mapping[str, str]) -> dict[str, Any]:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if given.get(name, "PEM").upper() != "PEM":
            raise _wrong(
                name, f"is {given[name]}: only PEM is read; `openssl pkcs12 -in FILE -out FILE.pem` converts a store"
            )
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in {"https", "", "none"}:
        raise _wrong("ssl.endpoint.identification.algorithm", f"is {algorithm!r}; it must be https, or empty for none")
    return {
        "ca": _one_of(given, "ssl.ca.location", "ssl.truststore.location"),
        "cert": _one_of(given, "ssl.certificate.location", "ssl.keystore.location"),
        "key": given.get("ssl.key.location", ""),
        "key_password": given.get("ssl.key.password"),
        "check_hostname": algorithm == "https",
    }


def _mechanism(given: Mapping[str, str]) -> str:
    mechanism = _one_of(given, "sasl.mechanism", "sasl.mechanisms").upper()
    if mechanism == OAUTHBEARER:
        raise _wrong("sasl.mechanism", f"is {OAUTHBEARER}, whose token comes from code: {_OAUTH}")
    offered = (PLAIN, *SCRAM)
    if mechanism not in offered:
        raise _wrong("sasl.mechanism", f"is {mechanism or 'not set'}; it must be one of {', '.join(offered)}")
    return mechanism


def _name_and_password(given: Mapping[str, str], mechanism: str) -> tuple[str, str, bool]:
    """Returns name and password, and whether they are those of a delegation token."""
    jaas = given.get("sasl.jaas.config")
    if jaas is not None:
        for name in ("sasl.username", "sasl.password", _DELEGATED):
            if name in given:
                raise _wrong(name, "and sasl.jaas.config are both set: give one of them")
        return _of_jaas(jaas, mechanism)
    for name in ("sasl.username", "sasl.password"):
        if not given.get(name):
            raise _wrong(name, f"is not set; {mechanism} needs it")
    answer = given.get(_DELEGATED, "false").lower()
    if answer not in {"true", "false"} or (answer == "true" and mechanism not in SCRAM):
        raise _wrong(
            _DELEGATED, f"is {given[_DELEGATED]!r} for {mechanism}; it must be true or false, and true for SCRAM alone"
        )
    return given["sasl.username"], given["sasl.password"], answer == "true"


def _of_jaas(text: str, mechanism: str) -> tuple[str, str, bool]:
    """Reads one login module with a name and a password; the error does not show the text, which has the password in it."""
    found = _JAAS.fullmatch(text)
    module = found["module"].rpartition(".")[2] if found else ""
    if found is None or mechanism not in _MODULES.get(module, ()):
        raise _wrong(
            "sasl.jaas.config",
            f'cannot be read as `org.apache.kafka.common.security....LoginModule required username="..." password="...";` of a '
            f"module for {mechanism}: use sasl.username and sasl.password",
        )
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _OPTION.findall(found["options"])
    }
    by_token = options.pop("tokenauth", "false").lower() == "true"
    if set(options) != {"username", "password"} or (by_token and mechanism not in SCRAM):
        raise _wrong(
            "sasl.jaas.config",
            f"has {', '.join(sorted(options)) or 'nothing'}; it must have username and password, and may have tokenauth for SCRAM",
        )
    return options["username"], options["password"], by_token


def _one_of(given: Mapping[str, str], *names: str) -> str:
    """Returns the value of the one of two names that is set; "" where none is."""
    there = [name for name in names if name in given]
    if len(there) > 1 and len({given[name] for name in there}) > 1:
        raise _wrong(there[0], f"and {there[1]} differ: they mean the same, give one of them")
    return given[there[0]] if there else ""


def _wrong(name: str, reason: str) -> ConfigError:
    return ConfigError(name, None, f"{name} {reason}")
