"""Avro: schemas by fastavro; whether a reader resolves what a writer wrote, by the rules of the Avro specification, "Schema Resolution".

Fixed decimals aside, logical types have no part in it, as in Avro's own implementations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import fastavro
import msgspec

from replog.registry.formats.problems import STEPS_MAX, Undecided, invalid_schema, load_json, sorted_json

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_RECORDS: Final = ("record", "error")
_NAMED: Final = (*_RECORDS, "enum", "fixed")
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class AvroSchema(msgspec.Struct, frozen=True):
    """A schema and the named types in it, by full name."""

    schema: Any
    named: dict[str, Any]


def parse_avro(text: str, references: Sequence[tuple[str, str]]) -> AvroSchema:
    """Parses a schema.

    Args:
        text: The schema, as JSON.
        references: Name and text of the schemas that it refers to, each after what it refers to itself.

    Raises:
        RegistryRefusedError: 42201: it is none.
    """
    named: dict[str, Any] = {}
    try:
        for _, referred in references:
            fastavro.parse_schema(load_json(referred), named_schemas=named)
        schema = fastavro.parse_schema(load_json(text), named_schemas=named)
    except Exception as error:  # fastavro raises what its own code comes to, RecursionError among it
        raise invalid_schema("Avro", error) from error
    return AvroSchema(schema, named)


def normal_avro(text: str, _: AvroSchema) -> str:
    """Returns the text that all spellings of a schema share, with its docs, defaults and other attributes.

    It is never much longer than the schema: names lose what their namespace says, and gain nothing.
    """
    return sorted_json(_normal(load_json(text), ""))


def _normal(schema: Any, namespace: str) -> Any:
    """Returns a part of a schema that is valid in a namespace, in its shortest spelling."""
    if isinstance(schema, str):
        return _short(schema, namespace)
    if isinstance(schema, list):
        return [_normal(each, namespace) for each in schema]
    kind = schema["type"]
    if len(schema) == 1:
        return _normal(kind, namespace)
    if kind not in _NAMED:
        inner = [name for name in ("type", "items", "values") if name in schema]
        return schema | {name: _normal(schema[name], namespace) for name in inner}
    own, _, name = schema["name"].rpartition(".")
    own = own or ("" if "." in schema["name"] else schema.get("namespace") or namespace)
    told = {key: value for key, value in schema.items() if key != "namespace"} | {"name": name}
    if own != namespace:
        told["namespace"] = own
    if "aliases" in schema:
        told["aliases"] = [_short(each, own) for each in schema["aliases"]]
    if "fields" in schema:
        told["fields"] = [_normal_field(each, own) for each in schema["fields"]]
    return told


def _normal_field(field: Any, namespace: str) -> Any:
    told = field | {"type": _normal(field["type"], namespace)}
    if told.get("order") == "ascending":
        del told["order"]
    return told


def _short(name: str, namespace: str) -> str:
    """Returns a name as it is written in a namespace."""
    own, _, unqualified = name.rpartition(".")
    return unqualified if own and own == namespace and unqualified not in _PRIMITIVES else name


def avro_problems(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Returns why the reader does not read all that the writer wrote; nothing: it does."""
    return _Resolution(reader.named, writer.named).problems(reader.schema, writer.schema, "/")


class _Resolution:
    def __init__(self, reader_named: dict[str, Any], writer_named: dict[str, Any]) -> None:
        self._reader_named = reader_named
        self._writer_named = writer_named
        self._seen: set[tuple[str, str]] = set()
        self._steps_left = STEPS_MAX

    def problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Undecided("the two schemas are too large to be compared")
        reader, writer = _definition(reader, self._reader_named), _definition(writer, self._writer_named)
        if isinstance(writer, list):
            return [found for each in writer for found in self.problems(reader, each, path)]
        if isinstance(reader, list):
            return self._union_problems(reader, writer, path)
        kind, written = _kind(reader), _kind(writer)
        if kind != written:
            promoted = kind in _PROMOTIONS.get(written, ())
            return [] if promoted else [f"{path}: the reader has {kind}, the writer {written}"]
        match kind:
            case "record" | "error" | "request":
                return self._record_problems(reader, writer, path)
            case "enum":
                return _name_problems(reader, writer, path) + _enum_problems(reader, writer, path)
            case "fixed":
                return _name_problems(reader, writer, path) + _fixed_problems(reader, writer, path)
            case "array":
                return self.problems(reader["items"], writer["items"], f"{path}items/")
            case "map":
                return self.problems(reader["values"], writer["values"], f"{path}values/")
        return _decimal_problems(reader, writer, path)

    def _union_problems(self, reader: list[Any], writer: Any, path: str) -> list[str]:
        seen = self._seen.copy()
        for each in reader:
            if not self.problems(each, writer, path):
                return []
            self._seen = seen.copy()  # what held under a branch that does not fit says nothing
        return [f"{path}: no branch of the reader's union takes {_shown(writer)}"]

    def _record_problems(self, reader: Any, writer: Any, path: str) -> list[str]:
        pair = (reader["name"], writer["name"])
        if pair in self._seen:
            return []
        self._seen.add(pair)
        found = _name_problems(reader, writer, path)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            source = next((written[name] for name in names if name in written), None)
            if source is not None:
                found += self.problems(field["type"], source["type"], f"{path}{field['name']}/")
            elif "default" not in field:
                found.append(
                    f"{path}{field['name']}: the reader has no default for it, and the writer does not write it"
                )
        return found


def _definition(schema: Any, named: dict[str, Any]) -> Any:
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind in _RECORDS else str(kind)


def _shown(schema: Any) -> str:
    return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else str(schema)


def _name_problems(reader: Any, writer: Any, path: str) -> list[str]:
    """Returns what is wrong with names: unqualified ones are the same, or the reader has the writer's as an alias."""
    known = {_unqualified(reader["name"]), *map(_unqualified, reader.get("aliases", ()))}
    if _unqualified(writer["name"]) in known:
        return []
    return [f"{path}: the reader's name is {reader['name']}, the writer's {writer['name']}"]


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]


def _enum_problems(reader: Any, writer: Any, path: str) -> list[str]:
    missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
    if not missing or "default" in reader:
        return []
    return [f"{path}: the reader's enum lacks {', '.join(missing)}"]


def _fixed_problems(reader: Any, writer: Any, path: str) -> list[str]:
    if reader["size"] == writer["size"]:
        return _decimal_problems(reader, writer, path)
    return [f"{path}: the reader's size is {reader['size']}, the writer's {writer['size']}"]


def _decimal_problems(reader: Any, writer: Any, path: str) -> list[str]:
    """Returns what is wrong where both are decimals: a value would be read with another scale."""
    decimals = [_decimal(schema) for schema in (reader, writer)]
    if None in decimals or decimals[0] == decimals[1]:
        return []
    return [f"{path}: the reader's decimal has precision and scale {decimals[0]}, the writer's {decimals[1]}"]


def _decimal(schema: Any) -> tuple[int, int] | None:
    if not isinstance(schema, dict) or schema.get("logicalType") != "decimal":
        return None
    return schema.get("precision", 0), schema.get("scale", 0)
