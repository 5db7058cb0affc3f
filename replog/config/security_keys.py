"""The configuration keys of ports that speak TLS, or where clients log in; a part of `ServerKeys`.

What holds for one listener alone has its name in front: `listener.name.outside.ssl.client.auth`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated

from msgspec import Struct
from msgspec.structs import fields, replace

from replog.access.credentials import SaslMechanism
from replog.access.secret import Secret
from replog.config.keys import Differs, Key, keys_of
from replog.config.kinds import (
    DAY_MS,
    HOUR_MS,
    KIB,
    Choice,
    Choices,
    FilePath,
    Kind,
    ListOf,
    Number,
    SecretText,
    Text,
    milliseconds,
    quoted,
    size_bytes,
)
from replog.metadata.config_keys import AddressCount
from replog.tcp.connection_rates import UNLIMITED
from replog.tcp.principals import DEFAULT_RULES, parse_rules
from replog.tcp.tls_settings import ClientAuth, PortProtocol, TlsSettings, TlsVersion

LISTENER_PREFIX = "listener.name."

INTER_BROKER = "inter.broker"
"""The name of the port of other nodes: listener.name.inter.broker.ssl.keystore.location."""

METRICS = "metrics"
"""The name of the port of metrics."""


class StoreType(Enum):
    """What a file with keys or certificates is."""

    PEM = "PEM"


class MappingRules(Kind):
    """Rules that make the names of clients; see `replog.tcp.principals`."""

    type_name = "string"

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError("is not a string")  # noqa: TRY004 - ValueError is the one failure of parse
        parse_rules(raw)
        return raw

    def describe_range(self) -> str:
        return "DEFAULT, or RULE:pattern/replacement/[LU], with commas between"


class TlsKeys(Struct, frozen=True, kw_only=True):
    """The keys as fields, in the order of the page."""

    # ---- TLS --------------------------------------------------------------------------------------------------------

    ssl_keystore_type: Annotated[
        StoreType, Choice(StoreType), Differs("JKS", "there is no JVM; PEM is what everybody else reads")
    ] = StoreType.PEM
    """What ssl.keystore.location is."""

    ssl_keystore_location: Annotated[str | None, FilePath()] = None
    """The file with what this node proves itself by to clients: its private key, its certificate, and the chain to
    the authority.  Every listener that speaks SSL needs one.  A file that is renamed into its place is read within seconds, without
    a restart; connections that there are go on."""

    ssl_key_password: Annotated[Secret | None, SecretText()] = None
    """What the private key in ssl.keystore.location is encrypted with; not set: it is not.  ${file:...} and ${env:...} keep it out of
    this file (docs/SECURITY.md).  It is read again, here or where it stands, when the files of the certificates change.
    gRPC takes no such key: nodes that meet over it need one without a password."""

    ssl_truststore_type: Annotated[
        StoreType, Choice(StoreType), Differs("JKS", "there is no JVM; PEM is what everybody else reads")
    ] = StoreType.PEM
    """What ssl.truststore.location is."""

    ssl_truststore_location: Annotated[str | None, FilePath()] = None
    """The file with the certificates of the authorities that sign those of clients.  Needed where ssl.client.auth is not none; read
    again as ssl.keystore.location is.  No list of revoked certificates is looked at: trust an authority of short-lived ones."""

    ssl_client_auth: Annotated[ClientAuth, Choice(ClientAuth)] = ClientAuth.NONE
    """Whether clients show a certificate: required, requested (who shows none is ANONYMOUS), none.  Only a listener where it is required may be
    reachable from other machines without allow.insecure."""

    ssl_enabled_protocols: Annotated[tuple[TlsVersion, ...], Choices(TlsVersion, '"TLSv1.2", "TLSv1.3" or both')] = (
        TlsVersion.TLS_1_2,
        TlsVersion.TLS_1_3,
    )
    """The versions of TLS that are spoken."""

    ssl_principal_mapping_rules: Annotated[str, MappingRules()] = DEFAULT_RULES
    """How the name of a client follows from the subject of its certificate, CN=billing,OU=Services,O=Example.  The first rule applies whose
    pattern fits all of it; DEFAULT leaves it as it is; a client whom no rule fits is refused.  RULE:^CN=([^,]+),.*$/$1/L makes billing of it."""


class SaslKeys(TlsKeys, frozen=True, kw_only=True):
    """The keys as fields, in the order of the page."""

    # ---- logins -----------------------------------------------------------------------------------------------------

    sasl_enabled_mechanisms: Annotated[
        tuple[SaslMechanism, ...],
        Choices(SaslMechanism, '"SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"'),
        Differs('"GSSAPI"', "there is no Kerberos"),
    ] = (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256)
    """The ways in which clients log in at a listener that speaks SASL_SSL or SASL_PLAINTEXT.  PLAIN sends the password, and OAUTHBEARER what is as
    good as one: both need SASL_SSL.  Users and what is kept of their passwords are in the metadata (`replog users`), for PLAIN, too."""

    connections_max_reauth_ms: Annotated[int, milliseconds(0, 365 * DAY_MS, (0, "as long as the connection"))] = 0
    """How long a login holds.  A client says anew who it is before that, over the same connection, or the connection ends at its next request;
    so a user who was removed is gone after this time.  A token holds no longer than it says itself."""

    sasl_oauthbearer_jwks_endpoint_url: Annotated[
        str | None, Text("(file|https?)://.{1,2000}", "a URL of https, http or file")
    ] = None
    """Where the keys are that sign tokens of OAUTHBEARER, as a set of JSON Web Keys.  Read at the start, and again in the background."""

    sasl_oauthbearer_jwks_endpoint_refresh_ms: Annotated[int, milliseconds(1_000, DAY_MS)] = HOUR_MS
    """How often the keys are read again.  A token of a key that is not among them makes it sooner, at most once in ten seconds."""

    sasl_oauthbearer_expected_audience: Annotated[
        str | None,
        Text(".{1,1000}", "1 to 1,000 characters"),
        Differs("any audience", "a token for another service is none for this one"),
    ] = None
    """The audience that a token has to name (`aud`).  Needed for OAUTHBEARER."""

    sasl_oauthbearer_expected_issuer: Annotated[str | None, Text(".{1,1000}", "1 to 1,000 characters")] = None
    """The issuer that a token has to name (`iss`).  Not set: any whose key is known."""

    sasl_oauthbearer_clock_skew_seconds: Annotated[int, Number(0, 3_600)] = 30
    """Seconds by which the clock of who issues tokens may differ."""

    sasl_oauthbearer_sub_claim_name: Annotated[str, Text("[^.]{1,100}", "1 to 100 characters")] = "sub"
    """The claim of a token that names the user."""


class ConnectionKeys(SaslKeys, frozen=True, kw_only=True):
    """The keys as fields, in the order of the page."""

    # ---- connections ------------------------------------------------------------------------------------------------

    max_connections: Annotated[
        int, Number(1, 1_000_000), Differs("2147483647", "each costs memory, and a process opens so many files")
    ] = 10_000
    """The most connections of clients, to all listeners together; listener.name.outside.max.connections: to that one.  Never more than half of
    the files that the process may open.  A connection beyond them ends at once; those that there are when it is made less go on."""

    max_connection_creation_rate: Annotated[int, Number(1, UNLIMITED, special=((UNLIMITED, "any number"),))] = UNLIMITED
    """Connections that clients may make in a second, to all listeners together; listener.name.outside.max.connection.creation.rate: to that
    one.  Ten seconds' worth may come at once.  What comes sooner is taken in late, in order; what would wait for more than ten seconds
    is ended.  Addresses have the quota connection_creation_rate beside it."""


LISTENER_KEYS: Mapping[str, Key] = keys_of(ConnectionKeys)
"""The keys that a listener may have for itself."""


class ListenerValue(Struct, frozen=True):
    """What one listener has instead of what all have.

    Attributes:
        name: The name of the listener in small letters, a dot, and the key.
        value: The typed value.
    """

    name: str
    value: object

    @property
    def key(self) -> Key:
        """The key."""
        return LISTENER_KEYS[_key_name(self.name)]

    def __str__(self) -> str:
        return f"{self.name}={self.key.kind.show(self.value)}"


class ListenerValues(Kind):
    """Values of keys for one listener each: a table of dotted names, the name of the listener in front."""

    type_name = "table"

    def parse(self, raw: object) -> tuple[ListenerValue, ...]:
        if isinstance(raw, tuple):
            raw = {each.name: each.value for each in raw if isinstance(each, ListenerValue)}
        if not isinstance(raw, Mapping):
            raise ValueError("is no table")  # noqa: TRY004 - ValueError is the one failure of parse
        found = sorted((self._parsed(name.lower(), value) for name, value in raw.items()), key=lambda each: each.name)
        if len({each.name for each in found}) < len(found):
            raise ValueError("says something of a listener twice, in small letters and in capitals")
        return tuple(found)

    def _parsed(self, name: str, value: object) -> ListenerValue:
        key = LISTENER_KEYS.get(_key_name(name))
        if key is None:
            raise ValueError(
                f"has {name}, which is no key of a listener; write NAME.KEY, a key {', '.join(LISTENER_KEYS)}"
            )
        return ListenerValue(name, key.parse(key.kind.from_text(value) if isinstance(value, str) else value))

    def to_toml(self, value: object) -> str:
        return (
            "{"
            + ", ".join(f"{quoted(each.name)} = {each.key.kind.to_toml(each.value)}" for each in self.parse(value))
            + "}"
        )

    def describe_range(self) -> str:
        return "NAME.KEY for the keys of TLS, of logins and of connections"


def _key_name(name: str) -> str:
    """Returns the key of a name that begins with that of a listener; "" if it has none."""
    return next((key for key in LISTENER_KEYS if name.endswith(f".{key}")), "")


class WithoutLogins(Choice[PortProtocol]):
    """What is spoken where nodes meet."""

    def parse(self, raw: object) -> PortProtocol:
        if isinstance(raw, str) and raw.startswith("SASL_"):
            raise ValueError(
                "has nodes log in, and there are no logins between nodes: by SSL each proves who it is by a certificate"
            )
        return super().parse(raw)


class AddressCounts(ListOf):
    """A list of `ADDRESS:COUNT`, Kafka's form."""

    def parse(self, raw: object) -> tuple[object, ...]:
        found = super().parse(raw)
        if len({each.address for each in found if isinstance(each, AddressCount)}) < len(found):
            raise ValueError("names an address twice")
        return found

    def parse_item(self, raw: object) -> AddressCount:
        if isinstance(raw, AddressCount):
            return raw
        if not isinstance(raw, str):
            raise ValueError("is not a list of strings")  # noqa: TRY004 - ValueError is the one failure of parse
        return AddressCount.parse(raw)


class SecurityKeys(ConnectionKeys, frozen=True, kw_only=True):
    """The keys as fields, and what single listeners have instead."""

    sasl_server_max_receive_size: Annotated[
        int,
        size_bytes(KIB, 512 * KIB),
        Differs("524288", "a thousand clients that nobody knows may send as much at once"),
    ] = 64 * KIB
    """Size of the largest request of a client that has not logged in.  A token has to fit in."""

    connection_failed_authentication_delay_ms: Annotated[int, milliseconds(0, 10_000)] = 100
    """How late a client hears that its login failed, so that guesses take time."""

    security_inter_broker_protocol: Annotated[PortProtocol, WithoutLogins(PortProtocol)] = PortProtocol.PLAINTEXT
    """How this node speaks to other nodes.  SSL: over TLS; each side shows a certificate, which names a node and its cluster
    (docs/SECURITY.md).  Needs the keys that begin with ssl. or listener.name.inter.broker.ssl."""

    inter_broker_accepted_protocols: Annotated[
        tuple[PortProtocol, ...],
        Choices(PortProtocol, '"PLAINTEXT", "SSL" or both', may_be_empty=True),
        Differs("no such key", "Kafka has a second listener meanwhile"),
    ] = ()
    """How other nodes may speak to this one.  Not set, or empty: as security.inter.broker.protocol says.  Both, while a cluster changes
    from one to the other, node by node (docs/OPERATIONS.md): nobody who comes in plain text is asked which node they are."""

    metrics_security_protocol: Annotated[
        PortProtocol, Choice(PortProtocol), Differs("no such key", "Kafka exports JMX")
    ] = PortProtocol.PLAINTEXT
    """How metrics.listener speaks.  SSL: over TLS, by the keys that begin with ssl. or listener.name.metrics.ssl., such as
    listener.name.metrics.ssl.client.auth."""

    connections_max_idle_ms: Annotated[int, milliseconds(-1, 365 * DAY_MS, (-1, "never"))] = 600_000
    """The time after which a client's connection ends over which nothing came or went, and nothing is asked: a fetch or a watch that waits for
    news is asked.  It ends within some seconds of it, before the client has logged in too, and clients connect again when they need it."""

    max_connections_per_ip: Annotated[
        int, Number(0, 1_000_000), Differs("2147483647", "one machine shall not take all that there may be")
    ] = 2_000
    """The most connections of clients from one address.  A connection beyond them ends at once."""

    max_connections_per_ip_overrides: Annotated[
        tuple[AddressCount, ...], AddressCounts("ADDRESS:COUNT, each address once", may_be_empty=True)
    ] = ()
    """The same for single addresses: 10.0.0.7:5000, or [2001:db8::7]:5000.  Kafka takes names of hosts, too."""

    listener_name: Annotated[tuple[ListenerValue, ...], ListenerValues()] = ()
    """What a listener has for itself: listener.name.outside.ssl.client.auth is ssl.client.auth of the listener OUTSIDE, and the same of every key that
    begins with ssl. or sasl.oauthbearer., of sasl.enabled.mechanisms, connections.max.reauth.ms, max.connections and
    max.connection.creation.rate.  Names are written in small letters."""

    def security_of(self, listener: str) -> ConnectionKeys:
        """Returns the keys as they hold for the listener of a name."""
        shared = ConnectionKeys(**{field.name: getattr(self, field.name) for field in fields(ConnectionKeys)})
        named = {key.name: f"{listener.lower()}.{key.name}" for key in LISTENER_KEYS.values()}
        own = {each.key.field_name: each.value for each in self.listener_name if each.name == named[each.key.name]}
        return replace(shared, **own)

    def tls_settings_of(self, listener: str) -> TlsSettings:
        """Returns the same for the port of a listener; without a keystore there is no file that can be read."""
        tls = self.security_of(listener)
        return TlsSettings(
            tls.ssl_keystore_location or "",
            tls.ssl_truststore_location or "",
            tls.ssl_client_auth,
            tls.ssl_enabled_protocols,
            tls.ssl_principal_mapping_rules,
            tls.ssl_key_password,
        )

    @property
    def accepted_from_nodes(self) -> tuple[PortProtocol, ...]:
        """How other nodes may speak to this one."""
        return self.inter_broker_accepted_protocols or (self.security_inter_broker_protocol,)

    @property
    def nodes_speak_tls(self) -> bool:
        """Whether this node needs a certificate for other nodes, to dial them or to be dialed."""
        return PortProtocol.SSL in {self.security_inter_broker_protocol, *self.accepted_from_nodes}
