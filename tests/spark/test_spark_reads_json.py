"""Spark reads json values as structs: real Spark, real broker processes, and Spark's own `from_json` beside them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.spark_kit import Sent, SparkCluster

pytestmark = pytest.mark.spark

Read = Callable[..., Any]
FIELDS = {
    "id": "bigint", "small": "tinyint", "middle": "smallint", "number": "int", "ratio": "double", "single": "float", "city": "string",
    "ok": "boolean", "day": "date", "at": "timestamp", "price": "decimal(12, 3)", "tags": "array<string>",
    "counts": "map<string, int>", "deep": "struct<x: int, list: array<struct<y: double, z: map<string, date>>>>",
}  # fmt: skip


def struct_of(fields: dict[str, str]) -> str:
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in fields.items())}>"


def from_json(fields: dict[str, str], **options: str) -> str:
    ddl = ", ".join(f"{name} {kind}" for name, kind in fields.items())
    return f"from_json(CAST(value AS STRING), '{ddl}', map('mode', '{options.get('mode', 'PERMISSIVE')}')) AS value"


def text(rng: random.Random) -> str:
    return "".join(rng.choice('abcé中😀"\\/\n\t \u2028') for _ in range(rng.randrange(8)))


def a_date(rng: random.Random) -> str:
    return f"{rng.randint(1800, 2200)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def a_time(rng: random.Random) -> str:
    clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    fraction = rng.choice(["", ".5", ".123456", ".000001"])
    return f"{a_date(rng)}T{clock}{fraction}{rng.choice(['Z', '+05:30', '-11:00'])}"


def a_record(rng: random.Random) -> dict[str, Any]:
    """Something that fits `FIELDS`."""

    def number(bits: int) -> int:
        return rng.randint(-(1 << rng.randrange(bits)), (1 << rng.randrange(bits)) - 1)

    fields: dict[str, Any] = {
        "id": number(64),
        "small": number(8),
        "middle": number(16),
        "number": number(32),
        "ratio": rng.choice([rng.uniform(-1, 1), rng.uniform(-1e300, 1e300), rng.random() * 1e-310, number(60)]),
        "single": rng.uniform(-1000, 1000),
        "city": text(rng),
        "ok": rng.random() < 0.5,
        "day": a_date(rng),
        "at": a_time(rng),
        "price": rng.choice([number(30), round(rng.uniform(-1e6, 1e6), 3), rng.uniform(0, 10), f"{number(20)}.5"]),
        "tags": [rng.choice([None, text(rng)]) for _ in range(rng.randrange(4))],
        "counts": {text(rng): rng.choice([None, number(31)]) for _ in range(rng.randrange(3))},
        "deep": {"x": number(31), "list": [{"y": rng.random(), "z": {"": a_date(rng)}}, {}, None], "more": [1, {}]},
        "unknown": {"a": [text(rng), None, {"b": 1.5}]},
    }
    for name in rng.sample(list(fields), rng.randrange(6)):
        if rng.random() < 0.5:
            fields[name] = None
        else:
            del fields[name]
    items = list(fields.items())
    rng.shuffle(items)
    return dict(items)


def test_what_fits_is_what_from_json_makes_of_it(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: a job can leave `from_json` out and has the same rows, for every kind that is read."""
    rng = random.Random(7)
    values = [
        json.dumps(a_record(rng), ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1])).encode()
        for _ in range(400)
    ]
    values[5] = b'{"id": 1, "id": 2, "tags": ["a"], "tags": null, "counts": {"a": 1, "a": 2}}'
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, values)
    ours = read(topic, f"value {struct_of(FIELDS)}, offset bigint", valueFormat="json").orderBy("offset").collect()
    theirs = read(topic).selectExpr(from_json(FIELDS, mode="FAILFAST"), "offset")
    for found, expected in zip(ours, theirs.orderBy("offset").collect(), strict=True):
        assert found == expected
    assert len(ours) == len(values)


DIFFERENCES: list[tuple[bytes, Any, Any]] = [
    (b'{"id": 1, "city": 5}', None, (1, "5", None, None)),
    (b'{"id": 1, "city": {"a": [1.50]}}', None, (1, '{"a":[1.5]}', None, None)),
    (b'{"id": "1", "city": "x"}', None, (None, "x", None, None)),
    (b'{"id": 1, "ratio": "NaN"}', None, (1, None, float("nan"), None)),
    (b'{"id": 1, "at": 5}', None, (1, None, None, 5)),
    (b'{"id": 1, "at": "1970-01-01T00:00:05"}', None, (1, None, None, 5)),
    (b'{"id": 1} x', None, (1, None, None, None)),
    (b'{"id": 1}{"id": 2}', None, (1, None, None, None)),
    (b"[]", None, (None, None, None, None)),
    (b"null", None, (None, None, None, None)),
    (b"", None, None),
]


def test_what_from_json_takes_and_this_does_not(read: Read, spark_cluster: SparkCluster) -> None:
    """Goal: each difference that the manual tells is one, with the Spark that runs here."""
    topic = spark_cluster.topic()
    spark_cluster.send_values(topic, [value for value, _, _ in DIFFERENCES])
    fields = {name: FIELDS[name] for name in ("id", "city", "ratio", "at")}
    frame = read(topic, f"value {struct_of(fields)}, offset bigint", valueFormat="json", valueMode="permissive")
    assert [row.value for row in frame.orderBy("offset").collect()] == [ours for _, ours, _ in DIFFERENCES]
    seconds = "if(value is null, null, struct(value.id, value.city, value.ratio, unix_seconds(value.at))) AS value"
    theirs = read(topic).selectExpr(from_json(fields), "offset").selectExpr(seconds, "offset")
    found = [row.value and tuple(row.value) for row in theirs.orderBy("offset").collect()]
    assert repr(found) == repr([spark for _, _, spark in DIFFERENCES])


@pytest.fixture(scope="module")
def with_bad_ones(spark_cluster: SparkCluster) -> str:
    """A topic with a tombstone, a value that is no json and one that does not fit."""
    topic = spark_cluster.topic(partitions=2, retention_ms=-1)
    values = [b'{"id": 0, "offset": "x"}', None, b'{"id": 2', b'{"id": "3"}', b'{"id": 4}']
    spark_cluster.send(topic, [Sent(1, value) for value in values])
    return topic


def test_values_that_do_not_fit(read: Read, with_bad_ones: str) -> None:
    schema = "partition int, value struct<id: bigint>, offset bigint"
    permissive = read(with_bad_ones, schema, valueFormat="json", valueMode="permissive")
    rows = permissive.orderBy("offset").select("offset", "value.id").collect()
    assert [tuple(row) for row in rows] == [(0, 0), (1, None), (2, None), (3, None), (4, 4)]
    assert permissive.where("value IS NULL").count() == 3
    told = read(with_bad_ones, f"{schema}, _corrupt binary, _why string", valueFormat="json", valueMode="permissive")
    rows = told.where("_corrupt IS NOT NULL").orderBy("offset").selectExpr("offset", "CAST(_corrupt AS STRING)", "_why")
    assert [(row[0], row[1], row[2].partition(":")[0].partition(" (")[0]) for row in rows.collect()] == [
        (2, '{"id": 2', "is no json"), (3, '{"id": "3"}', "does not fit the schema"),
    ]  # fmt: skip
    with pytest.raises(Exception, match=f"{with_bad_ones}-1: the value at offset 2 is no json"):
        read(with_bad_ones, schema, valueFormat="json").collect()
    start = f'{{"{with_bad_ones}": {{"0": 0, "1": 3}}}}'
    with pytest.raises(
        Exception, match="the value at offset 3 does not fit the schema: 'id' is a string, not a number"
    ):
        read(with_bad_ones, schema, valueFormat="json", startingOffsets=start).collect()
    assert read(with_bad_ones, "offset bigint", valueFormat="json").count() == 5


def test_schemas_are_refused_in_time(read: Read, with_bad_ones: str) -> None:
    with pytest.raises(Exception, match="needs a schema that says what is in the values"):
        read(with_bad_ones, valueFormat="json")
    with pytest.raises(Exception, match=r"value\.id is binary, which"):
        read(with_bad_ones, "value struct<id: binary>", valueFormat="json").collect()


def test_a_stream_reads_them_too(spark: Any, spark_cluster: SparkCluster, with_bad_ones: str, tmp_path: Path) -> None:
    found: list[tuple[Any, ...]] = []
    reader = spark.readStream.format("replog").option("bootstrap.servers", spark_cluster.bootstrap_servers)
    options = {
        "subscribe": with_bad_ones,
        "startingOffsets": "earliest",
        "valueFormat": "json",
        "valueMode": "permissive",
    }
    frame = (
        reader.schema("value struct<id: bigint>, offset bigint").options(**options).load().select("value.id", "offset")
    )
    query = (
        frame.writeStream.foreachBatch(lambda batch, _number: found.extend(map(tuple, batch.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert sorted(found, key=lambda row: row[1]) == [(0, 0), (None, 1), (None, 2), (None, 3), (4, 4)]
