"""Json values as structs: which schemas are taken, and what comes out of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from replog.client.ranges.offset_range import Encoded
from replog.errors import ConfigError, InvalidRecordError
from replog.records import encode_batch
from replog.records.arrow import bounded
from replog.spark import json_values
from replog.spark.arrow_batches import ArrowConverter, arrow_schema
from replog.spark.options import parse_read_options, parse_stream_options
from replog.spark.schema import columns_of
from replog.spark.source import ReplogDataSource

READ = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


def struct_of(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


EVERY_KIND = struct_of(
    a=BooleanType(), b=ByteType(), c=ShortType(), d=IntegerType(), e=LongType(), f=FloatType(), g=DoubleType(),
    h=StringType(), i=DateType(), j=TimestampType(), k=DecimalType(38, 18), l=ArrayType(struct_of(x=LongType())),
    m=MapType(StringType(), ArrayType(StringType())), n=struct_of(y=struct_of(z=DecimalType(5, 0))),
)  # fmt: skip
ID = struct_of(id=LongType())


def convert(fields: StructType, values: Sequence[bytes | None], *, is_strict: bool = True) -> list[pa.RecordBatch]:
    columns = columns_of(fields.fields, value_type="json", is_strict=is_strict)
    data = encode_batch([(1, b"k", value, ()) for value in values], base_offset=40)
    return list(ArrowConverter(columns, "rides", 3).convert(Encoded(0, data), end_offset=1000))


def test_the_arrow_schema_is_what_spark_checks_the_first_batch_against() -> None:
    schema = struct_of(offset=LongType(), value=EVERY_KIND, topic=StringType())
    assert arrow_schema(columns_of(schema.fields, value_type="json")).equals(to_arrow_schema(schema, timezone="UTC"))
    (batch,) = convert(schema, [b'{"n": {"y": {"z": 12}}, "m": {"o": ["p"]}, "k": 1.5}', None])
    batch.validate(full=True)
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    assert batch.column("value").is_null().to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BinaryType(), 'the column "value" is a struct of the fields to read'),
        (StringType(), "value struct<id: bigint, city: string>"),
        (StructType([]), 'the column "value" is a struct of the fields to read'),
        (struct_of(a=BinaryType()), "value.a is binary, which"),
        (struct_of(a=TimestampNTZType()), "value.a is timestamp_ntz, which"),
        (struct_of(a=StringType("UTF8_LCASE")), "value.a is a string with a collation"),
        (struct_of(a=ArrayType(struct_of(b=BinaryType()))), "value.a.element.b is binary"),
        (struct_of(a=MapType(LongType(), LongType())), "value.a is a map whose keys are not strings"),
        (StructType([StructField("a", LongType()), StructField("a", LongType())]), 'value has the field "a" twice'),
        (StructType([StructField("a", LongType(), nullable=False)]), "leave NOT NULL out"),
        (struct_of(a=ArrayType(LongType(), containsNull=False)), "leave NOT NULL out"),
        (struct_of(a=MapType(StringType(), LongType(), valueContainsNull=False)), "leave NOT NULL out"),
    ],
)
def test_refused(kind: DataType, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        columns_of([StructField("value", kind)], value_type="json")
    assert text in str(caught.value)


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    kind: DataType = LongType()
    for _ in range(200):
        kind = ArrayType(kind)
    with pytest.raises(ConfigError, match="nested deeper than 128"):
        columns_of([StructField("value", struct_of(a=kind))], value_type="json")


def test_fields_of_the_json_are_no_columns_of_their_own() -> None:
    """Goal: a misspelt column is refused, and `timestamp` in a schema is the record's, never one of its value's fields."""
    with pytest.raises(ConfigError, match='Did you mean "offset"'):
        columns_of(struct_of(Offset=LongType()).fields, value_type="json")
    with pytest.raises(ConfigError, match='set the option valueFormat to "json"'):
        columns_of(struct_of(value=ID).fields)
    schema = struct_of(timestamp=TimestampType(), value=struct_of(timestamp=LongType()))
    (batch,) = convert(schema, [b'{"timestamp": 7}'])
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1000]
    assert batch.column("value").to_pylist() == [{"timestamp": 7}]


def test_without_the_column_nothing_is_decoded() -> None:
    (batch,) = convert(struct_of(offset=LongType()), [b"no json"])
    assert batch.column("offset").to_pylist() == [40]


@pytest.mark.parametrize("schema", [struct_of(value=ID), struct_of(value=ID, offset=LongType())])
def test_a_value_that_does_not_fit_is_named_or_null(schema: StructType) -> None:
    values = [b'{"id": 1}', None, b'{"id": "x"}', b'{"id": 2}']
    with pytest.raises(InvalidRecordError) as caught:
        convert(schema, values)
    text = str(caught.value)
    assert text.startswith(
        "rides-3: the value at offset 42 does not fit the schema: 'id' is a string, not a number. Read with"
    )
    assert 'valueMode "permissive"' in text
    (batch,) = convert(schema, values, is_strict=False)
    assert batch.column("value").to_pylist() == [{"id": 1}, None, None, {"id": 2}]
    assert batch.schema.names == schema.names


MISFIT_SCHEMA = struct_of(_why=StringType(), offset=LongType(), value=ID, _corrupt=BinaryType())


def test_a_value_that_does_not_fit_is_told_from_a_tombstone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: in permissive mode both are null, and garbage would be taken for a deletion."""
    monkeypatch.setattr(json_values, "CELLS_TOGETHER_MAX", 3)
    values = [
        b'{"id": 1}',
        None,
        b'{"id": "x"}',
        b'{"id": 2}',
        b"\xff",
        b'{"id": 3}',
        None,
        b"",
        b'{"id": 4}',
        b'{"id": 5}',
    ]
    batches = convert(MISFIT_SCHEMA, values, is_strict=False)
    assert len(batches) > 2
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(to_arrow_schema(MISFIT_SCHEMA, timezone="UTC"))
    rows = {row["offset"] - 40: row for batch in batches for row in batch.to_pylist()}
    told = {number: (row["_corrupt"], row["_why"]) for number, row in rows.items() if row["_why"] is not None}
    assert told == {
        2: (b'{"id": "x"}', "does not fit the schema: 'id' is a string, not a number"),
        4: (b"\xff", "is not UTF-8"),
        7: (b"", "is no json (Expecting value: line 1 column 1 (char 0))"),
    }
    assert [number for number, row in rows.items() if row["value"] is None] == [1, 2, 4, 6, 7]
    assert all(rows[number]["_corrupt"] is None for number in rows.keys() - told)


@pytest.mark.parametrize(
    ("schema", "settings"),
    [
        (MISFIT_SCHEMA, {"is_strict": True}),
        (struct_of(_why=StringType()), {"is_strict": False}),
        (struct_of(value=BinaryType(), _corrupt=BinaryType()), {"value_type": "binary", "is_strict": False}),
    ],
)
def test_columns_about_misfits_are_refused_where_there_are_none(schema: StructType, settings: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match='set the options valueFormat to "json", "avro" or "protobuf" and valueMode to "permissive"'
    ):
        columns_of(schema.fields, **{"value_type": "json", **settings})


def test_columns_about_misfits_have_their_types() -> None:
    with pytest.raises(ConfigError, match='column "_corrupt" is binary, not string'):
        columns_of(struct_of(value=ID, _corrupt=StringType()).fields, value_type="json", is_strict=False)
    fields = [StructField("value", ID), StructField("_why", StringType(), nullable=False)]
    with pytest.raises(ConfigError, match='column "_why" may be null'):
        columns_of(fields, value_type="json", is_strict=False)


def test_what_comes_before_a_value_that_does_not_fit_comes() -> None:
    columns = columns_of(struct_of(value=ID).fields, value_type="json")
    data = encode_batch([(1, None, value, ()) for value in (b'{"id": 1}', b"{")])
    batches = ArrowConverter(columns, "rides", 0).convert(Encoded(0, data), end_offset=1000)
    assert next(batches).column("value").to_pylist() == [{"id": 1}]
    with pytest.raises(InvalidRecordError, match="rides-0: the value at offset 1 is no json"):
        next(batches)


def test_batches_are_bounded_and_rows_stay_beside_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "CELLS_TOGETHER_MAX", 20)
    monkeypatch.setattr(bounded, "BATCH_BYTES_MAX", 1000)
    schema = struct_of(offset=LongType(), value=ID, key=BinaryType())
    values = [None if number % 7 == 3 else b'{"id": %d}' % (40 + number) for number in range(200)]
    batches = convert(schema, values)
    assert len(batches) > 200 // 20
    assert max(batch.num_rows for batch in batches) <= 20
    found = [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in found] == list(range(40, 240))
    assert all(row["value"] is None or row["value"]["id"] == row["offset"] for row in found)
    assert sum(row["value"] is None for row in found) == sum(value is None for value in values)


def test_options() -> None:
    for parse in (parse_read_options, lambda options: parse_stream_options(options).read):
        plain = parse({**READ, "valueFormat": "json"})
        assert (plain.value_format, plain.is_strict_json) == ("json", True)
        assert not parse({**READ, "valueFormat": "JSON", "valueMode": "Permissive"}).is_strict_json
        with pytest.raises(ConfigError, match='give one of "failfast", "permissive"'):
            parse({**READ, "valueFormat": "json", "valueMode": "dropmalformed"})
        with pytest.raises(ConfigError, match='set valueFormat to "json", "avro" or "protobuf", or leave'):
            parse({**READ, "valueFormat": "string", "valueMode": "failfast"})


def test_a_read_without_a_schema_is_told_to_give_one() -> None:
    source = ReplogDataSource({**READ, "valueFormat": "json", "snapshot": "action"})
    with pytest.raises(ConfigError, match=r'\.schema\("value struct<id: bigint, city: string>'):
        source.schema()
