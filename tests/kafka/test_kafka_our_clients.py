"""What our clients and commands do with three brokers of ours, and with Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from brokers import Broker, of_kafka, of_replog
from served_cluster import served_cluster
from waiting import until

import replog
from replog.client import Admin, Consumer, Producer, SyncAdmin, SyncConsumer, SyncProducer
from replog.errors import ConfigError, OffsetOutOfRangeError, PolicyViolationError, RecordTooLargeError
from tests.cluster.cli_runs import Done, command, replog_here

VALUE = random.Random(9).randbytes(9_000_000).replace(b"\n", b" ")
LARGE = 16 << 20

Run: TypeAlias = Callable[..., Done]


@pytest.fixture(scope="module", params=["replog", pytest.param("kafka", marks=pytest.mark.kafka)])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Three brokers of ours, which hold a replica each, and a lone one of Kafka."""
    if request.param == "kafka":
        yield of_kafka(request.getfixturevalue("kafka_broker"))
        return
    with served_cluster(tmp_path_factory.mktemp("three") / "cluster", nodes=3) as cluster:
        yield of_replog(cluster)


# ---- large values ----------------------------------------------------------------------------------------------------


async def test_a_large_value_passes_where_the_limits_are_raised(brokers: Broker) -> None:
    """Goal: the producer's and the topic's limit are all there is; whoever reads needs no setting."""
    topic = await asyncio.to_thread(brokers.topic, 1, max_message_bytes=LARGE)
    async with Producer(brokers.servers, max_request_bytes=LARGE) as producer:
        await (await producer.send(topic, VALUE))

    def send_in_a_thread() -> None:
        with SyncProducer(brokers.servers, max_request_bytes=LARGE) as sync:
            sync.send(topic, VALUE).result(60)

    await asyncio.to_thread(send_in_a_thread)
    async with Consumer(brokers.servers) as consumer, asyncio.timeout(60):
        await consumer.assign_topic(topic)
        found: list[Any] = []
        while len(found) < 2:
            found += await consumer.poll()
    assert [record.value for record in found] == [VALUE, VALUE]

    def read_in_a_thread() -> list[bytes | None]:
        with SyncConsumer(brokers.servers, max_partition_fetch_bytes=1, fetch_max_bytes=1) as sync:
            sync.assign_topic(topic)
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in sync.poll(timeout_ms=30_000)]
            return values

    assert await asyncio.to_thread(read_in_a_thread) == [VALUE, VALUE]
    process = await asyncio.create_subprocess_exec(
        *command("consume", topic, "--max", "1", "--bootstrap-servers", brokers.servers),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        assert await process.communicate() == (VALUE + b"\n", b"")


async def test_a_producer_with_the_usual_limit_names_both(brokers: Broker) -> None:
    topic = await asyncio.to_thread(brokers.topic)
    async with Producer(brokers.servers) as producer:
        with pytest.raises(
            RecordTooLargeError, match=r"raise max_request_bytes here and max\.message\.bytes of the topic"
        ):
            await producer.send(topic, VALUE)
    told = r"max\.message\.bytes( is 1048588: .* raise the topic's limit| of the topic; raise that)"
    async with Producer(brokers.servers, max_request_bytes=LARGE) as producer:
        delivery = await producer.send(topic, VALUE)
        with pytest.raises(RecordTooLargeError, match=told):
            await delivery


def test_a_message_that_no_broker_takes_is_refused_in_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"max\.request\.bytes is 134217728"):
        Producer("127.0.0.1:1", max_request_bytes=128 << 20)


# ---- records are deleted ---------------------------------------------------------------------------------------------


async def test_records_are_deleted_on_all_replicas(brokers: Broker) -> None:
    topic, table = await asyncio.to_thread(lambda: (brokers.topic(), brokers.topic(cleanup_policy="compact")))
    place = (topic, 0)
    async with Producer(brokers.servers) as producer, Admin(brokers.servers) as admin:
        for number in range(10):
            await (await producer.send(topic, b"%d" % number, partition=0))
        assert await admin.delete_records({place: 4}) == {place: 4}
        for node in (1, 2, 3) if brokers.name == "replog" else ():
            (replica,) = [one for one in (await admin.describe_node(node)).replicas if one.topic == topic]
            assert replica.log_start_offset == 4
        async with Consumer(brokers.servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign([place])
            consumer.seek(place, 0)
            assert (await consumer.poll())[0].offset == 4
        with pytest.raises(OffsetOutOfRangeError) as refused:
            await admin.delete_records({place: 11})
        assert "high watermark" in str(refused.value)
        assert await admin.delete_records({place: -1}) == {place: 10}
        end = (await admin.epoch_ends({place: 0}))[place]
        assert end is not None
        assert end.end_offset == 10
        with pytest.raises(PolicyViolationError) as forbidden:
            await admin.delete_records({(table, 0): 0})
        assert "compact" in str(forbidden.value)


def test_a_topic_is_scanned_as_a_table_and_kept_as_a_mapping(brokers: Broker) -> None:
    topic = brokers.topic(2)
    with SyncProducer(brokers.servers) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, b"k%d" % (number % 7), number % 2, 1_700_000_000_000 + number)
        producer.flush()
    table = replog.scan(topic, bootstrap_servers=brokers.servers, start="earliest+10").read_all()
    assert table["offset"].to_pylist() == [*range(10, 50)] * 2
    assert table["value"].to_pylist() == [b"%d" % number for parity in (0, 1) for number in range(20 + parity, 100, 2)]
    with replog.SyncTable(topic, bootstrap_servers=brokers.servers) as kept:
        assert sorted(kept) == [b"k%d" % number for number in range(7)]
        assert kept.positions() == {0: 50, 1: 50}


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(brokers: Broker) -> Run:
    """A command on these brokers; it returns when all of ours know what it has changed: the next one comes within milliseconds."""

    def call(*arguments: object, stdin: str = "") -> Done:
        done = replog_here(*arguments, stdin=stdin, env={"REPLOG_BOOTSTRAP_SERVERS": brokers.servers})
        if brokers.name == "replog":
            with SyncAdmin(brokers.servers) as admin:
                until(lambda: len({admin.describe_node(node).quorum_high_watermark for node in (1, 2, 3)}) == 1)
        return done

    return call


def good(run: Run, *arguments: object, stdin: str = "") -> str:
    done = run(*arguments, stdin=stdin)
    assert (done.status, done.err) == (0, ""), done
    return done.out


def test_records_are_deleted_by_a_command(brokers: Broker, run: Run) -> None:
    topic = brokers.topic()
    assert good(run, "produce", topic, stdin="a\nb\nc\n") == "3 records acknowledged\n"
    assert good(run, "topics", "delete-records", f"{topic}-0=2") == f"{topic}-0 starts at 2\n"
    assert good(run, "topics", "delete-records", f"{topic}-0=end") == f"{topic}-0 starts at 3\n"
    (place,) = json.loads(good(run, "topics", "describe", topic, "--offsets", "--json"))["offsets"]
    assert place == {"log_start_offset": 3, "high_watermark": 3, "former_epoch": None, "former_epoch_end_offset": None}
    listed = map(json.loads, good(run, "topics", "list", "--sizes", "--json").splitlines())
    assert all(0 <= each["size_bytes"] <= each["disk_bytes"] for each in listed)
    beyond = run("topics", "delete-records", f"{topic}-0=9")
    assert (beyond.status, "high watermark" in beyond.err) == (1, True)
    assert "is not TOPIC-PARTITION=OFFSET" in run("topics", "delete-records", "short=9").err


def test_a_load_is_measured(brokers: Broker, run: Run) -> None:
    topic = brokers.topic()
    for measure, records in (("produce", 300), ("consume", 300), ("e2e", 10)):
        limit = () if measure == "consume" else ("--records", records)
        found = json.loads(good(run, "perf", measure, topic, *limit, "--json"))
        assert (found["records"], found["failed"]) == (records, {}), measure
        assert found["latency_ms"]["p99"] > 0


def test_lines_are_compressed_and_read_back(brokers: Broker, run: Run) -> None:
    topic = brokers.topic()
    lines = "".join(f"{n} the same words again and again\n" for n in range(500))
    assert good(run, "produce", topic, "--compression", "gzip", stdin=lines) == "500 records acknowledged\n"
    assert good(run, "consume", topic) == lines
    described = [json.loads(line) for line in good(run, "log-dirs", "describe", "--broker", 1, "--json").splitlines()]
    (size_bytes,) = [each["size_bytes"] for one in described for each in one["replicas"] if each["topic"] == topic]
    assert 0 < size_bytes < len(lines) / 2
    assert "not one of 'none', 'gzip'" in run("produce", topic, "--compression", "brotli", stdin="a\n").err


def test_a_file_with_a_bad_line(brokers: Broker, run: Run, tmp_path: Path) -> None:
    topic = brokers.topic()
    (tmp_path / "lines").write_text("a:1\nb:2\nlonely\nc:3\n")
    done = run("produce", topic, "--file", tmp_path / "lines", "--key-separator", ":")
    assert (done.status, done.out) == (2, "2 records acknowledged\n")
    assert done.err.startswith('error: line 3 has no ":" between key and value. 2 records before it acknowledged')
    (tmp_path / "long").write_text("a\n" + "b" * 2_000_000 + "\nc\n")
    done = run("produce", topic, "--file", tmp_path / "long")
    assert (done.status, done.out) == (1, "1 record acknowledged\n")
    assert done.err.startswith(f"error: line 2 is too long: 2,000,000 bytes, and {topic} takes ")
    advice = done.err.split("`")[1].removeprefix("replog ").split()
    assert good(run, *advice).startswith("max.message.bytes=")
    assert good(run, "produce", topic, "--file", tmp_path / "long") == "3 records acknowledged\n"
    assert good(run, "consume", topic) == f"1\n2\na\na\n{'b' * 2_000_000}\nc\n"


def test_a_plan_is_made_carried_out_and_verified(brokers: Broker, run: Run, tmp_path: Path) -> None:
    topic, plan = brokers.topic(2), tmp_path / "plan.json"
    plan.write_text(good(run, "topics", "reassign", "--generate", "--topics", topic))
    throttled = run("topics", "reassign", "--execute", plan, "--throttle", 1_000_000)
    if brokers.name == "kafka":
        assert (throttled.status, "leave --throttle out" in throttled.err) == (2, True)
        throttled = run("topics", "reassign", "--execute", plan)
    assert (throttled.status, throttled.out.count("moves")) == (0, 2)
    assert f"{topic}-0: done\n" in good(run, "topics", "reassign", "--verify", "--watch", plan)
    nothing = run("topics", "reassign", "--cancel", plan)
    assert (nothing.status, nothing.err.count(f"{topic}-")) == (1, 2), "nothing is under way"


def test_configurations_are_set_and_shown_with_their_source(brokers: Broker, run: Run) -> None:
    topic = brokers.topic()
    of_topic = ("configs", "set", "--topic", topic)
    assert good(run, *of_topic, "retention.ms=5000") == "retention.ms=5000\n"
    assert good(run, "configs", "set", "log.retention.bytes=77777777") == "log.retention.bytes=77777777\n"
    assert good(run, "configs", "set", "--broker", 1, "log.roll.ms=77777777") == "log.roll.ms=77777777\n"
    wanted = ("retention.ms", "retention.bytes", "segment.bytes")
    shown = "retention.ms=5000  (topic)\nretention.bytes=77777777  (cluster)\nsegment.bytes=1073741824  (default)\n"
    until(lambda: good(run, "configs", "get", "--topic", topic, *wanted) == shown)
    of_broker = "log.roll.ms=77777777  (broker)\n"
    until(lambda: good(run, "configs", "get", "--broker", 1, "log.roll.ms") == of_broker)
    assert good(run, *of_topic, "retention.ms=") == "retention.ms removed\n"
    until(lambda: "(topic)" not in good(run, "configs", "get", "--topic", topic, "retention.ms"))
    done = run("configs", "set", "node.id=4")
    assert (done.status in {1, 2}, done.out, "node.id" in done.err) == (True, "", True)
    assert "valid" in good(run, "configs", "set", "--validate-only", "--topic", topic, "retention.ms=1")
    assert "(topic)" not in good(run, "configs", "get", "--topic", topic, "retention.ms")
    good(run, "configs", "set", "log.retention.bytes=")
    good(run, "configs", "set", "--broker", 1, "log.roll.ms=")


WRONG_CONFIGS: list[tuple[tuple[object, ...], str]] = [
    (("set", "--topic", "{topic}", "retention.mss=1"), "retention.mss"),
    (("set", "--topic", "{topic}", "retention.ms=soon"), "soon"),
    (("set", "--topic", "nowhere", "retention.ms=1"), "nowhere"),
    (("set", "--topic", "t", "--broker", 1, "retention.ms=1"), "exclude each other"),
    (("set", "retention.ms"), "is not KEY=VALUE"),
    (("get", "--topic", "nowhere"), 'there is no topic "nowhere"'),
    (("get", "--broker", 77), 'there is no broker "77"'),
    (("get", "nothing.known"), "Without a key all are shown"),
]


def test_configurations_that_are_none(brokers: Broker, run: Run) -> None:
    topic = brokers.topic()
    for arguments, words in WRONG_CONFIGS:
        done = run("configs", *(str(one).format(topic=topic) for one in arguments))
        assert done.status in {1, 2}
        assert words in done.err
    if brokers.name == "replog":
        assert 'Did you mean "retention.ms"' in run("configs", "set", "--topic", topic, "retention.mss=1").err
        assert "not a whole number" in run("configs", "set", "--topic", topic, "retention.ms=soon").err


def test_the_doctor_says_what_the_brokers_tell_and_finds_nothing_wrong(brokers: Broker) -> None:
    found = [json.loads(line) for line in replog_here("doctor", "--json", "-b", brokers.servers).out.splitlines()]
    assert [each for each in found if each["level"] == "wrong"] == []
    assert {"bootstrap", "cluster", "controller", "broker 1", "versions", "partitions"} <= {
        each["subject"] for each in found
    }
    texts = " ".join(each["text"] for each in found)
    assert "GB left" in texts
    assert ("its clock is right" in texts) is not (
        "of Apache Kafka tell neither version, clock nor open files" in texts
    )
