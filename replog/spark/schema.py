"""Columns of the data source: names and types of Spark's Kafka source.

Spark prunes no columns of a Python source by itself (spark 4.x).  A schema given by the user does: only the columns it
names are decoded and handed over, so `.schema("offset bigint")` reads a topic without moving its values.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from replog.codecs.plain_values import Schema
from replog.errors import ConfigError
from replog.spark.json_decoder import Shape
from replog.spark.json_schema import EXAMPLE, value_shape
from replog.spark.options.uses import STRUCTURED

HEADERS = "headers"

COLUMN_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
"""Column -> type, as Spark writes it, in Spark's order.

Each is in `arrow_batches` too, as a type of Arrow and in the batch that is made; `schema_ddl` says which are there unasked.
"""

CORRUPT, WHY = "_corrupt", "_why"

MISFIT_COLUMNS = {CORRUPT: "binary", WHY: "string"}
"""Column -> type of those that tell, with json values in permissive mode, a value that does not fit from a tombstone: its bytes, and
why it does not fit.  Null where the value fits, or is null itself."""

ID_KEY = "replog.schema.id"
"""The metadata of the column `value` say by which schema it was made, so that all that Spark plans later is of the same one."""

_VALUE_FORMATS = {("value", "string"), ("value", "binary")}
_MAY_BE_NULL = frozenset({"key", "value", HEADERS, *MISFIT_COLUMNS})


class RegisteredType(Struct, frozen=True):
    """What the values of a registry are read as.

    Attributes:
        url: Where the registry is, which has the schemas that they were written with.
        schema: The schema whose values they become.
        type: The type of the column `value`, as Spark writes types to json.
    """

    url: str
    schema: Schema
    type: Any


class SchemaField(Protocol):
    """What is used of Spark's `StructField`."""

    name: str
    dataType: Any  # noqa: N815 -- Spark's name
    nullable: bool


class Column(Struct, frozen=True):
    """A column to hand over.

    Attributes:
        name: One of COLUMN_TYPES or MISFIT_COLUMNS.
        is_nullable: Whether the schema says that it may be null: Spark wants to find it in the Arrow schema.
        is_text: Whether it is a string where COLUMN_TYPES says binary.
        shape: What values of json are read as; None: they are handed over as they are.
        is_strict: Whether a value that is not of that shape is an error; otherwise it is null.
        registered: What values with the id of a schema before them are read as; None: there is none before them.
    """

    name: str
    is_nullable: bool = True
    is_text: bool = False
    shape: Shape | None = None
    is_strict: bool = True
    registered: RegisteredType | None = None


def schema_ddl(*, include_headers: bool, value_type: str = "binary") -> str:
    """Returns the schema when the user gives none, as DDL.

    Raises:
        ConfigError: The values are json, and only the user knows what is in them.
    """
    if value_type == "json":
        raise ConfigError(
            "schema",
            None,
            'valueFormat "json" needs a schema that says what is in the values: give one, for example '
            f'.schema("{EXAMPLE}, partition int, offset bigint")',
        )
    types = COLUMN_TYPES | {"value": value_type}
    return ", ".join(f"{name} {kind}" for name, kind in types.items() if name != HEADERS or include_headers)


def schema_with(value: Any, schema_id: int, *, include_headers: bool, is_strict: bool) -> dict[str, Any]:
    """Returns the schema when the user gives none and a registry has that of the values, as Spark writes it to json.

    Args:
        value: The type of the column `value`.
        schema_id: The id of the schema that it is made of, which comes back with the column.
        include_headers: Whether there is a column `headers`.
        is_strict: Whether values that do not fit are errors; otherwise there are columns that tell of them.
    """
    names = [*COLUMN_TYPES, *(() if is_strict else MISFIT_COLUMNS)]
    types = {name: _JSON_NAMES.get(kind, kind) for name, kind in (COLUMN_TYPES | MISFIT_COLUMNS).items()} | {
        "value": value
    }
    fields = [
        _field(name, types[name]) | ({"metadata": {ID_KEY: schema_id}} if name == "value" else {})
        for name in names
        if name != HEADERS or include_headers
    ]
    return {"type": "struct", "fields": fields}


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


_JSON_NAMES: dict[str, Any] = {
    "int": "integer",
    "bigint": "long",
    COLUMN_TYPES[HEADERS]: {
        "type": "array",
        "elementType": {"type": "struct", "fields": [_field("key", "string"), _field("value", "binary")]},
        "containsNull": True,
    },
}
"""Types as COLUMN_TYPES has them -> as Spark writes them to json, where these differ."""


def columns_of(
    schema: Sequence[SchemaField],
    *,
    value_type: str = "binary",
    is_strict: bool = True,
    registered: RegisteredType | None = None,
) -> tuple[Column, ...]:
    """Returns the columns of a Spark schema, which may be any selection of ours in any order.

    Args:
        schema: A `StructType`, iterated.
        value_type: The type of the column `value`: "binary", "string", or "json" for a struct that is read from json.
        is_strict: Whether a value of json that does not fit is an error; otherwise it is null.
        registered: What the values are read as where a registry has their schemas.

    Raises:
        ConfigError: It names no column, one that we do not have, one twice, with another type, or as never null where it may be.
    """
    if not schema:  # a record batch of Arrow without columns has no rows either
        raise ConfigError("schema", None, 'the schema names no column: name one, for example "offset bigint"')
    names = [field.name for field in schema]
    for field in schema:
        if names.count(field.name) > 1:
            raise ConfigError("schema", field.name, f'the schema names column "{field.name}" twice')
        if field.name in MISFIT_COLUMNS and (value_type not in STRUCTURED or is_strict or "value" not in names):
            raise ConfigError(
                "schema",
                field.name,
                f'column "{field.name}" tells of values that do not fit: name the column "value" beside it, and set the '
                'options valueFormat to "json", "avro" or "protobuf" and valueMode to "permissive", or leave it out',
            )
    return tuple(_column(field, value_type, is_strict, registered) for field in schema)


def _column(field: SchemaField, value_type: str, is_strict: bool, registered: RegisteredType | None) -> Column:
    if field.name == "value" and value_type in STRUCTURED:
        kind = field.dataType.jsonValue()
        if registered is not None and value_type != "json" and kind != registered.type:
            raise ConfigError(
                "schema",
                field.dataType.simpleString()[:200],
                f'column "value" is another type than that of the schema in the registry ({str(registered.type)[:500]}): leave the '
                "schema out, or select from what is read",
            )
        shape = value_shape(kind) if value_type == "json" else None
        _check_nulls(field)
        return Column(field.name, field.nullable, shape=shape, is_strict=is_strict, registered=registered)
    _check(field, COLUMN_TYPES | MISFIT_COLUMNS | {"value": value_type})
    return Column(field.name, field.nullable, is_text=field.name == "value" and value_type == "string")


def _check(field: SchemaField, types: Mapping[str, str]) -> None:
    expected = types.get(field.name)
    if expected is None:
        close = difflib.get_close_matches(field.name.lower(), [name.lower() for name in types], n=1)
        matches = [name for name in types if close and name.lower() == close[0]]
        advice = f'Did you mean "{matches[0]}"?' if matches else f"Columns are: {', '.join(COLUMN_TYPES)}."
        raise ConfigError("schema", field.name, f'format replog has no column "{field.name}". {advice}')
    actual = field.dataType.simpleString()
    if actual != expected:
        option = f', or set the option valueFormat to "{actual}"' if (field.name, actual) in _VALUE_FORMATS else ""
        if field.name == "value" and actual.startswith("struct<"):
            raise ConfigError(
                "schema",
                actual[:200],
                f'column "value" is {expected}: set the option valueFormat to "json" to read structs from values of json',
            )
        raise ConfigError(
            "schema",
            actual,
            f'column "{field.name}" is {expected}, not {actual}: name it so and cast it after the read, '
            f'for example `.selectExpr("CAST({field.name} AS {actual})")`{option}',
        )
    _check_nulls(field)


def _check_nulls(field: SchemaField) -> None:
    if (not field.nullable and field.name in _MAY_BE_NULL) or _has_not_null(field.dataType.jsonValue()):
        raise ConfigError("schema", field.name, f'column "{field.name}" may be null: leave NOT NULL out')


def _has_not_null(kind: Any) -> bool:
    """Whether a part of a nested type may not be null.  `kind` is a type as Spark writes it to json."""
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "array":
        return not kind["containsNull"] or _has_not_null(kind["elementType"])
    if kind["type"] == "map":
        return not kind["valueContainsNull"] or _has_not_null(kind["valueType"])
    return any(not part["nullable"] or _has_not_null(part["type"]) for part in kind["fields"])
