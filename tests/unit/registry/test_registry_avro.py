"""Which schemas of Avro read one another, and that those that do really do: fastavro reads a value of each."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one

from replog.registry.formats import avro
from replog.registry.formats.avro import avro_problems, parse_avro
from replog.registry.formats.problems import Undecided
from replog.registry.model import RegistryRefusedError


def record(*fields: Any, name: str = "R", **more: Any) -> Any:
    return {
        "type": "record",
        "name": name,
        "fields": [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields],
        **more,
    }


X = ("x", "int")
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
TREE = record(X, ("next", ["null", "R"]))

READS = [  # reader, writer
    ("int", "int"),
    ("long", "int"),
    ("double", "int"),
    ("double", "float"),
    ("bytes", "string"),
    ("string", "bytes"),
    (["null", "long"], "int"),
    (["null", "string"], ["string", "null"]),
    ("string", ["string"]),
    (record(X), record(X, ("y", "string"))),
    (record(X, {"name": "y", "type": "string", "default": ""}), record(X)),
    (record({"name": "new", "type": "long", "aliases": ["x"]}), record(X)),
    (record(X, name="b.R"), record(X, name="a.R")),
    (record(X, name="New", aliases=["R"]), record(X)),
    (ENUM | {"symbols": ["C", "B", "A"]}, ENUM),
    (ENUM | {"symbols": ["B"], "default": "B"}, ENUM),
    (FIXED, FIXED),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
    (TREE, TREE),
    (DECIMAL, DECIMAL),
    ({"type": "long", "logicalType": "timestamp-millis"}, "long"),
]
DOES_NOT = [
    ("int", "long", "/: the reader has int, the writer long"),
    ("string", "int", "the reader has string"),
    ("string", ["null", "string"], "the writer null"),
    (["null", "int"], "string", "no branch of the reader's union takes string"),
    (record(X, ("y", "string")), record(X), "/y: the reader has no default"),
    (record(X, name="New"), record(X), "the reader's name is New, the writer's R"),
    (ENUM | {"symbols": ["B"]}, ENUM, "the reader's enum lacks A"),
    (FIXED | {"size": 5}, FIXED, "the reader's size is 5, the writer's 4"),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "/items/"),
    (record(("a", record(X, ("y", "int"), name="In"))), record(("a", record(X, name="In"))), "/a/y"),
    (DECIMAL | {"scale": 1}, DECIMAL, r"precision and scale \(4, 1\)"),
    (record(("x", "string"), ("next", ["null", "R"])), TREE, "/x/"),
    # a branch that does not fit leaves nothing behind that makes the next one fit
    (["null", record(("x", "string"), name="R")], record(X), "no branch"),
]


@pytest.mark.parametrize(("reader", "writer"), READS)
def test_a_reader_that_is_said_to_read_does(reader: Any, writer: Any) -> None:
    assert avro_problems(*(parse_avro(json.dumps(each), ()) for each in (reader, writer))) == []
    if writer is not TREE and "E" not in str(writer.get("name") if isinstance(writer, dict) else ""):
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(writer), generate_one(writer))
        data.seek(0)
        if reader != "string" or writer != "bytes":  # random bytes are no text
            fastavro.schemaless_reader(data, fastavro.parse_schema(writer), fastavro.parse_schema(reader))


@pytest.mark.parametrize(("reader", "writer", "said"), DOES_NOT)
def test_why_a_reader_does_not(reader: Any, writer: Any, said: str) -> None:
    (problem,) = avro_problems(*(parse_avro(json.dumps(each), ()) for each in (reader, writer)))[:1]
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(problem)


def test_names_of_other_subjects_are_known() -> None:
    using = parse_avro(
        '{"type":"record","name":"U","fields":[{"name":"r","type":"R"}]}', [("R", json.dumps(record(X)))]
    )
    changed = parse_avro(
        '{"type":"record","name":"U","fields":[{"name":"r","type":"R"}]}', [("R", json.dumps(record(("x", "long"))))]
    )
    assert (avro_problems(changed, using), len(avro_problems(using, changed))) == ([], 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '"no-type"',
        '{"type":"record"}',
        '{"type":"record","name":"U","fields":[{"name":"r","type":"R"}]}',
        "[" * 100_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RegistryRefusedError, match="Invalid schema"):
        parse_avro(text, ())


def test_a_comparison_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "STEPS_MAX", 1_000)
    records = [record(X, name=f"A{number}") for number in range(50)]
    writer, reader = (parse_avro(json.dumps(some), ()) for some in (records, records[::-1]))
    with pytest.raises(Undecided, match="too large"):
        avro_problems(reader, writer)
