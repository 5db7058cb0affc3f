"""What schemas become with `normalize=true`: one text for all spellings of a schema, with all that it says."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from replog.registry.formats.table import ParsableSchema, normal_text, parsed
from replog.registry.model import RegistryRefusedError, SchemaKind

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "An order.",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["B", "A"]}, "default": "A"},
        {"name": "others", "type": ["null", "Order", {"type": "array", "items": "Kind"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "order": "descending"},
    ],
}
AGAIN: dict[str, Any] = {
    "fields": [
        {"type": {"type": "long"}, "name": "id", "order": "ascending"},
        {"default": "A", "type": {"symbols": ["B", "A"], "name": "shop.Kind", "type": "enum"}, "name": "kind"},
        {"name": "others", "type": [{"type": "null"}, "shop.Order", {"items": "shop.Kind", "type": "array"}]},
        {"order": "descending", "name": "at", "type": {"logicalType": "timestamp-millis", "type": "long"}},
    ],
    "doc": "An order.",
    "name": "shop.Order",
    "type": "record",
}


def normal(schema: object, kind: SchemaKind = SchemaKind.AVRO) -> str:
    return normal_text(ParsableSchema(kind, schema if isinstance(schema, str) else json.dumps(schema), ()))


def test_spellings_of_one_avro_schema_have_one_text_that_says_all_it_says() -> None:
    text = normal(ORDER)
    assert text == normal(AGAIN) == normal(text)
    assert json.loads(text) == ORDER
    both = [parsed(ParsableSchema(SchemaKind.AVRO, each, ())).named for each in (text, json.dumps(ORDER))]
    assert sorted(both[0]) == sorted(both[1]) == ["shop.Kind", "shop.Order"]


def test_avro_schemas_that_differ_stay_apart() -> None:
    first, second = ORDER["fields"][:2]
    enum = {"type": "enum", "name": "other.Kind", "symbols": ["B", "A"]}
    fields = (
        [second, first],  # another order on the wire
        [first, second | {"default": "B"}],
        [first, second | {"type": enum}],
        [first, second | {"doc": "Which."}],
    )
    assert len({normal(ORDER | {"fields": each}) for each in ([first, second], *fields)}) == 5


def test_a_name_is_no_longer_and_none_is_taken_for_a_primitive() -> None:
    """512 KiB of short references to a long namespace must not become gigabytes."""
    long = "n" * 1_000
    field = {"name": "a", "type": {"type": "fixed", "name": "F", "size": 1, "aliases": [f"{long}.G", "string"]}}
    fields = [field, *({"name": f"a{n}", "type": "F"} for n in range(200))]
    schema = {"type": "record", "name": "R", "namespace": long, "fields": fields}
    assert len(normal(schema)) <= len(json.dumps(schema))
    named = {"type": "fixed", "name": "n.string", "size": 1}
    outer = {
        "type": "record",
        "name": "n.R",
        "fields": [{"name": "a", "type": named}, {"name": "b", "type": "n.string"}],
    }
    assert json.loads(normal(outer))["fields"][1]["type"] == "n.string"


def test_an_avro_schema_nested_too_deeply_or_none_is_refused() -> None:
    for schema in ('{"type":' * 5_000 + '"int"' + "}" * 5_000, '{"type":"record"}', "[1]"):
        with pytest.raises(RegistryRefusedError, match="Invalid schema"):
            normal(schema)


def test_json_schemas_do_not_depend_on_the_order_of_members() -> None:
    one = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [2, 1]}}}
    other = {"properties": {"a": {"enum": [2, 1]}, "b": {"type": "string"}}, "type": "object"}
    assert normal(one, SchemaKind.JSON) == normal(other, SchemaKind.JSON)
    assert json.loads(normal(one, SchemaKind.JSON)) == one
    assert normal({"enum": [1, 2]}, SchemaKind.JSON) != normal({"enum": [2, 1]}, SchemaKind.JSON)


def test_text_and_descriptors_of_one_proto_file_are_one() -> None:
    pytest.importorskip("grpc_tools")
    text = 'syntax = "proto3";  // a comment\npackage p;\nmessage M { string a_name = 1; message N { int32 b2_c = 1; } N n = 2; }\n'
    first = normal(text, SchemaKind.PROTOBUF)
    assert first == normal(text.replace("  // a comment", "").replace("{ string", "{\n  string"), SchemaKind.PROTOBUF)
    file = FileDescriptorProto.FromString(base64.b64decode(first))
    file.name = "theirs.proto"
    file.message_type[0].field[0].json_name = "aName"
    assert normal(base64.b64encode(file.SerializeToString()).decode(), SchemaKind.PROTOBUF) == first
    file.message_type[0].field[0].json_name = "other"
    assert normal(base64.b64encode(file.SerializeToString()).decode(), SchemaKind.PROTOBUF) != first
