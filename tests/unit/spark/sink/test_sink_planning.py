"""What is refused before a task starts: options, columns and modes of a write."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra replog[spark] is not installed")


from replog.errors import ConfigError, UnknownTopicOrPartitionError, UnsupportedCompressionError
from replog.spark import worker_client
from replog.spark.options.brokers import Brokers
from replog.spark.options.writing import in_options, parse_write_options
from replog.spark.source import ReplogDataSource

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The topics that a cluster was asked about, None where rows name theirs; it has all but "nowhere"."""
    found: list[str | None] = []

    def look(brokers: Brokers, topic: str | None) -> str:
        assert brokers == Brokers(SERVERS["bootstrap.servers"])
        found.append(topic)
        if topic == "nowhere":
            raise UnknownTopicOrPartitionError("there is none")
        return "id"

    monkeypatch.setattr(worker_client, "find_cluster", look)
    return found


def schema_of(*columns: tuple[str, str]) -> Any:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    headers = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
    kinds = {
        "string": StringType(),
        "binary": BinaryType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "timestamp_ntz": TimestampNTZType(),
        "headers": headers,
        "list": ArrayType(StringType()),
    }
    return StructType([StructField(name, kinds[kind]) for name, kind in columns])


VALUE = ("value", "binary")


def plan(*columns: tuple[str, str], overwrite: bool = False, stream: bool = False, **options: str) -> Any:
    source = ReplogDataSource({**SERVERS, **{name.replace("_", "."): text for name, text in options.items()}})
    make = source.streamWriter if stream else source.writer
    return make(schema=schema_of(*columns), overwrite=overwrite)


ALL = (
    ("key", "string"), VALUE, ("topic", "string"), ("partition", "int"), ("headers", "headers"), ("timestamp", "timestamp"),
)  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_what_fits_is_planned_and_can_be_pickled(stream: bool) -> None:
    for writer in (plan(*ALL, stream=stream), plan(("value", "string"), stream=stream, topic="t")):
        assert pickle.loads(pickle.dumps(writer))._options == writer._options


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ([("key", "binary")], 'there is no column "value"'),
        ([("value", "bigint")], 'column "value" is bigint; binary or string is accepted'),
        ([VALUE, ("key", "list")], 'column "key" is array<string>'),
        ([VALUE, ("partition", "bigint")], 'column "partition" is bigint; int is accepted'),
        ([VALUE, ("timestamp", "timestamp_ntz")], 'column "timestamp" is timestamp_ntz; timestamp is accepted'),
        ([VALUE, ("headers", "list")], r'column "headers" is array<string>; array<struct<key:string,value:binary>>'),
        ([VALUE, ("offset", "bigint")], r'column "offset" cannot be written. Brokers assign it: .*drop\("offset"\)'),
        ([VALUE, ("vaule", "binary")], r'column "vaule" cannot be written. Did you mean "value"\?'),
        ([VALUE, ("city", "string")], "Columns are key, value, topic, partition, headers, timestamp"),
        ([VALUE, VALUE], 'a column "value" twice'),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: list[tuple[str, str]], text: str) -> None:
    for stream in (False, True):
        with pytest.raises(ConfigError, match=text):
            plan(*columns, topic="t", stream=stream)


def test_something_says_the_topic() -> None:
    with pytest.raises(ConfigError, match='nothing says which topic: give the option "topic"'):
        plan(VALUE)


@pytest.mark.parametrize("stream", [False, True])
def test_a_missing_topic_is_told_at_planning(stream: bool, asked: list[str | None]) -> None:
    """Goal: once, and not by each attempt of each task."""
    with pytest.raises(UnknownTopicOrPartitionError):
        plan(VALUE, stream=stream, topic="nowhere")
    plan(VALUE, ("topic", "string"), stream=stream)
    with pytest.raises(ConfigError, match='there is no column "value"'):
        plan(("key", "string"), stream=stream, topic="nowhere")
    assert asked == ["nowhere", None], "where something else is wrong nobody is asked"


def test_the_end_of_a_micro_batch_asks_nobody(asked: list[str | None]) -> None:
    """Goal: a batch whose rows are acknowledged does not fail, and come again, because no broker is there at that moment."""
    source = ReplogDataSource({**SERVERS, "topic": "nowhere"})
    writer = pickle.loads(pickle.dumps(source)).streamWriter(schema=schema_of(VALUE), overwrite=False)
    writer.commit([], 7)
    assert asked == []


@pytest.mark.parametrize(("stream", "mode"), [(False, "overwrite"), (True, "complete")])
def test_a_topic_is_never_replaced(stream: bool, mode: str) -> None:
    with pytest.raises(ConfigError, match=f'never replaced: mode "{mode}" is refused'):
        plan(VALUE, overwrite=True, stream=stream, topic="t")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka.acks": "0"}, 'kafka.acks is "0"'),
        ({"kafka.compression.type": "brotli"}, 'kafka.compression.type is "brotli"'),
        ({"kafka.compression.gzip.level": "0"}, r"^kafka\.compression\.gzip\.level is 0"),
        ({"kafka.compression.gzip.level": "10"}, "give a level from -1 to 9"),
        ({"kafka.compression.lz4.level": "3"}, "give a level from 9 to 9"),
        ({"kafka.compression.zstd.level": "-131073"}, "give a level from -131072 to 22"),
        ({"kafka.compression.zstd.level": "²"}, "give a level"),
        (
            {"kafka.acks": "1", "kafka.enable.idempotence": "true"},
            '^kafka.enable.idempotence needs kafka.acks "all", and kafka.acks is 1',
        ),
        ({"kafka.max.request.size": "1e6"}, "give bytes from 256"),
        ({"kafka.batch.size": str(1 << 40)}, "give bytes from 1 to"),
        ({"kafka.transactional.id": "x"}, "does not honour it yet"),
        ({"topic": " "}, 'option "topic" names no topic'),
        ({"subscribe": "t"}, "is one of a batch read"),
        ({"topics": "t"}, 'Did you mean "topic"'),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_write_options({**SERVERS, **options})


def test_options_become_settings_of_the_producer() -> None:
    options = {
        "kafka.acks": "-1", "kafka.COMPRESSION.type": "GZIP", "kafka.compression.gzip.level": "9", "kafka.linger.ms": "5",
        "kafka.batch.size": "1000", "kafka.max.request.size": "2000", "kafka.delivery.timeout.ms": "3000",
        "includeheaders": "false", "checkpointlocation": "/somewhere", "topic": "t",
    }  # fmt: skip
    parsed = parse_write_options({**SERVERS, **options})
    assert (parsed.topic, parsed.include_headers, parsed.bootstrap_servers) == ("t", False, "127.0.0.1:1")
    assert parsed.producer == {
        "acks": "all", "compression": "gzip", "compression_gzip_level": 9, "linger_ms": 5, "batch_size_bytes": 1000,
        "max_request_bytes": 2000, "delivery_timeout_ms": 3000,
    }  # fmt: skip
    assert parse_write_options({**SERVERS, "kafka.acks": "1"}).producer == {"acks": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max.request.bytes is 9; raise max_request_bytes here and", "kafka.max.request.size is 9; raise kafka.max.request.size here and"),
        ("within delivery.timeout.ms (5 ms)", "within kafka.delivery.timeout.ms (5 ms)"),
        ("max.message.bytes of the topic, request.timeout.ms", "max.message.bytes of the topic, request.timeout.ms"),
        ('acks-0: no answer; topic "acks" does not exist', 'acks-0: no answer; topic "acks" does not exist'),
    ],
)  # fmt: skip
def test_settings_of_the_producer_are_told_by_their_options(text: str, told: str) -> None:
    assert in_options(text) == told


def test_a_missing_library_is_told_at_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCompressionError, match="zstd compression needs"):
        parse_write_options({**SERVERS, "kafka.compression.type": "zstd"})
