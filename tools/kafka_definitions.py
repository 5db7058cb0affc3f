"""The definitions of Kafka's messages as they lie in its jar: which field has which type in which versions."""

from __future__ import annotations

import json
import keyword
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS_MAX = 32767
CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
SIZES = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8}
PLAIN_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "memoryview | bytes",
    "uuid": "UUID",
}


@dataclass(frozen=True)
class Span:
    """Versions from `first` to `last`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Span:
        """Returns the span of a text such as "3+", "0-12", "5" or "none"."""
        if text == "none":
            return cls(VERSIONS_MAX, -1)
        first, _, last = text.partition("-")
        return cls(int(first.rstrip("+")), VERSIONS_MAX if text.endswith("+") else int(last or first))

    def within(self, other: Span) -> Span:
        """Returns what both have in common."""
        return Span(max(self.first, other.first), min(self.last, other.last))

    def joined(self, other: Span) -> Span:
        """Returns the span from the first version of both to the last."""
        return Span(min(self.first, other.first), max(self.last, other.last))

    def __bool__(self) -> bool:
        return self.first <= self.last

    def condition(self, outer: Span) -> str:
        """Returns the expression that holds in these versions, where those of `outer` are possible; "" where it always does."""
        lower = f"version >= {self.first}" if self.first > outer.first else ""
        upper = f"version <= {self.last}" if self.last < outer.last else ""
        if lower and upper:
            is_one = self.first == self.last
            return f"version == {self.first}" if is_one else f"{self.first} <= version <= {self.last}"
        return lower or upper


@dataclass(frozen=True)
class Field:
    """One field of a struct."""

    name: str
    type: str
    span: Span
    nullable: Span
    tagged: Span
    tag: int | None
    default: Any
    is_flexible: bool

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_struct(self) -> bool:
        return self.element[0].isupper()

    @property
    def code(self) -> str:
        """The letter in `struct` of a field of fixed width that is no array; ""  for others."""
        return "" if self.is_array or self.tag is not None else CODES.get(self.type, "")

    def annotation(self, message: str) -> str:
        """Returns the type in Python."""
        inner = f"{message}.{self.element}" if self.is_struct else PLAIN_TYPES.get(self.element, "int")
        found = f"list[{inner}]" if self.is_array else inner
        return f"{found} | None" if self.may_be_none else found

    @property
    def may_be_none(self) -> bool:
        """Whether None is a value of it; a tagged struct that is never null is None where it is not written."""
        return bool(self.nullable) or self.has_no_default

    @property
    def has_no_default(self) -> bool:
        """Whether None stands for a field that was not given.

        It does not for a tagged struct that may be null: where that is not given, it is one with all its defaults.
        """
        is_one_struct = self.is_struct and not self.is_array
        is_tagged, is_nullable = self.tag is not None, bool(self.nullable)
        return self.default == "null" or self.type == "records" or (is_one_struct and is_tagged != is_nullable)

    def default_text(self, message: str) -> str:
        """Returns the default in Python."""
        if self.has_no_default:
            return "None"
        if self.is_array:
            return "field(default_factory=list)"
        if self.is_struct:
            return f"field(default_factory=lambda: {message}.{self.element}())"
        match self.type:
            case "string":
                return repr(self.default or "")
            case "bytes":
                return 'b""'
            case "uuid":
                return "ZERO_UUID"
            case "bool":
                return "True" if str(self.default).lower() == "true" else "False"
            case "float64":
                return str(float(self.default or 0))
        return str(int(str(self.default or 0), 0))

    def differs(self, message: str) -> str:
        """Returns the expression that holds where the field has another value than its default, and is written."""
        default = self.default_text(message)
        if default == "None":
            return f"self.{self.name} is not None"
        if self.is_struct and not self.is_array:
            return f"self.{self.name} != {message}.{self.element}()"
        if self.is_array or default in {"False", '""', "''"}:
            return f"self.{self.name}"
        return f"not self.{self.name}" if default == "True" else f"self.{self.name} != {default}"


@dataclass(frozen=True)
class Struct:
    """A message, or a struct of one."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Message:
    """A request, an answer, a header, or the key or the value of a record.

    Attributes:
        api_key: The number of its API, or of its type of records.
        flexible: Its flexible versions.
        structs: The structs nested in it, inner ones first.
    """

    root: Struct
    api_key: int | None
    versions: Span
    flexible: Span
    structs: tuple[Struct, ...]


def definitions(jar: Path) -> dict[str, Any]:
    """Returns the definitions of messages in Kafka's jar, by name."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode())
                parsed = json.loads(text)
                found[parsed["name"]] = parsed
    return found


def parse(definition: dict[str, Any]) -> Message:
    """Returns one message."""
    structs: dict[str, Struct] = {}
    root = _struct(definition["name"], definition["fields"], structs)
    for common in definition.get("commonStructs", ()):
        structs[common["name"]] = _struct(common["name"], common["fields"], structs)
    versions, flexible = Span.parse(definition["validVersions"]), Span.parse(definition["flexibleVersions"])
    return Message(root, definition.get("apiKey"), versions, flexible, tuple(structs.values()))


def _struct(name: str, fields: list[dict[str, Any]], structs: dict[str, Struct]) -> Struct:
    members = []
    for each in fields:
        if "fields" in each:
            inner = each["type"].removeprefix("[]")
            structs[inner] = _struct(inner, each["fields"], structs)
        members.append(_field(each))
    return Struct(name, tuple(members))


def _field(each: dict[str, Any]) -> Field:
    return Field(
        name=snake_case(each["name"]),
        type=each["type"],
        span=Span.parse(each.get("versions") or each["taggedVersions"]),
        nullable=Span.parse(each.get("nullableVersions", "none")),
        tagged=Span.parse(each.get("taggedVersions", "none")),
        tag=each.get("tag"),
        default=each.get("default"),
        is_flexible=each.get("flexibleVersions") != "none",
    )


def snake_case(name: str) -> str:
    """Returns a name of Kafka's in Python's spelling."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return f"{words}_" if keyword.iskeyword(words) else words
