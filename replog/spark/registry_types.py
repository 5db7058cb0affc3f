"""Schemas of a registry as types of Spark's column `value`, as Spark writes types to json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa

from replog.codecs.plain_values import Schema, avro_schema, protobuf_pool
from replog.codecs.registry import SchemaRegistry
from replog.errors import ConfigError
from replog.errors.texts import error_text
from replog.spark.schema import RegisteredType

KINDS: Final[Mapping[str, str]] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""Value of the option `valueFormat` -> kind of the schema."""

DEPTH_MAX: Final = 100
_AVRO: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "fixed": "binary",
    "enum": "string",
    "int-date": "date",
    "long-timestamp-millis": "timestamp",
    "long-timestamp-micros": "timestamp",
    "long-local-timestamp-millis": "timestamp_ntz",
    "long-local-timestamp-micros": "timestamp_ntz",
}
_WIDER: Final = ({"int", "long"}, {"float", "double"})
_JSON: Final = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean"}
_ARROW: Final[Mapping[str, Any]] = {
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


@lru_cache(maxsize=16)
def registry_at(url: str) -> SchemaRegistry:
    """Returns the client of the registry there, one in a process: it keeps the schemas that it was told.

    Raises:
        ConfigError: The url is none.
    """
    return SchemaRegistry(url, timeout_ms=10_000)


def latest_type(url: str, subject: str, value_format: str) -> tuple[int, RegisteredType]:
    """Returns the last schema of a subject, with its id.

    Raises:
        ConfigError: There is none, it is of another kind than the option `valueFormat` says, or no type of a column.
        RegistryNotAvailableError: The registry does not answer.
    """
    try:
        schema_id, schema = registry_at(url).latest(subject)
    except ValueError as error:
        raise ConfigError(
            "schema.registry.subject", subject, f'there is no schema of the subject "{subject}": {error}'
        ) from error
    return schema_id, _registered(url, schema, value_format)


def type_by_id(url: str, schema_id: int, value_format: str) -> RegisteredType:
    """Returns the schema with an id.  Raises: As `latest_type`."""
    try:
        schema = registry_at(url).schema(schema_id)
    except ValueError as error:
        raise ConfigError(
            "schema.registry.url", url, f"the schema {schema_id} of the DataFrame is gone: {error}"
        ) from error
    return _registered(url, schema, value_format)


def _registered(url: str, schema: Schema, value_format: str) -> RegisteredType:
    if schema.kind != KINDS[value_format]:
        names = {kind: name for name, kind in KINDS.items()}
        raise ConfigError(
            "valueFormat",
            value_format,
            f'the schema is one of {schema.kind}: set valueFormat to "{names.get(schema.kind, "binary")}"',
        )
    return RegisteredType(url, schema, value_type(schema))


def value_type(schema: Schema) -> Any:
    """Returns the type of the column `value` for a schema.

    Raises:
        ConfigError: The schema has something in it that is no type of a column.
    """
    try:
        match schema.kind:
            case "AVRO":
                return _avro_type(avro_schema(schema.text, schema.imports), {})
            case "PROTOBUF":
                return _protobuf_type(schema)
        return _json_type(msgspec.json.decode(schema.text), schema, 0)
    except ConfigError:
        raise
    except Exception as error:  # what the libraries of the kinds raise for what is none of theirs
        raise ConfigError(
            "schema.registry.subject",
            schema.kind,
            f'the schema of {schema.kind} is no type of a column: {error_text(error)}. Read with valueFormat "binary"',
        ) from error


def arrow_type_of(kind: Any) -> Any:
    """Returns the Arrow type that Spark expects for one of its own."""
    if isinstance(kind, str):
        if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
            return pa.decimal128(int(found[1]), int(found[2]))
        return _ARROW[kind]
    if kind["type"] == "struct":
        return pa.struct([pa.field(each["name"], arrow_type_of(each["type"])) for each in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", arrow_type_of(kind["elementType"])))
    key, value = arrow_type_of(kind["keyType"]), arrow_type_of(kind["valueType"])
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))


def _struct(fields: Mapping[str, Any]) -> Any:
    if not fields:
        raise ValueError("it has an object without fields")
    listed = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    return {"type": "struct", "fields": listed}


def _array(kind: Any) -> Any:
    return {"type": "array", "elementType": kind, "containsNull": True}


def _map(kind: Any) -> Any:
    return {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}


def _avro_type(schema: Any, named: dict[str, Any]) -> Any:
    """Returns a type; `named` are the named types that are known, None while they are being made."""
    if isinstance(schema, list):
        return _union_type([each for each in schema if each != "null"], named)
    if isinstance(schema, str) and schema in named:
        if named[schema] is None:
            raise ValueError(f"{schema} has itself in it")
        return named[schema]
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return _array(_avro_type(schema["items"], named))
    if kind == "map":
        return _map(_avro_type(schema["values"], named))
    if kind in {"record", "error"}:
        named[schema["name"]] = None
        found = _struct({field["name"]: _avro_type(field["type"], named) for field in schema["fields"]})
    else:
        found = _avro_leaf(kind, {} if isinstance(schema, str) else schema)
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = found
    return found


def _avro_leaf(kind: str, schema: Mapping[str, Any]) -> Any:
    logical = schema.get("logicalType")
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if logical in {"time-millis", "time-micros", "duration"}:
        raise ValueError(f"it has a {logical}, which Spark does not have")
    if logical == "uuid":
        return "string"
    return _AVRO.get(f"{kind}-{logical}") or _AVRO[kind]


def _union_type(branches: list[Any], named: dict[str, Any]) -> Any:
    if len(branches) == 1:
        return _avro_type(branches[0], named)
    for alike in _WIDER:
        if all(isinstance(each, str) and each in alike for each in branches):
            return _AVRO[max(alike, key=["int", "float", "long", "double"].index)]
    raise ValueError("it has a union of several types")


def _protobuf_type(schema: Schema) -> Any:
    from replog.codecs.protobuf_binary import descriptor_of, message_name
    from replog.codecs.protobuf_fields import message_type

    name = message_name(descriptor_of(schema.text), [0])
    return message_type(protobuf_pool(schema.text, schema.imports).FindMessageTypeByName(name))


def _json_type(schema: Any, top: Schema, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ValueError(f"it is nested deeper than {DEPTH_MAX}, or has itself in it")
    if not isinstance(schema, dict):
        raise ValueError("it allows anything in a place: give a schema that says what to read there")  # noqa: TRY004
    if "$ref" in schema:
        return _json_type(_referred(schema["$ref"], top), top, depth + 1)
    branches = [each for each in schema.get("anyOf") or schema.get("oneOf") or [] if each != {"type": "null"}]
    if branches:
        if len(branches) > 1:
            raise ValueError("it has alternatives of several types: give a schema that says what to read there")
        return _json_type(branches[0], top, depth + 1)
    kinds = schema.get("type", "string" if all(isinstance(each, str) for each in schema.get("enum", [0])) else None)
    kinds = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each != "null"]
    if len(kinds) != 1 or kinds[0] is None:
        raise ValueError("it allows several types in a place: give a schema that says what to read there")
    if kinds[0] == "array":
        return _array(_json_type(schema.get("items", True), top, depth + 1))
    if kinds[0] != "object":
        return _JSON[kinds[0]]
    properties = schema.get("properties", {})
    if not properties and isinstance(schema.get("additionalProperties"), dict):
        return _map(_json_type(schema["additionalProperties"], top, depth + 1))
    return _struct({name: _json_type(each, top, depth + 1) for name, each in properties.items()})


def _referred(reference: str, top: Schema) -> Any:
    name, _, pointer = reference.partition("#")
    found = msgspec.json.decode(dict(top.imports)[name] if name else top.text)
    for step in filter(None, pointer.split("/")):
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found
