"""What a configuration value may be: how each kind is read, checked, described and written back.

Why: every key says its type, unit and range once, in `replog.config.server_keys`; reading a file, refusing a bad value, the
nearest-name hint and `docs/CONFIGURATION.md` all use that one statement.

A kind's `parse` takes what TOML or a caller gives, returns the typed value, and accepts an already typed value, so that
`ServerConfig(...)` in code and a file are checked by the same lines.  It raises `ValueError` with the half sentence
that follows "key = value" ("is not a whole number").
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from abc import ABC, abstractmethod
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct

from replog.access.secret import HIDDEN, Secret
from replog.metadata.records import CLIENT_LISTENER, SecurityProtocol

# numbers that the configuration keys are written with
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
YEAR_MINUTES = 365 * 24 * 60
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

PORT_MAX = 65_535

EnumT = TypeVar("EnumT", bound=Enum)


class Endpoint(Struct, frozen=True, order=True):
    """Where a server listens or is reached.  Port 0 means any free port, known only after binding."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether nothing outside this machine can connect.  Names other than localhost are not looked up: False."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether it is 0.0.0.0 or ::, which can be bound and not connected to."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


class NamedEndpoint(Struct, frozen=True, order=True):
    """Where a server listens or is reached, by the name of its listener; in capitals, as Kafka has them."""

    name: str
    endpoint: Endpoint

    def __str__(self) -> str:
        return str(self.endpoint) if self.name == CLIENT_LISTENER else f"{self.name}://{self.endpoint}"


def names_loopback(address: str) -> bool:
    """Whether a host, with or without a port, such as the Host header of a request, is one that nothing outside this machine is."""
    host, _, port = address.rpartition(":")
    return Endpoint((host if port.isdecimal() else address).strip("[]"), 0).is_loopback


class VoterAddress(Struct, frozen=True, order=True):
    """One member of the metadata quorum: its node id and where it is reached."""

    voter_id: int
    endpoint: Endpoint

    def __str__(self) -> str:
        return f"{self.voter_id}@{self.endpoint}"


def quoted(text: str) -> str:
    """Quotes `text` for TOML: as JSON does, and the one control character that TOML refuses and JSON does not."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def parse_endpoint(text: str) -> Endpoint:
    """Reads `host:port` or `[ipv6]:port`.

    Raises:
        ValueError: The text is not of that form; the message says what to write instead.
    """
    if "://" in text:
        raise ValueError("has a protocol in front; write host:port")
    host, colon, port = text.strip().rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > PORT_MAX:
        raise ValueError(f"is not host:port with a port from 0 to {PORT_MAX:,}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("needs brackets around an IPv6 address, as in [::1]:9092")
    if not host:
        raise ValueError("has no host; write for example 127.0.0.1:" + port)
    return Endpoint(host, int(port))


class Kind(ABC):
    """One kind of value.  `unit` is the word a message shows, "" where there is none."""

    unit: str = ""
    type_name: str
    is_secret: bool = False
    """Whether values are shown to nobody."""

    @abstractmethod
    def parse(self, raw: object) -> object:
        """Returns the typed value.

        Raises:
            ValueError: The value is of the wrong type or out of range.
        """

    @abstractmethod
    def describe_range(self) -> str:
        """Says in words what is allowed."""

    def from_text(self, text: str) -> object:
        """Returns what to hand to `parse` for a value typed on a command line."""
        return text

    def show(self, value: object) -> str:
        """Returns the value as documents and messages show it."""
        return self.to_toml(value)

    def to_toml(self, value: object) -> str:
        """Returns the value as it stands in a TOML file."""
        return quoted(str(value))


class Number(Kind):
    """A whole number from `low` to `high`, both allowed.  `special` names values that mean something of their own."""

    type_name = "integer"

    def __init__(self, low: int, high: int, unit: str = "", special: tuple[tuple[int, str], ...] = ()) -> None:
        self.low = low
        self.high = high
        self.unit = unit
        self.special = special

    def parse(self, raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise ValueError("is not a whole number")  # noqa: TRY004 - ValueError is the one failure of parse
        if not self.low <= raw <= self.high:
            raise ValueError("is out of range")
        return raw

    def from_text(self, text: str) -> object:
        return int(text) if re.fullmatch(r"[+-]?[0-9][0-9_]*", text.strip()) else text

    def describe_range(self) -> str:
        allowed = f"{self.low:,} to {self.high:,}"
        return ", ".join([allowed, *(f"{value:,} = {meaning}" for value, meaning in self.special)])

    def show(self, value: object) -> str:
        return f"{value:,}"

    def to_toml(self, value: object) -> str:
        return str(value)


def milliseconds(low: int, high: int, *special: tuple[int, str]) -> Number:
    """Makes the kind of a duration or an interval."""
    return Number(low, high, "milliseconds", special)


def size_bytes(low: int, high: int, *special: tuple[int, str]) -> Number:
    """Makes the kind of a size."""
    return Number(low, high, "bytes", special)


class Fraction(Kind):
    """A number from `low` to `high`, both allowed."""

    type_name = "number"

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high

    def parse(self, raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise ValueError("is not a number")  # noqa: TRY004 - ValueError is the one failure of parse
        if not self.low <= raw <= self.high:
            raise ValueError("is out of range")
        return float(raw)

    def from_text(self, text: str) -> object:
        return float(text) if re.fullmatch(r"[0-9]*\.?[0-9]+", text.strip()) else text

    def describe_range(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def to_toml(self, value: object) -> str:
        return str(value)


class Flag(Kind):
    """true or false."""

    type_name = "boolean"

    def parse(self, raw: object) -> bool:
        if not isinstance(raw, bool):
            raise ValueError("is not true or false")  # noqa: TRY004 - ValueError is the one failure of parse
        return raw

    def from_text(self, text: str) -> object:
        return {"true": True, "false": False}.get(text.strip().lower(), text)

    def describe_range(self) -> str:
        return "true or false"

    def to_toml(self, value: object) -> str:
        return "true" if value else "false"


class Text(Kind):
    """A string that matches `pattern` as a whole; `rule` says the same in words."""

    type_name = "string"

    def __init__(self, pattern: str, rule: str) -> None:
        self.pattern = pattern
        self.rule = rule

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError("is not a string")  # noqa: TRY004 - ValueError is the one failure of parse
        if not re.fullmatch(self.pattern, raw):
            raise ValueError("is not allowed")
        return raw

    def describe_range(self) -> str:
        return self.rule


class SecretText(Kind):
    """A string that is shown nowhere: a password.  In a file of settings it may stand elsewhere: `replog.config.references`."""

    type_name = "string"
    is_secret = True

    def parse(self, raw: object) -> Secret:
        if isinstance(raw, Secret):
            return raw
        if not isinstance(raw, str) or not raw:
            raise ValueError("is not a string that has something in it")
        return Secret(raw)

    def describe_range(self) -> str:
        return "text; shown nowhere"

    def show(self, value: object) -> str:  # noqa: ARG002 -- shown is the same of each
        return HIDDEN

    def to_toml(self, value: object) -> str:
        return quoted(value.reveal() if isinstance(value, Secret) else str(value))


class Choice(Kind, Generic[EnumT]):
    """One member of an enumeration, written as its value."""

    type_name = "string"

    def __init__(self, members: type[EnumT]) -> None:
        self.members = members

    def parse(self, raw: object) -> EnumT:
        try:
            return self.members(raw)
        except ValueError:
            raise ValueError("is none of the choices") from None

    def describe_range(self) -> str:
        *first, last = (json.dumps(member.value) for member in self.members)
        return f"{', '.join(first)} or {last}" if first else last

    def to_toml(self, value: object) -> str:
        return json.dumps(value.value if isinstance(value, Enum) else value)


class ListOf(Kind):
    """A list; in a file a TOML array, or Kafka's one string with commas.  Values are tuples without repetitions."""

    type_name = "list"

    def __init__(self, rule: str, *, may_be_empty: bool = False, count_max: int = 1_000) -> None:
        self.rule = rule
        self.may_be_empty = may_be_empty
        self.count_max = count_max

    @abstractmethod
    def parse_item(self, raw: object) -> object:
        """Returns one typed item; raises `ValueError` as `parse` does."""

    def parse(self, raw: object) -> tuple[object, ...]:
        if isinstance(raw, str):
            raw = [item.strip() for item in raw.split(",") if item.strip()]
        if not isinstance(raw, list | tuple):
            raise ValueError("is not a list of strings")  # noqa: TRY004 - ValueError is the one failure of parse
        items = tuple(self.parse_item(item) for item in raw)
        if not items and not self.may_be_empty:
            raise ValueError("is empty")
        if len(items) > self.count_max:
            raise ValueError(f"has {len(items)} entries where {self.count_max} is the most")
        if len(set(items)) != len(items):
            raise ValueError("names something twice")
        return items

    def describe_range(self) -> str:
        return self.rule

    def to_toml(self, value: object) -> str:
        items = value if isinstance(value, list | tuple) else (value,)
        return "[" + ", ".join(self.item_to_toml(item) for item in items) + "]"

    def item_to_toml(self, item: object) -> str:
        """Returns one item as it stands in a TOML array."""
        return quoted(str(item))


class Choices(ListOf, Generic[EnumT]):
    """A list of members of an enumeration."""

    def __init__(self, members: type[EnumT], rule: str, *, may_be_empty: bool = False) -> None:
        super().__init__(rule, may_be_empty=may_be_empty)
        self.choice = Choice(members)

    def parse_item(self, raw: object) -> EnumT:
        return self.choice.parse(raw)

    def item_to_toml(self, item: object) -> str:
        return self.choice.to_toml(item)


class NamedEndpoints(ListOf):
    """A list of `NAME://host:port`, each name once; `host:port` alone is of the listener PLAINTEXT."""

    def parse(self, raw: object) -> tuple[object, ...]:
        found = super().parse(raw)
        if len({each.name for each in found if isinstance(each, NamedEndpoint)}) < len(found):
            raise ValueError("names a listener twice; write NAME://host:port with a name of its own before each")
        return found

    def parse_item(self, raw: object) -> NamedEndpoint:
        if isinstance(raw, NamedEndpoint):
            return raw
        if isinstance(raw, Endpoint):
            return NamedEndpoint(CLIENT_LISTENER, raw)
        if not isinstance(raw, str):
            raise ValueError("is not a list of strings")  # noqa: TRY004 - ValueError is the one failure of parse
        name, _, address = raw.rpartition("://")
        return NamedEndpoint(_listener_name(name) if name else CLIENT_LISTENER, parse_endpoint(address))


class ListenerProtocol(Struct, frozen=True):
    """How clients speak at the listener of a name."""

    name: str
    protocol: SecurityProtocol

    def __str__(self) -> str:
        return f"{self.name}:{self.protocol.name}"


class ListenerProtocols(ListOf):
    """A list of `NAME:PROTOCOL`, Kafka's form."""

    def parse_item(self, raw: object) -> ListenerProtocol:
        if isinstance(raw, ListenerProtocol):
            return raw
        if not isinstance(raw, str):
            raise ValueError("is not a list of strings")  # noqa: TRY004 - ValueError is the one failure of parse
        name, _, protocol = (part.strip() for part in raw.partition(":"))
        if protocol not in SecurityProtocol.__members__:
            raise ValueError(f"names no protocol in {raw!r}; write NAME:PROTOCOL")
        return ListenerProtocol(_listener_name(name), SecurityProtocol[protocol])


def _listener_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text):
        raise ValueError(f"has no name of a listener in {text!r}; a name is 1 to 64 of A-Z a-z 0-9 _ . -")
    return text.upper()


class OneEndpoint(Kind):
    """One `host:port`; an empty string means not set."""

    type_name = "string"

    def parse(self, raw: object) -> Endpoint | None:
        if isinstance(raw, Endpoint):
            return raw
        if not isinstance(raw, str):
            raise ValueError("is not a string")  # noqa: TRY004 - ValueError is the one failure of parse
        return parse_endpoint(raw) if raw.strip() else None

    def describe_range(self) -> str:
        return "host:port, port 0 to 65,535"


class Voters(ListOf):
    """A list of `id@host:port`, Kafka's form."""

    def parse_item(self, raw: object) -> VoterAddress:
        if isinstance(raw, VoterAddress):
            return raw
        voter_id, at, address = raw.partition("@") if isinstance(raw, str) else ("", "", "")
        if not at or not re.fullmatch(r"[0-9]{1,9}", voter_id.strip()):
            raise ValueError("is not a list of id@host:port")
        return VoterAddress(int(voter_id), parse_endpoint(address))


class Paths(ListOf):
    """A list of folders.  In one string commas part them, as in Kafka; a name with a comma needs a TOML array.

    A relative name counts from the working directory of now: a program that changes it later has its data where it was.
    """

    def parse(self, raw: object) -> tuple[str, ...]:
        return tuple(name if os.path.isabs(name) else os.path.abspath(name) for name in self.names(raw))  # noqa: PTH100, PTH117 -- `Path` keeps ".."

    def names(self, raw: object) -> tuple[str, ...]:
        """Returns the names as they are given."""
        return tuple(map(str, super().parse(raw)))

    def parse_item(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip() or "\0" in raw or not _is_utf8(raw):
            raise ValueError("is not a list of folder names")
        return raw


class FilePath(Kind):
    """One file.  A relative name counts from the working directory of now, as in `Paths`; an empty string means not set."""

    type_name = "string"

    def parse(self, raw: object) -> str | None:
        if not isinstance(raw, str) or "\0" in raw or not _is_utf8(raw):
            raise ValueError("is not the name of a file")
        return os.path.abspath(raw) if raw.strip() else None  # noqa: PTH100 -- `Path` keeps ".."

    def describe_range(self) -> str:
        return "name of a file"


def _is_utf8(text: str) -> bool:
    """Whether UTF-8 can hold a name: no file of ours could hold one that the system gave as undecodable bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
