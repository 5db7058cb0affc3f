"""Schemas of a registry as types of a column, and values that no column can hold."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from replog.codecs.plain_values import Schema
from replog.errors import ConfigError, InvalidRecordError
from replog.spark import registry_values
from replog.spark.options import parse_read_options
from replog.spark.registry_types import value_type
from replog.spark.registry_values import Misfits, RowValues
from replog.spark.schema import RegisteredType

BASE = {"bootstrap.servers": "h:1", "subscribe": "t"}
URL = {"schema.registry.url": "http://h:8081"}


def shown(kind: Any) -> str:
    """A type as short text."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            return "{" + ",".join(f"{each['name']}:{shown(each['type'])}" for each in kind["fields"]) + "}"
        case "array":
            return f"[{shown(kind['elementType'])}]"
    return f"<{shown(kind['keyType'])},{shown(kind['valueType'])}>"


def record(*fields: Any, name: str = "R") -> Any:
    listed = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(fields)]
    return {"type": "record", "name": name, "fields": listed}


IN = record("int", name="In")
AVRO = [
    ("string", "string"),
    (record("int", "bytes", ["null", "float"], ["int", "null", "long"]), "{f0:integer,f1:binary,f2:float,f3:long}"),
    (record(IN, {"type": "array", "items": "In"}), "{f0:{f0:integer},f1:[{f0:integer}]}"),
    (record({"type": "map", "values": {"type": "enum", "name": "E", "symbols": ["A"]}}), "{f0:<string,string>}"),
    (record({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "local-timestamp-micros"}), "{f0:date,f1:timestamp_ntz}"),
]  # fmt: skip
NO_AVRO = [
    (record(["int", "string"]), "a union of several types"),
    (record(["null", "R"]), "R has itself in it"),
    (record({"type": "int", "logicalType": "time-millis"}), "which Spark does not have"),
    (record(), "an object without fields"),
]
NO_JSON = [
    ({"type": "object", "properties": {"a": {}}}, "several types"),
    ({"type": ["string", "integer"]}, "several types"),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "alternatives of several types"),
    ({"$ref": "#"}, "has itself in it"),
    ({"type": "array"}, "allows anything"),
]


@pytest.mark.parametrize(("schema", "expected"), AVRO)
def test_avro_as_a_type(schema: Any, expected: str) -> None:
    assert shown(value_type(Schema("AVRO", json.dumps(schema)))) == expected


@pytest.mark.parametrize(
    ("kind", "schema", "said"), [*(("AVRO", *each) for each in NO_AVRO), *(("JSON", *each) for each in NO_JSON)]
)
def test_what_is_no_type_of_a_column(kind: str, schema: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        value_type(Schema(kind, json.dumps(schema)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"valueFormat": "avro"}, 'give the option "schema.registry.url"'),
        ({"valueFormat": "json", "schema.registry.subject": "s"}, 'give the option "schema.registry.url"'),
        ({"valueFormat": "string", **URL}, "needs no schema"),
        ({"valueFormat": "avro", "schema.registry.url": "h:8081"}, "give a url"),
        ({"valueFormat": "avro", "subscribe": "a,b", **URL}, 'give the option "schema.registry.subject"'),
    ],
)
def test_options_that_do_not_fit_together(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_read_options(BASE | options)


def test_the_subject_is_that_of_the_topic_or_the_one_that_is_named() -> None:
    for more, expected in (({}, "t-value"), ({"schema.registry.subject": "s"}, "s")):
        registry = parse_read_options(BASE | URL | {"valueFormat": "avro"} | more).registry
        assert registry is not None
        assert registry.subject == expected


class Known:
    """A registry that has one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def schema(self, _: int) -> Schema:
        return self._schema


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_value_that_no_column_can_hold_is_told_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, is_strict: bool
) -> None:
    """A decimal of more digits than the schema says: fastavro reads it, Arrow cannot hold it."""
    text = '{"type":"bytes","logicalType":"decimal","precision":2,"scale":0}'
    schema = Schema("AVRO", text)
    monkeypatch.setattr(registry_values, "registry_at", lambda _: Known(schema))
    values = [b"\0\0\0\0\1\2\x07", b"\0\0\0\0\1\4\x7f\xff", b"\0\0\0\0\1\2\x09", None, b"\0\0\0\0\1"]
    out = pa.schema([("value", pa.decimal128(2, 0)), ("_why", pa.string()), ("offset", pa.int64())])
    registered = RegisteredType("http://h", schema, value_type(schema))
    batch = pa.record_batch({"value": pa.array(values, pa.binary()), "offset": pa.array(range(5), pa.int64())})
    decoded = RowValues(registered, Misfits(out, "t-0", is_strict)).decoded(batch)
    if is_strict:
        assert next(decoded).to_pydict() == {"value": [7], "_why": [None], "offset": [0]}
        with pytest.raises(
            InvalidRecordError, match="t-0: the value at offset 1 cannot be read: it does not fit the column"
        ):
            next(decoded)
        return
    (told,) = decoded
    assert told.column("value").to_pylist() == [7, None, 9, None, None]
    assert [why and why.partition(":")[0] for why in told.column("_why").to_pylist()] == [
        None, "it does not fit the column", None, None, "EOFError",
    ]  # fmt: skip
