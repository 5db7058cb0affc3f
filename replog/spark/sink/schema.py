"""What columns may be written: names and types of Spark's Kafka sink, and `timestamp`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from replog.errors import ConfigError
from replog.spark.schema import HEADERS, SchemaField

ACCEPTED = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
"""Column -> types that it may have."""

_BY_BROKER = frozenset({"offset", "timestampType"})


def check_write_schema(schema: Sequence[SchemaField], topic: str | None) -> None:
    """Refuses what cannot be written.

    Args:
        schema: A `StructType`, iterated.
        topic: The topic of all rows; None: the column `topic` says it.

    Raises:
        ConfigError: A column is unknown, missing, there twice or of another type; it names the column and what is accepted.
    """
    names = [field.name for field in schema]
    for field in schema:
        if names.count(field.name) > 1:
            raise ConfigError("schema", field.name, f'the DataFrame has a column "{field.name}" twice')
        _check(field)
    if "value" not in names:
        raise ConfigError(
            "schema", None, f'there is no column "value", binary or string: name one so. Columns are {_listed()}'
        )
    if topic is None and "topic" not in names:
        raise ConfigError(
            "topic", None, 'nothing says which topic: give the option "topic", or a column "topic", string'
        )


def _check(field: SchemaField) -> None:
    accepted = ACCEPTED.get(field.name)
    actual = field.dataType.simpleString()
    if accepted is None:
        raise ConfigError("schema", field.name, f'column "{field.name}" cannot be written. {_advice(field.name)}')
    if actual not in accepted:
        expected = " or ".join(accepted)
        raise ConfigError(
            "schema", actual, f'column "{field.name}" is {actual}; {expected} is accepted: cast it before the write'
        )


def _advice(name: str) -> str:
    if name in _BY_BROKER:
        return f'Brokers assign it: leave it out with `.drop("{name}")`.'
    close = difflib.get_close_matches(name.lower(), ACCEPTED, n=1)
    return f'Did you mean "{close[0]}"?' if close else f"Columns are {_listed()}: select those."


def _listed() -> str:
    return ", ".join(ACCEPTED)
