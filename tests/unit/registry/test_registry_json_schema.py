"""Which schemas of JSON allow all that others do.  Each "no" has a witness: a value that the writer's allows and the reader's does not."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from replog.registry.formats.json_schema import json_problems, parse_json_schema
from replog.registry.formats.problems import Undecided
from replog.registry.model import RegistryRefusedError

INT, TEXT, ANY = {"type": "integer"}, {"type": "string"}, {}


def thing(properties: Any, required: Any = (), more: Any = ANY) -> Any:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": more}


NO_MORE: Any = False


CLOSED = thing({"a": INT}, ["a"], NO_MORE)
NODE = {
    "$ref": "#/$defs/N",
    "$defs": {"N": thing({"next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}, "a": INT})},
}

READS = [  # reader, writer
    ({"type": "number"}, INT),
    ({"type": ["string", "null"]}, TEXT),
    ({"anyOf": [TEXT, INT]}, INT),
    ({"oneOf": [TEXT, {"type": "null"}]}, {"oneOf": [{"type": "null"}, TEXT]}),
    ({"allOf": [INT, {"minimum": 1}]}, {"type": "integer", "minimum": 2}),
    (INT, {"allOf": [{"type": "integer"}, {"minimum": 1}]}),
    (ANY, thing({})),
    (thing({"a": INT}), thing({"a": INT, "b": TEXT})),
    (thing({"a": INT, "b": TEXT}, ["a"], NO_MORE), CLOSED),
    (thing({"a": INT}, ["a"], INT), thing({"a": INT, "b": INT}, ["a"], NO_MORE)),
    (thing({"a": INT}), thing({"a": INT}, ["a"])),
    ({"enum": [1, 2, 3]}, {"enum": [1, 2]}),
    (INT, {"const": 7}),
    ({"anyOf": [TEXT, INT]}, {"enum": ["a", 1]}),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 4, "pattern": "a"}),
    ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "a"}),
    ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": INT}),
    (NODE, NODE | {"title": "the same"}),
    (INT | {"title": "t", "default": 3}, INT),
]
DOES_NOT: list[tuple[Any, Any, Any]] = [  # and the witness
    (INT, {"type": "number"}, 1.5),
    (TEXT, {"type": ["string", "null"]}, None),
    ({"anyOf": [TEXT, INT]}, {"type": "boolean"}, True),
    (thing({"a": INT}, ["a"]), thing({"a": INT}), {}),
    (CLOSED, thing({"a": INT, "b": TEXT}, ["a"], NO_MORE), {"a": 1, "b": ""}),
    (CLOSED, thing({"a": INT}, ["a"]), {"a": 1, "b": 2}),
    (thing({"a": INT, "b": TEXT}), thing({"a": INT}), {"b": 1}),
    (thing({"a": TEXT}), thing({"a": INT}), {"a": 1}),
    ({"enum": [1, 2]}, {"enum": [1, 3]}, 3),
    ({"enum": [1]}, INT, 2),
    ({"type": "integer", "minimum": 3}, {"type": "integer", "minimum": 2}, 2),
    ({"type": "integer", "minimum": 3}, INT, 2),
    ({"type": "array", "items": TEXT}, {"type": "array"}, [1]),
    (NODE, json.loads(json.dumps(NODE).replace("integer", "string")), {"a": ""}),
    (False, INT, 1),
]


@pytest.mark.parametrize(("reader", "writer"), READS)
def test_a_reader_that_allows_all(reader: Any, writer: Any) -> None:
    assert json_problems(*(parse_json_schema(json.dumps(each), ()) for each in (reader, writer))) == []


@pytest.mark.parametrize(("reader", "writer", "witness"), DOES_NOT)
def test_a_reader_that_does_not(reader: Any, writer: Any, witness: Any) -> None:
    assert json_problems(*(parse_json_schema(json.dumps(each), ()) for each in (reader, writer)))
    jsonschema.validate(witness, writer)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(witness, reader)


@pytest.mark.parametrize(
    ("reader", "writer", "said"),
    [
        ({"not": INT}, TEXT, "the keyword not"),
        ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, "the keyword pattern"),
        ({"type": "array", "items": INT}, {"type": "array", "prefixItems": [INT]}, "items by place"),
        ({"oneOf": [INT, {"type": "number"}]}, INT, "several branches of one type"),
        ({"$ref": "#/nowhere"}, INT, "leads nowhere"),
        (thing({}, (), NO_MORE), thing({}, (), NO_MORE) | {"patternProperties": {"^x": INT}}, "patternProperties"),
        (INT | {"unevaluatedProperties": False}, INT | {"unevaluatedProperties": False}, "unevaluatedProp"),
    ],
)
def test_what_is_not_known_is_said(reader: Any, writer: Any, said: str) -> None:
    parsed = [parse_json_schema(json.dumps(each), ()) for each in (reader, writer | {"title": "another"})]
    with pytest.raises(Undecided, match=said):
        json_problems(*parsed)


def test_a_document_of_another_subject_is_followed() -> None:
    reader = parse_json_schema('{"$ref":"n.json"}', [("n.json", '{"type":"number"}')])
    writer = parse_json_schema('{"$ref":"n.json"}', [("n.json", '{"type":"integer"}')])
    assert (json_problems(reader, writer), len(json_problems(writer, reader))) == ([], 1)


@pytest.mark.parametrize("text", ["", "7", '{"type":"no"}', "[" * 100_000, '{"not":' * 5_000 + "{}" + "}" * 5_000])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RegistryRefusedError, match="Invalid schema"):
        parse_json_schema(text, ())
