"""Spark reads values whose schemas are in a registry, without a schema given: real Spark, real brokers, a registry of our own."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from replog.codecs.protobuf_binary import message_class, pool_of
from replog.codecs.registry import SchemaRegistry
from replog.registry import RegistryServer
from tests.spark.spark_kit import SparkCluster

pytestmark = pytest.mark.spark

Read = Callable[..., Any]
INT32, STRING, MESSAGE, UINT64 = 5, 9, 11, 4
AT = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def registry(spark_cluster: SparkCluster) -> Iterator[SchemaRegistry]:
    server = RegistryServer(spark_cluster.bootstrap_servers, listen="127.0.0.1:0")
    spark_cluster.run(server.__aenter__())
    try:
        yield SchemaRegistry(server.url)
    finally:
        spark_cluster.run(server.__aexit__(None, None, None))


def url(registry: SchemaRegistry) -> str:
    return registry._url


def avro(*fields: tuple[str, Any], **defaults: Any) -> str:
    listed = [
        {"name": name, "type": kind} | ({"default": defaults[name]} if name in defaults else {})
        for name, kind in fields
    ]
    return json.dumps({"type": "record", "name": "Ride", "fields": listed})


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
OLD = [
    ("id", "int"),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("price", ["null", PRICE]),
    ("tags", {"type": "array", "items": "string"}),
]
NEW = [
    ("id", "long"),
    *OLD[1:],
    ("more", {"type": "map", "values": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}}),
]


def test_avro_of_any_writer_becomes_the_last_schema(
    read: Read, spark_cluster: SparkCluster, registry: SchemaRegistry
) -> None:
    topic = spark_cluster.topic()
    subject = f"{topic}-value"
    old, new = registry.avro(avro(*OLD), subject=subject), registry.avro(avro(*NEW, more={}), subject=subject)
    a_ride = {"id": 1, "at": AT, "price": Decimal("1.50"), "tags": ["a"]}
    values = [
        old.encode(a_ride),
        None,
        b"\0\0\0\0\x09x",
        new.encode(a_ride | {"id": 1 << 40, "price": None, "more": {"m": {"x": 7}}}),
        old.encode(a_ride) + b"x",
    ]
    spark_cluster.send_values(topic, values)
    options = {"valueFormat": "avro", "schema.registry.url": url(registry)}
    frame = read(topic, valueMode="permissive", **options)
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,price:decimal(9,2),tags:array<string>,more:map<string,struct<x:int>>>"
    )
    rows = (
        frame.orderBy("offset")
        .selectExpr(
            "value.id", "unix_seconds(value.at)", "value.price", "value.tags", "value.more['m'].x", "_corrupt", "_why"
        )
        .collect()
    )
    seconds = int(AT.timestamp())
    assert [tuple(row)[:5] for row in rows] == [
        (1, seconds, Decimal("1.50"), ["a"], None), (None,) * 5, (None,) * 5, (1 << 40, seconds, None, ["a"], 7), (None,) * 5,
    ]  # fmt: skip
    assert [row._corrupt for row in rows] == [None, None, values[2], None, values[4]]
    assert ("404" in rows[2]._why, rows[4]._why) == (True, "1 bytes are left behind the value")
    with pytest.raises(Exception, match=f"{topic}-0: the value at offset 2 cannot be read"):
        read(topic, **options).collect()
    assert frame.select("offset").count() == read(topic, "offset bigint", **options).count() == 5
    with pytest.raises(Exception, match='set valueFormat to "avro"'):
        read(topic, valueFormat="json", **{"schema.registry.url": url(registry)})


def test_messages_are_structs(read: Read, spark_cluster: SparkCluster, registry: SchemaRegistry) -> None:
    topic = spark_cluster.topic()
    fields = [
        ("id", 1, INT32, {}),
        ("city", 2, STRING, {"proto3_optional": True, "oneof_index": 0}),
        ("big", 3, UINT64, {}),
        ("at", 4, MESSAGE, {"type_name": ".google.protobuf.Timestamp"}),
        ("legs", 5, MESSAGE, {"type_name": ".Leg", "label": 3}),
    ]
    leg = {"name": "Leg", "field": [{"name": "stop", "number": 1, "type": STRING, "label": 1}]}
    listed = [{"name": name, "number": number, "type": kind, "label": 1, **more} for name, number, kind, more in fields]
    file = FileDescriptorProto(
        name="ride.proto",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
        message_type=[{"name": "Ride", "field": listed, "oneof_decl": [{"name": "_city"}]}, leg],
    )
    kind: Any = message_class(pool_of([file]), "Ride")
    ride = kind(id=7, big=(1 << 64) - 1, legs=[{"stop": "Bern"}, {}])
    ride.at.FromDatetime(AT)
    codec = registry.protobuf(kind, subject=f"{topic}-value")
    data = codec.encode(ride)
    spark_cluster.send_values(topic, [data, codec.encode(kind(city="")), data[:5] + b"\2\2" + data[6:]])
    frame = read(topic, valueFormat="protobuf", valueMode="permissive", **{"schema.registry.url": url(registry)})
    rows = (
        frame.orderBy("offset")
        .selectExpr("value.id", "value.city", "value.big", "unix_seconds(value.at)", "value.legs.stop", "_why")
        .collect()
    )
    assert [tuple(row) for row in rows] == [
        (7, None, Decimal((1 << 64) - 1), int(AT.timestamp()), ["Bern", ""], None),
        (0, "", Decimal(0), None, [], None),
        (None, None, None, None, None, "it is a message Leg, not Ride"),
    ]  # fmt: skip


def test_json_is_read_in_bulk_behind_its_ids(read: Read, spark_cluster: SparkCluster, registry: SchemaRegistry) -> None:
    topic = spark_cluster.topic()
    properties = {
        "id": {"type": "integer"},
        "city": {"anyOf": [{"$ref": "#/$defs/City"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "number"}},
    }
    schema = json.dumps({"type": "object", "properties": properties, "$defs": {"City": {"type": "string"}}})
    codec = registry.json_schema(schema, subject=f"{topic}-value")
    good = [codec.encode({"id": number, "city": "Bern", "tags": [number]}) for number in range(3)]
    spark_cluster.send_values(topic, [good[0], b'{"id": 1}', good[1], codec.encode({"id": "x"}), None, good[2]])
    options = {"valueFormat": "json", "schema.registry.url": url(registry), "valueMode": "permissive"}
    frame = read(topic, **options)
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,city:string,tags:array<double>>"
    rows = frame.orderBy("offset").selectExpr("value.id", "CAST(_corrupt AS STRING)", "_why").collect()
    assert [row.id for row in rows] == [0, None, 1, None, None, 2]
    assert [row[1] for row in rows] == [None, '{"id": 1}', None, '{"id":"x"}', None, None]
    assert ("not with 0 and the id" in rows[1]._why, "'id' is a string" in rows[3]._why) == (True, True)
    given = read(topic, "value struct<tags: array<int>>, offset bigint", **options)
    assert given.orderBy("offset").selectExpr("value.tags[0]").collect()[2][0] == 1


def test_a_stream_goes_on_with_the_schema_that_it_began_with(
    spark: Any, spark_cluster: SparkCluster, registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic = spark_cluster.topic()
    subject = f"{topic}-value"
    first, second = (
        registry.avro(avro(*fields, more=""), subject=subject)
        for fields in ([("id", "int")], [("id", "int"), ("more", "string")])
    )
    values = [first.encode({"id": 1})]
    options = {
        "bootstrap.servers": spark_cluster.bootstrap_servers,
        "subscribe": topic,
        "valueFormat": "avro",
        "schema.registry.url": url(registry),
        "startingOffsets": "earliest",
    }
    frame = spark.readStream.format("replog").options(**options).load()
    spark_cluster.send_values(topic, [*values, second.encode({"id": 2, "more": "x"})])
    found: list[Any] = []
    sink = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.select("value").collect()))
    query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert [row.value.asDict() for row in found] == [{"id": 1}, {"id": 2}]
