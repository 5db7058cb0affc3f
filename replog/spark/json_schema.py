"""Which structs of Spark can be read from json values, and as what.

Spark's types come as it writes them to json (`DataType.jsonValue()`), so that nothing of Spark is imported here.
"""

from __future__ import annotations

import re
from typing import Any

from replog.errors import ConfigError
from replog.spark.json_decoder import DEPTH_MAX, JsonKind, Shape

EXAMPLE = "value struct<id: bigint, city: string>"

_KINDS = {
    "boolean": JsonKind.BOOLEAN,
    "byte": JsonKind.INT8,
    "short": JsonKind.INT16,
    "integer": JsonKind.INT32,
    "long": JsonKind.INT64,
    "float": JsonKind.FLOAT,
    "double": JsonKind.DOUBLE,
    "string": JsonKind.STRING,
    "date": JsonKind.DATE,
    "timestamp": JsonKind.TIMESTAMP,
}
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
_COLLATIONS = "__COLLATIONS"


def value_shape(kind: Any) -> Shape:
    """Returns what the values are read as.

    Args:
        kind: The type of the column `value`, as Spark writes it to json.

    Raises:
        ConfigError: It is no struct, or has something in it that is not read from json here.
    """
    if not isinstance(kind, dict) or kind["type"] != "struct" or not kind["fields"]:
        raise ConfigError(
            "schema",
            str(kind)[:200],
            'with valueFormat "json" the column "value" is a struct of the fields to read: name it so in the schema, for example '
            f'"{EXAMPLE}", or leave it out',
        )
    return _shape(kind, ("value",))


def _shape(kind: Any, path: tuple[str, ...]) -> Shape:
    if len(path) > DEPTH_MAX:
        raise ConfigError("schema", path[-1], f"the schema is nested deeper than {DEPTH_MAX}: read a part of it")
    if isinstance(kind, str):
        return _leaf(kind, path)
    match kind["type"]:
        case "struct":
            return _struct(kind["fields"], path)
        case "array":
            return Shape(JsonKind.LIST, children=(_shape(kind["elementType"], (*path, "element")),))
        case "map" if kind["keyType"] == "string":
            return Shape(JsonKind.MAP, children=(_shape(kind["valueType"], (*path, "value")),))
        case "map":
            raise _not_read(path, "a map whose keys are not strings")
        case other:
            raise _not_read(path, str(other))


def _struct(fields: list[dict[str, Any]], path: tuple[str, ...]) -> Shape:
    names = tuple(field["name"] for field in fields)
    seen: set[str] = set()
    for field in fields:
        name = field["name"]
        if name in seen:
            raise ConfigError("schema", name, f'{".".join(path)} has the field "{name}" twice: leave one out')
        if _COLLATIONS in (field.get("metadata") or {}):
            raise _not_read((*path, name), "a string with a collation")
        seen.add(name)
    children = tuple(_shape(field["type"], (*path, field["name"])) for field in fields)
    return Shape(JsonKind.STRUCT, names, children)


def _leaf(kind: str, path: tuple[str, ...]) -> Shape:
    if kind in _KINDS:
        return Shape(_KINDS[kind])
    if found := _DECIMAL.fullmatch(kind):
        return Shape(JsonKind.DECIMAL, precision=int(found[1]), scale=int(found[2]))
    raise _not_read(path, kind)


def _not_read(path: tuple[str, ...], what: str) -> ConfigError:
    listed = "boolean, tinyint, smallint, int, bigint, float, double, decimal, string, date, timestamp, struct, array, map<string, ...>"
    return ConfigError(
        "schema",
        what[:80],
        f'{".".join(path)[:200]} is {what[:80]}, which valueFormat "json" does not read (it reads {listed}): name it string and '
        'cast it after the read, or read with valueFormat "string" and use from_json',
    )
