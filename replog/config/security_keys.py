"""The configuration keys of listeners that speak TLS; a part of `ServerKeys`.

What holds for one listener alone has its name in front: `listener.name.outside.ssl.client.auth`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated

from msgspec import Struct
from msgspec.structs import fields, replace

from replog.config.keys import Differs, Key, keys_of
from replog.config.kinds import Choice, Choices, FilePath, Kind, quoted
from replog.tcp.principals import DEFAULT_RULES, parse_rules
from replog.tcp.tls_settings import ClientAuth, TlsVersion

LISTENER_PREFIX = "listener.name."


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
    """The file with what this node proves itself by to clients: its private key, without a password, its certificate, and the chain to
    the authority.  Every listener that speaks SSL needs one.  A file that is renamed into its place is read within seconds, without
    a restart; connections that there are go on."""

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


TLS_KEYS: Mapping[str, Key] = keys_of(TlsKeys)
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
        return TLS_KEYS[f"ssl.{self.name.partition('.ssl.')[2]}"]

    def __str__(self) -> str:
        return f"{self.name}={self.key.kind.to_toml(self.value)}"


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
        key = TLS_KEYS.get(f"ssl.{name.partition('.ssl.')[2]}")
        if key is None:
            raise ValueError(f"has {name}, which is no key of a listener; write NAME.KEY, a key {', '.join(TLS_KEYS)}")
        return ListenerValue(name, key.parse(key.kind.from_text(value) if isinstance(value, str) else value))

    def to_toml(self, value: object) -> str:
        return (
            "{"
            + ", ".join(f"{quoted(each.name)} = {each.key.kind.to_toml(each.value)}" for each in self.parse(value))
            + "}"
        )

    def describe_range(self) -> str:
        return "NAME.KEY for the keys that begin with ssl."


class SecurityKeys(TlsKeys, frozen=True, kw_only=True):
    """The keys as fields, and what single listeners have instead."""

    listener_name: Annotated[tuple[ListenerValue, ...], ListenerValues()] = ()
    """What a listener has for itself: listener.name.outside.ssl.client.auth is ssl.client.auth of the listener OUTSIDE, and the same of every key that
    begins with ssl.  Names are written in small letters."""

    def tls_of(self, listener: str) -> TlsKeys:
        """Returns the keys as they hold for the listener of a name."""
        shared = TlsKeys(**{field.name: getattr(self, field.name) for field in fields(TlsKeys)})
        prefix = f"{listener.lower()}.ssl."
        own = {each.key.field_name: each.value for each in self.listener_name if each.name.startswith(prefix)}
        return replace(shared, **own)
