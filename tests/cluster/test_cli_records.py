"""Records from the command line and back: with a broker in this process, and the commands, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from cli_runs import Done, replog_here

import replog
from replog.client import ConsumerRecord, SyncAdmin, SyncConsumer, SyncProducer

pytestmark = pytest.mark.cluster


class Commands:
    """The commands for one broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def __call__(self, *arguments: object, stdin: str = "") -> Done:
        return replog_here(*arguments, "-b", self.servers, stdin=stdin)

    def good(self, *arguments: object, stdin: str = "") -> str:
        done = self(*arguments, stdin=stdin)
        assert (done.status, done.err) == (0, "")
        return done.out


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with replog.embedded(config={"log.retention.ms": -1}) as broker:
        yield Commands(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def timed(commands: Commands) -> str:
    """A topic with a record at each of ten seconds of 2020."""
    with SyncAdmin(commands.servers) as admin, SyncProducer(commands.servers) as producer:
        admin.create_topic("timed")
        for second in range(10):
            time_ms = int(datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC).timestamp()) * 1000
            producer.send("timed", b"value %d" % second, b"key %d" % (second % 3), timestamp_ms=time_ms)
        producer.flush()
    return "timed"


@pytest.mark.parametrize(
    ("places", "offsets"),
    [
        (["--from", "3", "--until", "5"], "34"),
        (["--from", "latest-2"], "89"),
        (["--from", "-1d"], ""),
        (["--until", "-1d", "--from", "8"], "89"),
        (["--from", "2020-01-01T00:00:07Z", "--until", "2020-01-01T01:00:09+01:00"], "78"),
        (["--until", "earliest+2"], "01"),
        (["--from", "5", "--until", "5"], ""),
        (["--until", "end", "--max", "1", "--from", "9"], "9"),
        (["--until", "999"], "0123456789"),
        (["--from", "end"], ""),
        (["--grep", "key 1"], "147"),
        (["--grep", "ue 2", "--from", "1", "--until", "latest"], "2"),
        (["--grep", "value", "--max", "2"], "01"),
        (["--grep", "nothing"], ""),
    ],
)
def test_what_is_read(commands: Commands, timed: str, places: list[str], offsets: str) -> None:
    assert commands.good("consume", timed, "--format", "%o", *places).split() == list(offsets)


def test_an_offset_that_is_not_there_yet_is_told(commands: Commands, timed: str) -> None:
    done = commands("consume", timed, "--from", "11", "--until", "12")
    assert (done.status, done.err) == (1, "error: timed-0 ends at offset 10; there is no offset 11 yet\n")
    assert json.loads(commands.good("consume", timed, "--json", "--from", 9))["value"] == "value 9"


HOSTILE = [
    *(
        b"",
        None,
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\t",
        b'"',
        b"\\",
        b"'",
        b"\xff\xfe",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
    ),
    *("é", "\u2028", "\x85", "\U0001f600", "null", '{"base64": "AA=="}', "[1]", " x ", "a,b", "\x1b[2J"),
    bytes(range(256)),
]
DATA = [each.encode() if isinstance(each, str) else each for each in HOSTILE]


def contents(servers: str, topic: str) -> list[tuple[object, ...]]:
    with SyncConsumer(servers) as consumer:
        consumer.assign_topic(topic)
        ends = consumer.end_offsets(consumer.assignment())
        found: list[ConsumerRecord] = []
        while len(found) < sum(ends.values()):
            found += consumer.poll()
    return sorted((r.partition, r.offset, r.timestamp, r.key, r.value, r.headers) for r in found)


def test_what_consume_prints_produce_takes_back(commands: Commands) -> None:
    with SyncAdmin(commands.servers) as admin, SyncProducer(commands.servers) as producer:
        for topic in "copied", "copy":
            admin.create_topic(topic, 3)
        for number, data in enumerate(DATA):
            headers = [("", data), ("\u2028\0,", DATA[-number]), ("", b"again")]
            producer.send("copied", data, DATA[-number], number % 3, (-1, 0, 1_700_000_000_123)[number % 3], headers)
        producer.flush()
    lines = commands.good("consume", "copied", "--format", "json")
    assert commands.good("produce", "copy", "--format", "json", stdin=lines) == f"{len(DATA)} records acknowledged\n"
    assert contents(commands.servers, "copy") == contents(commands.servers, "copied")


@pytest.fixture
def topic(commands: Commands, request: pytest.FixtureRequest) -> str:
    """A topic of the test, with two partitions."""
    name = f"of.{abs(hash(request.node.name))}"
    with SyncAdmin(commands.servers) as admin:
        admin.create_topic(name, 2, configs={"max.message.bytes": "2000"})
    return name


def test_lines_of_csv_with_keys_times_and_headers(commands: Commands, topic: str) -> None:
    text = 'value,key,timestamp,partition,header.who\n"a ""b"",\nc",k,17,1,me\n,,,0,\r\nlast,,,0,\n'
    assert commands.good("produce", topic, "--format", "csv", stdin=text) == "3 records acknowledged\n"
    found = [each[:2] + each[3:] for each in contents(commands.servers, topic)]
    assert found == [
        (0, 0, None, b"", ()),
        (0, 1, None, b"last", ()),
        (1, 0, b"k", b'a "b",\nc', (("who", b"me"),)),
    ]


@pytest.mark.parametrize(
    ("form", "text", "status", "told"),
    [
        (
            "json",
            '{"value": "a"}\n{"value": 1}',
            2,
            "line 2 is no record as JSON: Expected `str | object | null`, got `int`",
        ),
        (
            "json",
            '{"value": "a"}\n{"value": "b", "partition": 2}',
            2,
            "line 2 names partition 2, and TOPIC has 2 partitions",
        ),
        (
            "json",
            '{"value": "a"}\n{"value": "%s"}' % ("b" * 2000),
            1,
            "line 2 is too long: 2,000 bytes, and TOPIC takes",
        ),
        (
            "json",
            '{"value": "a"}\n{"value": "", "headers": {"%s": ""}}' % ("b" * 2000),
            1,
            "line 2 is too long: 0 bytes",
        ),
        ("csv", "value\na\nb,c", 2, "line 3 has 2 cells, and the first line names 1"),
        ("csv", "value,partition\na,\nb,x", 2, 'line 3 has the partition "x", which is no whole number'),
        ("csv", 'value\na\n"b\nc\n', 2, "line 3 begins a quoted cell that does not end"),
        ("csv", 'value\na\n"b"c\n', 2, "line 3 is no CSV in UTF-8"),
        ("csv", 'value\na\n"\nb\nc"d\n', 2, "line 3 is no CSV in UTF-8"),
        ("key-value", "k\tv\nlonely", 2, "line 2 has no tab between key and value"),
    ],
)
def test_a_wrong_line_is_named(commands: Commands, topic: str, form: str, text: str, status: int, told: str) -> None:
    done = commands("produce", topic, "--format", form, stdin=text)
    assert (done.status, done.out) == (status, "1 record acknowledged\n")
    assert done.err.startswith(f"error: {told.replace('TOPIC', topic)}")
    assert done.err.endswith("1 record before it acknowledged, nothing from it on sent\n")


@pytest.mark.parametrize("first", ["", "key", "value,value", "value,velue", "value,Key"])
def test_columns_that_say_nothing_are_refused(commands: Commands, topic: str, first: str) -> None:
    done = commands("produce", topic, "--format", "csv", stdin=f"{first}\na\n")
    assert (done.status, done.out) == (2, "0 records acknowledged\n")
    assert done.err.startswith("error: line 1 ")


def test_a_rate_is_kept_and_a_partition_for_all_counts(commands: Commands, topic: str) -> None:
    lines = '{"value": "a", "partition": 1}\n' * 30
    commands.good("produce", topic, "--format", "json", "--partition", 0, "--rate", 100, stdin=lines)
    assert {each[0] for each in contents(commands.servers, topic)} == {0}
