"""Columns: Spark's own types in, our selection out."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from replog.errors import ConfigError
from replog.spark.arrow_batches import arrow_schema
from replog.spark.schema import Column, columns_of, schema_ddl

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
FULL = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)


def test_the_ddl_is_that_of_sparks_kafka_source() -> None:
    without = schema_ddl(include_headers=False)
    assert without == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert schema_ddl(include_headers=True) == f"{without}, headers array<struct<key:string,value:binary>>"


def test_the_arrow_schema_is_what_spark_checks_the_first_batch_against() -> None:
    assert arrow_schema(columns_of(FULL.fields)).equals(to_arrow_schema(FULL, timezone="UTC"))
    selected = StructType([StructField("offset", LongType(), nullable=False), StructField("value", BinaryType())])
    assert columns_of(selected.fields) == (Column("offset", is_nullable=False), Column("value"))
    assert arrow_schema(columns_of(selected.fields)).equals(to_arrow_schema(selected, timezone="UTC"))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (StructField("val", BinaryType()), 'Did you mean "value"?'),
        (StructField("Offset", LongType()), 'Did you mean "offset"?'),
        (StructField("_corrupt_record", StringType()), 'Did you mean "_corrupt"?'),  # from_json's name for it
        (StructField("timestamptype", IntegerType()), 'Did you mean "timestampType"?'),
        (StructField("zzz", LongType()), "Columns are: key, value"),
        (StructField("value", StringType()), '`.selectExpr("CAST(value AS string)")`'),
        (StructField("timestamp", TimestampNTZType()), "is timestamp, not timestamp_ntz"),
        (StructField("value", BinaryType(), nullable=False), "leave NOT NULL out"),
        (StructField("headers", ArrayType(HEADER, containsNull=False)), "leave NOT NULL out"),
        (StructField("headers", ArrayType(StringType())), "is array<struct<key:string,value:binary>>"),
    ],
)
def test_refused(field: StructField, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        columns_of([field])
    assert text in str(caught.value)


def test_a_header_that_may_not_be_null_is_refused() -> None:
    parts: list[tuple[str, DataType, bool]] = [("key", StringType(), False), ("value", BinaryType(), True)]
    header = StructType([StructField(*part) for part in parts])
    with pytest.raises(ConfigError):
        columns_of([StructField("headers", ArrayType(header))])


def test_a_schema_without_columns_is_refused() -> None:
    """Goal: a topic does not look empty where nobody asked for a column."""
    with pytest.raises(ConfigError, match="names no column"):
        columns_of([])


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        columns_of([StructField("offset", LongType()), StructField("offset", LongType())])
    assert "twice" in str(caught.value)


def test_values_as_text() -> None:
    assert ", value string, " in schema_ddl(include_headers=False, value_type="string")
    schema = StructType([StructField("key", BinaryType()), StructField("value", StringType())])
    columns = columns_of(schema.fields, value_type="string")
    assert columns == (Column("key"), Column("value", is_text=True))
    assert arrow_schema(columns).equals(to_arrow_schema(schema, timezone="UTC"))
    with pytest.raises(ConfigError, match='or set the option valueFormat to "string"'):
        columns_of(schema.fields)
    with pytest.raises(ConfigError, match='or set the option valueFormat to "binary"'):
        columns_of(FULL.fields, value_type="string")
