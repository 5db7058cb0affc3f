"""Which messages are understood by which, as text and as descriptors."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf import timestamp_pb2

from replog.registry.formats.protobuf import ProtobufSchema, parse_protobuf, protobuf_problems, serialized
from replog.registry.model import RegistryRefusedError

pytest.importorskip("grpc_tools", reason="protoc, which reads the schemas below, comes with the extra registry")

HEAD = 'syntax = "proto3"; package shop; '
ORDER = "message Order { string table = 1; int32 total = 2; oneof by { string cash = 3; } repeated string tags = 4; } message Refund {}"
CHANGES = [  # what is put into the place of what, and why the new one does not read the old one
    ("int32 total", "int64 sum", ""),
    ("int32 total = 2;", "", ""),
    ("string table = 1;", "string table = 1; Refund refund = 9;", ""),
    ("string table", "bytes table", ""),
    ("int32 total", "string total", "the reader has string, the writer int32"),
    ("int32 total", "sint32 total", "the reader has sint32, the writer int32"),
    ("int32 total", "repeated int32 total", "repeated on one side only"),
    ("int32 total", "Refund total", "the reader has message"),
    ("message Refund {}", "", "Refund: the reader lacks this message"),
    ("package shop", "package store", "the reader's package is 'store'"),
]


def parse(text: str) -> ProtobufSchema:
    return parse_protobuf(text, ())


@pytest.fixture(scope="module")
def order() -> ProtobufSchema:
    return parse(HEAD + ORDER)


@pytest.mark.parametrize(("old", "new", "said"), CHANGES)
def test_changes(order: ProtobufSchema, old: str, new: str, said: str) -> None:
    problems = protobuf_problems(parse((HEAD + ORDER).replace(old, new)), order)
    assert (said in problems[0]) if said else (problems == [])


def test_fields_that_could_be_set_together_are_not_put_into_a_oneof(order: ProtobufSchema) -> None:
    text = HEAD + "message Order { oneof by { string table = 1; int32 total = 2; string cash = 3; } } message Refund {}"
    assert protobuf_problems(parse(text), order) == [
        "Order.by: several fields that could be set together are in this oneof"
    ]


def test_a_descriptor_and_its_imports_are_a_schema(order: ProtobufSchema) -> None:
    again = parse(serialized(order))
    assert protobuf_problems(again, order) == []
    using = parse_protobuf(HEAD + 'import "o.proto"; message Use { Order order = 1; }', [("o.proto", HEAD + ORDER)])
    same = parse_protobuf(serialized(using), [("o.proto", serialized(order))])
    assert protobuf_problems(same, using) == []
    assert parse(base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode()).file.package == "google.protobuf"
    with pytest.raises(RegistryRefusedError, match="Invalid schema of PROTOBUF"):
        parse(serialized(using))  # what it imports is not there


@pytest.mark.parametrize("name", ["../o.proto", "/o.proto"])
def test_a_name_leads_nowhere_else(name: str) -> None:
    with pytest.raises(RegistryRefusedError, match="no name of a file"):
        parse_protobuf(HEAD, [(name, HEAD)])


def test_what_is_no_schema_is_refused_and_text_needs_protoc(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegistryRefusedError, match=r"schema\.proto:1:1"):
        parse("no proto")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RegistryRefusedError, match="pip install grpcio-tools"):
        parse(HEAD + ORDER)


def test_no_name_of_an_import_makes_python_of_a_schema(tmp_path: Path) -> None:
    """Trap: a schema may be a program of Python, too, and the name under which it is imported one of a module that protoc's Python loads."""
    mark = tmp_path / "ran"
    both = f'syntax = "proto3" // (__import__("pathlib").Path({str(mark)!r}).touch(), """\n; message M {{}}\n// """)\n'
    assert [each.name for each in parse(both).file.message_type] == ["M"]
    for name in ("grpc_tools/__init__.py", "runpy.py", "site.py", "sitecustomize.py", "out"):
        parse_protobuf(HEAD + ORDER, [(name, both)])
    assert not mark.exists()


@pytest.mark.parametrize("name", ["", ".", "/etc/x.proto", "../x.proto", "a\0b", "x" * 5_000])
def test_a_name_of_an_import_that_no_file_has_is_refused(name: str) -> None:
    with pytest.raises(RegistryRefusedError, match="Invalid schema of PROTOBUF"):
        parse_protobuf(HEAD + ORDER, [(name, HEAD)])


def test_an_import_has_the_name_of_its_own_choice() -> None:
    schema = parse_protobuf(
        HEAD + 'import "schema/order.proto"; message M { Order order = 1; }', [("schema/order.proto", HEAD + ORDER)]
    )
    assert [each.name for each in schema.imports] == ["schema/order.proto"]
