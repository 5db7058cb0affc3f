"""Options: what is accepted, and that nothing is silently ignored."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from replog.client import Security
from replog.client.ranges.transport import ReadTransport
from replog.errors import ConfigError
from replog.spark.options import ReadOptions, TopicChoice, Use, is_read, parse_read_options, parse_stream_options
from replog.spark.options.foreign import FOREIGN_OPTIONS, find_foreign
from replog.spark.options.parsers import EARLIEST, LATEST
from replog.spark.options.positions import AfterStart, AtOffsets, AtTime, AtTimes, BeforeEnd, Position
from replog.spark.options.table import OPTIONS, Given
from replog.spark.options.writing import parse_write_options

SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}


def parse(**options: str) -> ReadOptions:
    return parse_read_options({**SERVERS, **options})


def test_defaults() -> None:
    assert parse(subscribe="a, b,a,") == ReadOptions(
        bootstrap_servers="127.0.0.1:9092",
        chosen=TopicChoice(("a", "b")),
        starting=AfterStart("startingOffsets"),
        ending=BeforeEnd("endingOffsets"),
        starts_late_at_end=False,
        is_fixed_at_load=True,
        include_headers=False,
        value_format="binary",
        registry=None,
        is_strict_json=True,
        fail_on_data_loss=True,
        min_partitions=0,
        target_bytes_per_partition=128 << 20,
        max_records_per_partition=None,
        poll_timeout_ms=None,
        transport=ReadTransport(),
    )


def test_names_are_case_insensitive_and_kafkas_prefix_is_known() -> None:
    options = {
        "KAFKA.BOOTSTRAP.SERVERS": " h:1 ",
        "SUBSCRIBE": "t",
        "includeheaders": "TRUE",
        "FailOnDataLoss": "False",
    }
    parsed = parse_read_options(options)
    assert (parsed.bootstrap_servers, parsed.include_headers, parsed.fail_on_data_loss) == ("h:1", True, False)


def test_everything_given() -> None:
    parsed = parse(
        assign='{"t": [2, 0, 2], "u": [1]}',
        startingOffsets='{"t": {"0": 5, "2": -2}, "u": {"1": 0}}',
        endingOffsets='{"t": {"0": 7, "2": -1}, "u": {"1": 0}}',
        minPartitions="12",
        snapshot="Action",
        startingOffsetsByTimestampStrategy="latest",
        **{"kafkaConsumer.pollTimeoutMs": " 30000 "},
    )
    assert (parsed.is_fixed_at_load, parsed.starts_late_at_end) == (False, True)
    assert parsed.chosen == TopicChoice(("t", "u"), assignment={"t": (0, 2), "u": (1,)})
    assert parsed.starting == AtOffsets("startingOffsets", {"t": {0: 5, 2: EARLIEST}, "u": {1: 0}})
    assert parsed.ending == AtOffsets("endingOffsets", {"t": {0: 7, 2: LATEST}, "u": {1: 0}})
    assert parsed.min_partitions == 12
    assert parsed.poll_timeout_ms == 30_000


@pytest.mark.parametrize(
    ("options", "starting", "ending"),
    [
        ({"startingOffsets": "Earliest"}, AfterStart("startingOffsets"), BeforeEnd("endingOffsets")),
        (
            {"startingOffsets": "latest-100", "endingOffsets": " latest - 7 "},
            BeforeEnd("startingOffsets", 100),
            BeforeEnd("endingOffsets", 7),
        ),
        ({"endingOffsets": "earliest+5"}, AfterStart("startingOffsets"), AfterStart("endingOffsets", 5)),
        (
            {"startingTimestamp": "1700000000000", "endingTimestamp": "-10m"},
            AtTime("startingTimestamp", 1_700_000_000_000),
            AtTime("endingTimestamp", 600_000, is_before_now=True),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "endingOffsetsByTimestamp": '{"t": {"0": 6}}'},
            AtTimes("startingOffsetsByTimestamp", {"t": {0: 5}}),
            AtTimes("endingOffsetsByTimestamp", {"t": {0: 6}}),
        ),
    ],
)
def test_positions(options: dict[str, str], starting: Position, ending: Position) -> None:
    parsed = parse(subscribe="t", **options)
    assert (parsed.starting, parsed.ending) == (starting, ending)


def test_a_time_for_all_goes_before_one_for_each_and_both_before_offsets() -> None:
    """Goal: the order of Spark's Kafka source; what loses is checked all the same."""
    each = {"startingOffsets": "earliest+1", "startingOffsetsByTimestamp": '{"t": {"0": 5}}', "startingTimestamp": "7"}
    assert parse(subscribe="t", **each).starting == AtTime("startingTimestamp", 7)
    del each["startingTimestamp"]
    assert parse(subscribe="t", **each).starting == AtTimes("startingOffsetsByTimestamp", {"t": {0: 5}})
    with pytest.raises(ConfigError):
        parse(subscribe="t", startingTimestamp="7", startingOffsets="nonsense")


@pytest.mark.parametrize(("text", "ms"), [("-5ms", 5), ("-2s", 2000), ("-3h", 10_800_000), ("-1d", 86_400_000)])
def test_a_while_before_now(text: str, ms: int) -> None:
    assert parse(subscribe="t", startingTimestamp=text).starting == AtTime("startingTimestamp", ms, is_before_now=True)


@pytest.mark.parametrize(("text", "size"), [("65536", 1 << 16), (" 64K", 1 << 16), ("3 mb", 3 << 20), ("1g", 1 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert parse(subscribe="t", targetBytesPerPartition=text).target_bytes_per_partition == size


REFUSED: list[tuple[dict[str, str], str]] = [
    # what is missing or contradicts
    ({}, 'exactly one of "subscribe"'),
    ({"subscribe": "t", "assign": '{"t": [0]}'}, 'exactly one of "subscribe"'),
    ({"subscribe": "t", "subscribePattern": "t"}, 'exactly one of "subscribe"'),
    ({"subscribe": " , "}, "names no topic"),
    ({"subscribePattern": "t["}, 'subscribePattern is "t[", which is no regular expression'),
    ({"subscribePattern": " "}, "subscribePattern: give a regular expression"),
    ({"subscribePattern": "t" * 10_001}, "at most 10000 characters"),
    ({"subscribe": "t", "bootstrap.servers": " "}, 'give the option "bootstrap.servers"'),
    ({"subscribe": "t", "kafka.bootstrap.servers": "h:2"}, "differ: give one"),
    # names
    ({"subscribe": "t", "startingOffset": "earliest"}, 'Did you mean "startingOffsets"?'),
    ({"subscribe": "t", "failondatalos": "false"}, 'Did you mean "failOnDataLoss"?'),
    ({"subscribe": "t", "headers": "true"}, 'option "headers" is unknown'),
    ({"subscribe": "t", "zzz": "1"}, "Options are: assign, bootstrap.servers"),
    # names of another use, and of other connectors
    ({"subscribe": "t", "path": "x"}, 'option "path" is refused: load("...") and save("...") set it'),
    ({"subscribe": "t", "kafka.acks": "all"}, '"kafka.acks" is one of a write, and this is a batch read: leave it out'),
    ({"subscribe": "t", "KAFKA.Auto.Offset.Reset": "x"}, 'option "kafka.auto.offset.reset" is refused: each read says'),
    ({"subscribe": "t", "kafka.value.deserializer": "x"}, "cast them after the read"),
    (
        {"subscribe": "t", "kafka.security.protocol": "TLS"},
        "kafka.security.protocol is 'TLS'; it must be one of PLAINTEXT, SSL",
    ),
    ({"subscribe": "t", "kafka.sasl.password": "x"}, "set it to SASL_PLAINTEXT or SASL_SSL"),
    ({"subscribe": "t", "kafka.ssl.truststore.password": "x"}, "replog has no such setting of TLS or SASL"),
    (
        {"subscribe": "t", "kafka.Sasl.JAAS.config": "x"},
        'option "kafka.sasl.jaas.config" is refused: Spark hides passwords by the names',
    ),
    ({"subscribe": "t", "kafka.fetch.min.byte": "1"}, 'Did you mean "kafka.fetch.min.bytes"?'),
    ({"subscribe": "t", "x" * 5_000: "1"}, f'option "{"x" * 200}" is unknown to format replog. Options are: assign'),
    # values
    ({"subscribe": "t", "includeHeaders": "yes"}, 'give "true" or "false"'),
    *(
        ({"subscribe": "t", "minPartitions": text}, "give a number of tasks from 1 to 1000000")
        for text in ("0", "many", "9" * 5_000)
    ),
    *(
        ({"subscribe": "t", "kafkaConsumer.pollTimeoutMs": text}, "give milliseconds from 1 to 86400000")
        for text in ("0", "-1", "10s", "1.5", "", "86400001", "9" * 5_000)
    ),
    *(
        ({"subscribe": "t", "targetBytesPerPartition": text}, "give a size from 65536 to")
        for text in ("", "65535", "128 potatoes", "-1m", "1.5g", "9" * 18, "9" * 18 + "g", "m")
    ),
    ({"subscribe": "t", "maxRecordsPerPartition": "0"}, "give a number of offsets from 1"),
    (
        {"subscribe": "t", "startingOffsets": "latest"},
        'startingOffsets cannot be "latest" here: give "earliest", a distance',
    ),
    (
        {"subscribe": "t", "endingOffsets": "earliest"},
        'endingOffsets cannot be "earliest" here: give "latest", a distance',
    ),
    ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "earliest"}, 'give one of "error", "latest"'),
    ({"subscribe": "t", "snapshot": "never"}, 'snapshot is "never": give one of "load", "action"'),
    ({"subscribe": "t", "startingOffsetsByTimestamp": '{"t": {"0": -2}}'}, "startingOffsetsByTimestamp is "),
    ({"subscribe": "t", "endingOffsetsByTimestamp": '{"t": {"0": 253402300800000}}'}, "endingOffsetsByTimestamp is "),
    *(
        ({"subscribe": "t", "startingTimestamp": text}, "give milliseconds since 1970, or a while before now")
        for text in ("", "now", "10m", "-10", "-10 weeks", "1.5", "-1", "253402300800000", "-9999999999d", "9" * 5_000)
    ),
]
REFUSED += [
    ({"subscribe": "t", "startingOffsets": text}, "startingOffsets is ")
    for text in (
        "first", "[]", "latest-", "latest+1", "earliest-1", "latest--1", f"latest-{9 * 10**18}", '{"t": 5}', '{"t": {"0": -1}}', '{"t": {"0": "5"}}', '{"t": {"0": true}}', '{"t": {"-1": 5}}',
        '{"t": {"0": 1, "0": 2}}', '{"t": {"0": 1.5}}', '{"t"', '{"t": {"x": 1}}', "[" * 100_000,
        '{"t": {"0": 9223372036854775808}}', '{"t": {"4294967296": 1}}',
    )
]  # fmt: skip
REFUSED += [({"subscribe": "t", "endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets is ")]
REFUSED += [
    ({"assign": text}, "assign is ")
    for text in ("t", "{}", '["t"]', '{"t": []}', '{"t": [-1]}', '{"t": [true]}', '{"t": "0"}', '{"t": [0], "t": [1]}')
]


@pytest.mark.parametrize(
    ("options", "text"), REFUSED, ids=[f"{text}-{number}" for number, (_, text) in enumerate(REFUSED)]
)
def test_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_read_options({**SERVERS, **options})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"topic": "t"}, False),
        ({"Subscribe": "t"}, True),
        ({"assign": ""}, True),
        ({"subscribePattern": ""}, True),
    ],
)
def test_whether_options_are_of_a_read(options: dict[str, Any], expected: bool) -> None:
    assert is_read({**SERVERS, **options}) is expected


# ---- the tables ------------------------------------------------------------------------------------------------------


def test_what_a_job_for_kafka_carries_is_ignored_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a job moves over by changing the format's name, and is told what no longer matters."""
    carried = {"kafka.group.id": "g", "groupIdPrefix": "p", "KAFKA.ISOLATION.LEVEL": "read_uncommitted"}
    assert parse(subscribe="t", **carried, **{"kafka.security.protocol": "plaintext"}) == parse(subscribe="t")
    (record,) = caplog.records
    assert "kafka.isolation.level (only committed records are ever read)" in record.getMessage()
    assert all(name in record.getMessage() for name in ("kafka.group.id", "groupIdPrefix"))
    assert "security" not in record.getMessage()


def test_how_tasks_get_their_bytes() -> None:
    given = {"directReads": "false", "verifyCrc": "FALSE", "clientRack": " a ", "kafka.client.rack": "a"}
    assert parse(subscribe="t", **given).transport == ReadTransport(
        direct_reads=False, verify_crc=False, client_rack="a"
    )
    for wrong in ({"directReads": "no"}, {"clientRack": " "}, {"clientRack": "a" * 256}, given | {"clientRack": "b"}):
        with pytest.raises(ConfigError):
            parse(subscribe="t", **wrong)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(subscribe="t", **{"kafka.ssl.key.password": "secret"})
    assert "secret" not in repr(vars(caught.value)) + str(caught.value)


def test_each_use_has_one_row_for_a_name_and_its_default_is_valid() -> None:
    for use in (Use.BATCH_READ, Use.STREAM_READ, Use.WRITE):
        names = [option.name.lower() for option in OPTIONS if use in option.uses]
        assert len(names) == len(set(names))
        given = Given({}, use)
        values = {option.name: given[option.name] for option in OPTIONS if use in option.uses}
        assert all(values[option.name] is None for option in OPTIONS if use in option.uses and option.default is None)


def test_no_name_is_ours_and_foreign() -> None:
    known = [option.name.lower() for option in FOREIGN_OPTIONS]
    assert len(known) == len(set(known))
    met = [find_foreign(option.name) for option in OPTIONS]
    assert [each.name for each in met if each and not each.name.endswith("*")] == []  # a star stands for the others


SECURE = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.ssl.ca.location": "/ca.pem",
    "KAFKA.sasl.Mechanism": "SCRAM-SHA-256",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "canary-password",
}


def test_security_comes_by_kafkas_names_and_is_not_shown() -> None:
    security = Security.scram("alice", "canary-password", mechanism="SCRAM-SHA-256", tls=Security.tls(ca="/ca.pem"))
    read = parse(subscribe="t", **SECURE)
    stream = parse_stream_options({**SERVERS, "subscribe": "t", **SECURE})
    write = parse_write_options({**SERVERS, "topic": "t", **SECURE})
    assert read.security == stream.read.security == write.security == read.brokers.security == security
    assert not any("canary" in repr(each) for each in (read, stream, write, read.brokers))
    assert pickle.loads(pickle.dumps(read)).security == security
    assert parse(subscribe="t").security is None
