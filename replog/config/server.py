"""The configuration of a node: made in code or from a file, checked as a whole, and written back.

A file is TOML; quoted names and tables mean the same::

    "node.id" = 1                                  [node]
    "log.dirs" = ["/var/lib/replog"]               id = 1
    "listeners" = ["127.0.0.1:9092"]
    "replica.lag.time.max.ms" = 10000              [replica.lag]
                                                   time.max.ms = 10000

Nothing here opens a socket or a log directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import force_setattr, replace

from replog.access.credentials import SaslMechanism
from replog.access.secret import HIDDEN, Secret
from replog.config.keys import Key, flatten, unknown_key, with_absolute_paths
from replog.config.kinds import Endpoint, NamedEndpoint, VoterAddress, quoted
from replog.config.references import Resolved, resolve
from replog.config.security_keys import INTER_BROKER, LISTENER_PREFIX, METRICS
from replog.config.server_keys import KEYS, InterBrokerTransport, ProcessRole, ServerKeys
from replog.errors import ConfigError
from replog.metadata.config_keys import FlushPolicy
from replog.metadata.records import SecurityProtocol
from replog.tcp.tls_settings import ClientAuth, PortProtocol, TlsVersion

PORT_MAX = 65_535

OTHER_WAYS = {
    "listeners": "let its clients log in (listener.security.protocol.map NAME:SASL_SSL) or show certificates (NAME:SSL, ssl.client.auth = required), ",
    "inter.broker.listener": 'let nodes prove who they are (security.inter.broker.protocol = "SSL"), ',
    "metrics.listener": (
        'let readers show certificates (metrics.security.protocol = "SSL", listener.name.metrics.ssl.client.auth = "required"), '
    ),
}
"""What else makes a listener safe to reach, by its key."""


def check_together(config: ServerKeys) -> None:
    """Checks every rule below.

    Why a file of its own: a single value is checked by its kind, but most real mistakes are two values that cannot both
    hold, and they are better refused before a socket or a file is touched.

    Raises:
        ConfigError: A rule is broken; the error names the key to change first.
    """
    _check_listeners(config)
    _check_metrics(config)
    _check_console(config)
    _check_quorum(config)
    _check_sizes(config)
    _check_times(config)
    _check_groups(config)


def _check_listeners(config: ServerKeys) -> None:
    for listener in config.listeners:
        _check_client_listener(config, listener)
    _check_names(config)
    _check_peer_protocols(config)
    advertised = config.advertised_listeners[0].endpoint if config.advertised_listeners else None
    told = config.inter_broker_advertised_listener or advertised  # the host, where there is only the other
    _check_told("inter.broker.advertised.listener", config.peer_listener, told, "other nodes reach this one")
    if config.peer_listener.port > PORT_MAX:
        raise ConfigError(
            "inter.broker.listener",
            "",
            f"inter.broker.listener is missing: there is no port after {config.client_listener.port}",
        )
    if config.peer_listener.port and any(each.endpoint == config.peer_listener for each in config.listeners):
        raise ConfigError(
            "inter.broker.listener",
            str(config.peer_listener),
            f'inter.broker.listener and listeners are both "{config.peer_listener}": clients and nodes come at ports of their own',
        )


def _check_peer_protocols(config: ServerKeys) -> None:
    if PortProtocol.PLAINTEXT in config.accepted_from_nodes:
        _check_bound(config, "inter.broker.listener", config.peer_listener)
    if not config.nodes_speak_tls:
        return
    key = "security.inter.broker.protocol"
    versions = config.security_of(INTER_BROKER).ssl_enabled_protocols
    if config.inter_broker_transport is InterBrokerTransport.GRPC and set(versions) != set(TlsVersion):
        raise ConfigError(
            "ssl.enabled.protocols",
            [version.value for version in versions],
            f"ssl.enabled.protocols of listener {INTER_BROKER} is {', '.join(version.value for version in versions)}, and gRPC, over which"
            " nodes meet, speaks all versions of TLS from 1.2 on and cannot be told otherwise. Set"
            f' {LISTENER_PREFIX}{INTER_BROKER}.ssl.enabled.protocols = ["TLSv1.2", "TLSv1.3"], or inter.broker.transport = "tcp" on all'
            " nodes",
        )
    _check_tls(config, INTER_BROKER)
    if config.security_of(INTER_BROKER).ssl_truststore_location is None:
        raise ConfigError(
            "ssl.truststore.location",
            None,
            f"ssl.truststore.location is missing: nodes that speak SSL show certificates to one another. Set it, or"
            f" {LISTENER_PREFIX}{INTER_BROKER}.ssl.truststore.location, to a PEM file with the certificates of the authorities that"
            " sign those of nodes",
        )
    if config.security_inter_broker_protocol not in config.accepted_from_nodes:
        raise ConfigError(
            "inter.broker.accepted.protocols",
            config.inter_broker_accepted_protocols,
            f"inter.broker.accepted.protocols lacks {config.security_inter_broker_protocol.value}, which {key} has this node speak to"
            " others: no two nodes with these settings would hear each other. Name both while a cluster changes",
        )


def _check_client_listener(config: ServerKeys, listener: NamedEndpoint) -> None:
    name = listener.name
    protocol = config.protocol_of(name)
    if protocol is None:
        raise ConfigError(
            "listener.security.protocol.map",
            name,
            f"listener.security.protocol.map lacks the listener {name}. Say how clients speak there: {name}:PLAINTEXT",
        )
    if protocol.is_tls:
        _check_tls(config, name)
    if protocol.is_sasl:
        _check_logins(config, name)
    if not config.asks_who_they_are(name):
        _check_bound(config, "listeners", listener.endpoint)
    advertised = next((each.endpoint for each in config.advertised_listeners if each.name == name), None)
    _check_told(
        "advertised.listeners", listener.endpoint, advertised, f"the clients of listener {name} reach this node"
    )


def _check_tls(config: ServerKeys, name: str) -> None:
    tls, own = config.security_of(name), f"{LISTENER_PREFIX}{name.lower()}."
    if tls.ssl_keystore_location is None:
        raise ConfigError(
            "ssl.keystore.location",
            None,
            f"ssl.keystore.location is missing: listener {name} speaks TLS, and proves itself by a certificate. Set it, or"
            f" {own}ssl.keystore.location, to a PEM file with a private key and its certificates",
        )
    if tls.ssl_client_auth is not ClientAuth.NONE and tls.ssl_truststore_location is None:
        raise ConfigError(
            "ssl.truststore.location",
            None,
            f"ssl.truststore.location is missing: clients of listener {name} show certificates (ssl.client.auth ="
            f' "{tls.ssl_client_auth.value}"). Set it, or {own}ssl.truststore.location, to a PEM file with the certificates of'
            " the authorities that sign them",
        )


def _check_logins(config: ServerKeys, name: str) -> None:
    logins, own = config.security_of(name), f"{LISTENER_PREFIX}{name.lower()}."
    offered = logins.sasl_enabled_mechanisms
    secret = [each.value for each in offered if each in (SaslMechanism.PLAIN, SaslMechanism.OAUTHBEARER)]
    if secret and config.protocol_of(name) is SecurityProtocol.SASL_PLAINTEXT:
        raise ConfigError(
            "sasl.enabled.mechanisms",
            secret[0],
            f"sasl.enabled.mechanisms offers {secret[0]} at listener {name}, which speaks SASL_PLAINTEXT: whoever listens there gets what"
            f" logs in. Map the listener to SASL_SSL, or offer SCRAM alone: {own}sasl.enabled.mechanisms",
        )
    if SaslMechanism.OAUTHBEARER in offered:
        needed = {
            "sasl.oauthbearer.jwks.endpoint.url": logins.sasl_oauthbearer_jwks_endpoint_url,
            "sasl.oauthbearer.expected.audience": logins.sasl_oauthbearer_expected_audience,
        }
        for key in (key for key, value in needed.items() if value is None):
            raise ConfigError(
                key, None, f"{key} is missing: listener {name} offers OAUTHBEARER, and verifies tokens by it"
            )
        _check_keys_url(logins.sasl_oauthbearer_jwks_endpoint_url or "")


def _check_keys_url(url: str) -> None:
    """Refuses keys that somebody on the way could replace by their own."""
    if not re.match(r"(file|https)://|http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)", url):
        key = "sasl.oauthbearer.jwks.endpoint.url"
        raise ConfigError(key, url, f'{key} = "{url}" is read in plain text: use https, or a file')


def _check_names(config: ServerKeys) -> None:
    """Refuses addresses that two listeners share, and advertised ones of listeners that there are not."""
    bound = [each.endpoint for each in config.listeners if each.endpoint.port]
    if len(set(bound)) < len(bound):
        raise ConfigError(
            "listeners", config.listeners, "listeners gives two listeners the same address; each has its own"
        )
    names = [each.name for each in config.listeners]
    for told in config.advertised_listeners:
        if told.name not in names:
            raise ConfigError(
                "advertised.listeners",
                str(told),
                f'advertised.listeners names the listener {told.name} ("{told}"), and listeners has {", ".join(names)}',
            )


def _check_bound(config: ServerKeys, key: str, listener: Endpoint) -> None:
    if not config.allow_insecure and not listener.is_loopback:
        raise ConfigError(
            key,
            str(listener),
            f'{key} = "{listener}" can be reached from other machines, and asks nobody who they are. Listen on 127.0.0.1,'
            f" {OTHER_WAYS[key]}or set allow.insecure = true if you trust everybody on that network",
        )


def _check_told(key: str, listener: Endpoint, advertised: Endpoint | None, who: str) -> None:
    if advertised is None:
        if listener.is_wildcard:
            raise ConfigError(
                key,
                "",
                f"{key} is missing: nobody can connect to {listener.host}. Set it to the host:port under which {who}",
            )
    elif advertised.port == 0 or advertised.is_wildcard:
        raise ConfigError(
            key,
            str(advertised),
            f'{key} = "{advertised}" cannot be connected to. Write the real host and port, or leave the key out to'
            " advertise the bound listener",
        )


def _check_metrics(config: ServerKeys) -> None:
    listener = config.metrics_listener
    if listener is None:
        return
    is_tls = config.metrics_security_protocol is PortProtocol.SSL
    if is_tls:
        _check_tls(config, METRICS)
    if not is_tls or config.security_of(METRICS).ssl_client_auth is not ClientAuth.REQUIRED:
        _check_bound(config, "metrics.listener", listener)


def _check_console(config: ServerKeys) -> None:
    listener = config.console_listener
    if listener is None:
        return
    if config.protocol_of(config.listeners[0].name) is not SecurityProtocol.PLAINTEXT:
        raise ConfigError(
            "console.listener",
            str(listener),
            "console.listener needs a first one of listeners that speaks PLAINTEXT, on loopback: by it the console comes",
        )
    if not listener.is_loopback:
        raise ConfigError(
            "console.listener",
            str(listener),
            f'console.listener = "{listener}" can be reached from other machines, and the console asks nobody who they are:'
            " allow.insecure does not change that. Use 127.0.0.1; from another machine come through ssh -L",
        )
    if not config.is_broker:
        raise ConfigError(
            "console.listener",
            str(listener),
            "console.listener is of brokers: a node that is a controller only serves no clients, and the console is one",
        )


def _check_quorum(config: ServerKeys) -> None:
    voters = config.controller_quorum_voters
    key = "controller.quorum.voters"
    if len({voter.voter_id for voter in voters}) != len(voters):
        raise ConfigError(key, voters, f"{key} names a node id twice: {_shown(config)}")
    if len({voter.endpoint for voter in voters}) != len(voters):
        raise ConfigError(key, voters, f"{key} gives two voters the same address: {_shown(config)}")
    if not voters and not config.is_controller:
        raise ConfigError(
            key, voters, f"{key} is missing: a node without the controller role must know where the controllers are"
        )
    _check_own_vote(config)


def _check_own_vote(config: ServerKeys) -> None:
    key = "controller.quorum.voters"
    voters = config.controller_quorum_voters
    if not voters:
        return  # the only node of its quorum
    own = next((voter for voter in voters if voter.voter_id == config.node_id), None)
    if own is None:
        return  # it follows, and may be made a voter while the cluster runs
    if not config.is_controller:
        raise ConfigError(
            "process.roles",
            config.process_roles,
            f"process.roles lacks controller, but {key} names this node: {_shown(config)}",
        )
    reached_at = (config.peer_listener, config.told_peer_listener(config.peer_listener.port))
    if own.endpoint not in reached_at:
        raise ConfigError(
            key,
            voters,
            f"{key} says that this node is at {own.endpoint}, but other nodes reach it at"
            f" {' and '.join(dict.fromkeys(map(str, reached_at)))} (inter.broker.listener; listeners is for clients). Make the two"
            " equal (port 0 cannot be used by a voter)",
        )


def _shown(config: ServerKeys) -> str:
    return ",".join(str(voter) for voter in config.controller_quorum_voters)


def _check_sizes(config: ServerKeys) -> None:
    if config.message_max_bytes > config.log_segment_bytes:
        _refuse_above("message.max.bytes", config.message_max_bytes, "log.segment.bytes", config.log_segment_bytes)
    if config.message_max_bytes > config.queued_max_request_bytes:
        _refuse_above(
            "message.max.bytes", config.message_max_bytes, "queued.max.request.bytes", config.queued_max_request_bytes
        )
    if config.replica_fetch_min_bytes > config.replica_fetch_max_bytes:
        _refuse_above(
            "replica.fetch.min.bytes",
            config.replica_fetch_min_bytes,
            "replica.fetch.max.bytes",
            config.replica_fetch_max_bytes,
        )


def _check_times(config: ServerKeys) -> None:
    heartbeat, session = config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms
    if heartbeat >= session:
        raise ConfigError(
            "broker.heartbeat.interval.ms",
            heartbeat,
            f"broker.heartbeat.interval.ms = {heartbeat:,} must be below broker.session.timeout.ms = {session:,}, or every"
            " broker is fenced between two heartbeats. A third of it or less leaves room for a lost one",
        )
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        _refuse_above(
            "replica.fetch.wait.max.ms",
            config.replica_fetch_wait_max_ms,
            "replica.lag.time.max.ms",
            config.replica_lag_time_max_ms,
        )
    if config.replica_fetch_wait_max_ms >= config.request_timeout_ms:
        _refuse_above(
            "replica.fetch.wait.max.ms",
            config.replica_fetch_wait_max_ms,
            "request.timeout.ms",
            config.request_timeout_ms - 1,
        )


def _check_groups(config: ServerKeys) -> None:
    heartbeat, session = config.group_consumer_heartbeat_interval_ms, config.group_consumer_session_timeout_ms
    if heartbeat >= session:
        _refuse_above(
            "group.consumer.heartbeat.interval.ms", heartbeat, "group.consumer.session.timeout.ms", session - 1
        )
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if shortest > longest:
        _refuse_above("group.min.session.timeout.ms", shortest, "group.max.session.timeout.ms", longest)


def _refuse_above(key: str, value: int, bound_key: str, bound: int) -> None:
    raise ConfigError(
        key, value, f"{key} = {value:,} is above {bound:,}, which {bound_key} allows. Lower {key} or raise {bound_key}"
    )


_RENEWED = "ssl.key.password"
"""The end of the names of passwords that are read again with the certificates that they belong to."""


class PasswordOfFile(Secret):
    """A password of a node's file, which may say another one later, in itself or in what it refers to.

    Args:
        text: The password.
        path: The file.
        name: The name of the password there.
    """

    __slots__ = ("_name", "_path")

    def __init__(self, text: str, path: Path, name: str) -> None:
        super().__init__(text)
        self._path, self._name = path, name

    def renewed(self) -> Secret:
        """Reads it again; a file that is gone, or was a pipe, says no other one.

        Raises:
            ConfigError: The file cannot be read, or has no such password any more.
        """
        if not self._path.is_file():
            return self
        given = {name: value for name, value in flatten(_toml(self._path)).items() if name == self._name}
        text = resolve(given, self._path.parent).values.get(self._name)
        if not isinstance(text, str):
            raise ConfigError(
                self._name, None, f"{self._path}: {self._name} is gone: give the password of the private key"
            )
        return PasswordOfFile(text, self._path, self._name)


__all__ = ["Endpoint", "FlushPolicy", "NamedEndpoint", "ProcessRole", "ServerConfig", "VoterAddress"]


class ServerConfig(ServerKeys, frozen=True, kw_only=True):
    """All settings of one node, typed and checked.  Build it in code, or with `from_toml` or `from_mapping`.

    Attributes:
        references: The names of values that stand elsewhere than in the file, and what it has for them (`replog.config.references`).
            They are shown as little as passwords.

    Invariants:
        - every value is of its kind and in its range;
        - values that contradict each other do not exist together (`checks`).

    Raises:
        ConfigError: A value is refused; the error names the key, what is wrong with it, its unit, range and default.
    """

    references: tuple[tuple[str, object], ...] = ()

    def __post_init__(self) -> None:
        for key in KEYS.values():
            force_setattr(self, key.field_name, key.parse(getattr(self, key.field_name)))
        check_together(self)

    def is_hidden(self, key: Key) -> bool:
        """Whether the value of a key is shown to nobody."""
        is_reference = any(name == key.name or name.startswith(f"{key.name}.") for name, _ in self.references)
        return key.kind.is_secret or is_reference

    def __repr__(self) -> str:
        shown = ((key, HIDDEN if self.is_hidden(key) else repr(getattr(self, key.field_name))) for key in KEYS.values())
        return f"ServerConfig({', '.join(f'{key.field_name}={text}' for key, text in shown)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [
            (key.field_name, HIDDEN if self.is_hidden(key) else getattr(self, key.field_name)) for key in KEYS.values()
        ]

    @classmethod
    def from_mapping(
        cls, values: Mapping[str, object], *, overrides: Mapping[str, object] | None = None
    ) -> ServerConfig:
        """Makes a configuration from dotted names, or tables of tables, to values as TOML has them.

        Args:
            values: The values as parsed from a file.
            overrides: Values by dotted name, stronger than `values`.  Texts are read as on a command line: "10" is a
                number for a key that is one.

        Raises:
            ConfigError: A key is unknown, repeated, missing or of a wrong type, out of range, or contradicts another.
        """
        given = flatten(values)
        if "log.dir" in given and "log.dirs" not in given:
            given["log.dirs"] = [given.pop("log.dir")]
        for name, value in (overrides or {}).items():
            key = KEYS.get(name)
            given[name] = key.kind.from_text(value) if key is not None and isinstance(value, str) else value
        if own := [name for name in given if name.startswith(LISTENER_PREFIX)]:
            given["listener.name"] = {name.removeprefix(LISTENER_PREFIX): given.pop(name) for name in own}
        for name, value in given.items():
            if name not in KEYS:
                raise unknown_key(name, value, KEYS)
        for key in KEYS.values():
            if key.is_required and key.name not in given:
                raise ConfigError(key.name, None, f"{key.name} is missing ({key.describe()})")
        arguments: dict[str, Any] = {KEYS[name].field_name: value for name, value in given.items()}
        return cls(**arguments)

    @classmethod
    def from_toml(cls, path: str | Path, *, overrides: Mapping[str, object] | None = None) -> ServerConfig:
        """Makes a configuration from a TOML file; see `from_mapping`.

        Folders that the file names by a relative path are looked for beside it, wherever the process was started.  References are
        replaced by what they stand for (`replog.config.references`).

        Raises:
            ConfigError: What `from_mapping` refuses, with the file in front; or it cannot be read or is not TOML.
        """
        values = _toml(path)
        resolved = Resolved({}, {})
        try:
            resolved = resolve(flatten(values), Path(path).parent)
            return cls._of_file(resolved, Path(path), overrides or {})
        except ConfigError as error:
            told = resolved.hidden(error)
            raise ConfigError(told.field, told.value, f"{path}: {told.reason}") from None

    @classmethod
    def _of_file(cls, resolved: Resolved, path: Path, overrides: Mapping[str, object]) -> ServerConfig:
        """Makes a configuration of the values of a file."""
        values = with_absolute_paths(resolved.values, path.parent)
        texts = {name: values[name] for name in resolved.references if name in KEYS}
        passwords = {
            name: PasswordOfFile(value, path.absolute(), name)
            for name, value in values.items()
            if name.endswith(_RENEWED) and value and isinstance(value, str)
        }
        config = cls.from_mapping(values, overrides={**texts, **passwords, **overrides})
        names = {"log.dir": "log.dirs"}
        elsewhere = sorted(resolved.references.keys() - overrides.keys(), key=str.lower)
        references = ((names.get(name, name.lower()), resolved.references[name]) for name in elsewhere)
        return replace(config, references=tuple(references))

    def to_toml(self) -> str:
        """Returns a file that gives this configuration again, with its references; keys at their default are left out.

        It has the passwords that are in this configuration.
        """
        raws = dict(self.references)
        own = tuple(each for each in self.listener_name if f"{LISTENER_PREFIX}{each.name}" not in raws)
        given = ((key, own if key.name == "listener.name" else getattr(self, key.field_name)) for key in KEYS.values())
        lines = {
            key.name: key.kind.to_toml(value) for key, value in given if value != key.default and key.name not in raws
        }
        lines |= {name: _raw_toml(raw) for name, raw in raws.items()}
        return "".join(f"{quoted(name)} = {text}\n" for name, text in lines.items())


def _toml(path: str | Path) -> dict[str, Any]:
    """Returns what a TOML file says.

    Raises:
        ConfigError: It cannot be read or is not TOML.
    """
    import tomllib  # programs that configure a broker themselves have no file

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("config", str(path), f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError("config", str(path), f"{path}: is not TOML: {error}") from error


def _raw_toml(raw: object) -> str:
    return f"[{', '.join(map(_raw_toml, raw))}]" if isinstance(raw, list) else quoted(str(raw))
