"""Codecs of a registry beside those of Confluent's client, with a registry of our own: each reads what the other has written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto

import replog
from replog.client import Admin, Producer
from replog.codecs.plain_values import Reference, Schema
from replog.codecs.protobuf_binary import message_class, pool_of
from replog.codecs.registry import SchemaRegistry
from replog.registry import RegistryServer
from tests.cluster.cli_runs import Done
from tests.cluster.cli_runs import replog as command

INT32, STRING, MESSAGE, OPTIONAL = 5, 9, 11, 1
FIELD_X = {"name": "x", "type": "int"}
A, B = (
    json.dumps({"type": "record", "name": "R", "fields": fields})
    for fields in ([FIELD_X], [FIELD_X, {"name": "y", "type": "string", "default": "-"}])
)
JSON_SCHEMA = json.dumps(
    {"title": "R", "type": "object", "properties": {"x": {"type": "integer", "minimum": 0}}, "required": ["x"]}
)


def proto(name: str, *messages: dict[str, Any], imports: tuple[str, ...] = ()) -> FileDescriptorProto:
    return FileDescriptorProto(name=name, package="shop", syntax="proto3", dependency=imports, message_type=messages)


def field(name: str, number: int, kind: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "number": number, "type": kind, "label": OPTIONAL, **more}


MONEY = proto("money.proto", {"name": "Money", "field": [field("cents", 1, INT32)]})
ITEM = {"name": "Item", "field": [field("price", 1, MESSAGE, type_name=".shop.Money"), field("name", 2, STRING)]}
ORDER = proto(
    "order.proto",
    {"name": "Other"},
    {"name": "Order", "nested_type": [ITEM]},
    imports=("money.proto", "google/protobuf/timestamp.proto"),
)
Item: Any = message_class(pool_of([MONEY, ORDER]), "shop.Order.Item")


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with replog.embedded() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def url(servers: str) -> AsyncIterator[str]:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        yield server.url


def both_ways(ours: Any, serialize: Any, deserialize: Any, topic: str, mine: Any, theirs: Any) -> None:
    """What one side writes the other one reads; `mine` and `theirs` are the value as each has it."""
    context = SerializationContext(topic, MessageField.VALUE)
    data = serialize(theirs, context)
    assert ours.decode(data) == mine
    assert ours.encode(mine) == data, "the same id, the same bytes"
    assert deserialize(ours.encode(mine), context) == theirs


def use_avro(url: str, client: SchemaRegistryClient) -> None:
    registry = SchemaRegistry(url)
    both_ways(
        registry.avro(A, subject="a-value"),
        AvroSerializer(client, A),
        AvroDeserializer(client, A),
        "a",
        {"x": 7},
        {"x": 7},
    )
    old = registry.avro(A, subject="a-value").encode({"x": 7})
    assert registry.avro(B, subject="a-value").decode(old) == {"x": 7, "y": "-"}
    registry.avro(B, subject="a-value").encode({"x": 7, "y": "z"})
    plain = registry.plain(subject="a-value")
    assert [plain.decode(each) for each in (old, plain.encode({"x": 8, "y": "w"}))] == [{"x": 7}, {"x": 8, "y": "w"}]
    uses = Schema(
        "AVRO", '{"type":"record","name":"U","fields":[{"name":"r","type":"R"}]}', (Reference("R", "a-value", 1),)
    )
    data = b"\0" + registry.register("u-value", uses).to_bytes(4, "big") + b"\x0e"
    assert registry.plain().decode(data) == {"r": {"x": 7}}


def use_json(url: str, client: SchemaRegistryClient) -> None:
    ours = SchemaRegistry(url).json_schema(JSON_SCHEMA, subject="j-value", validate=True)
    context = SerializationContext("j", MessageField.VALUE)
    data = JSONSerializer(JSON_SCHEMA, client)({"x": 7}, context)
    assert (ours.decode(data), json.loads(data[5:]), ours.encode({"x": 7})[:5]) == ({"x": 7}, {"x": 7}, data[:5])
    assert JSONDeserializer(JSON_SCHEMA, schema_registry_client=client)(ours.encode({"x": 7}), context) == {"x": 7}
    for wrong in (lambda: ours.encode({"x": -1}), lambda: ours.decode(data[:5] + b'{"x":-1}')):
        with pytest.raises(ValueError, match=r"\$\.x: -1 is less than"):
            wrong()
    loose = SchemaRegistry(url).json_schema(JSON_SCHEMA, subject="j-value")
    assert loose.decode(loose.encode({"x": -1})) == {"x": -1}


def use_protobuf(url: str, client: SchemaRegistryClient) -> None:
    registry, conf = SchemaRegistry(url), {"use.deprecated.format": False}
    item = Item(name="n", price={"cents": 3})
    ours = registry.protobuf(Item, subject="p-value")
    both_ways(ours, ProtobufSerializer(Item, client, conf), ProtobufDeserializer(Item, conf, client), "p", item, item)
    assert ours.encode(item)[5:8] == b"\x04\x02\x00", "two indexes, 1 and 0"
    assert registry.plain().decode(ours.encode(item)) == {"name": "n", "price": {"cents": 3}}
    with pytest.raises(ValueError, match=r"a message shop\.Other, not shop\.Order\.Item"):
        ours.decode(ours.encode(item)[:5] + b"\0")
    pytest.importorskip("grpc_tools", reason="protoc, which reads text of .proto, comes with the extra registry")
    text = Schema("PROTOBUF", 'syntax = "proto3"; message T { int32 x = 1; }')
    data = b"\0" + registry.register("t-value", text).to_bytes(4, "big") + b"\0\x08\x07"
    assert registry.plain().decode(data) == {"x": 7}
    plain = registry.plain(subject="t-value")
    assert plain.encode({"x": 7}) == data
    with pytest.raises(ValueError, match="no field named"):
        plain.encode({"z": 7})


@pytest.mark.parametrize("use", [use_avro, use_json, use_protobuf])
async def test_what_one_side_writes_the_other_one_reads(url: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")

    def work() -> None:
        with SchemaRegistryClient({"url": url, "max.retries": 0}) as client:
            use(url, client)

    await asyncio.to_thread(work)


async def test_lines_become_values_of_the_last_schema_and_lines_again(
    servers: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")

    async def run(*arguments: str, stdin: str = "") -> Done:
        return await asyncio.to_thread(command, *arguments, "-b", servers, "--registry", url, stdin=stdin)

    async with Admin(servers) as admin:
        await admin.create_topic("r", 1)
    await asyncio.to_thread(SchemaRegistry(url).register, "r-value", Schema("AVRO", B))
    done = await run("produce", "r", stdin='{"x":1}\n{"x":2,"y":"z"}\n')
    assert (done.status, done.out) == (0, "2 records acknowledged\n"), done.err
    done = await run("produce", "r", stdin='{"x":"no"}\n')
    assert (done.status, "line 1 has a value that is none of the schema of r-value" in done.err) == (2, True), done.err
    async with Producer(servers) as producer:
        await producer.send_many("r", [None, b"no schema"])
    done = await run("consume", "r", "--format", "%o %v")
    assert done.out.splitlines() == ['0 {"x":1,"y":"-"}', '1 {"x":2,"y":"z"}', "2 "]
    assert (done.status, "r-0: the value at offset 3 is none of a schema" in done.err) == (1, True), done.err
