"""Kafka's clients work with our brokers: what each writes is read by every other and by our own, byte for byte.

In campaigns (`mark.campaign`) the same tests run with Apache Kafka itself, so that a test which asks for the wrong thing is seen.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import client_functions as functions
import pytest
from brokers import Broker
from client_aiokafka import Aiokafka
from client_confluent import Confluent
from client_driven import Driven
from client_kafka_python import KafkaPython
from kafka_client_kit import CODECS, T0_MS, TIMEOUT_S, How, KafkaClient, RefusedError, Sent
from kafka_install import install, install_clients
from served_cluster import ServedCluster, served_cluster

from replog.records import encode_batch

PYTHON: Mapping[str, KafkaClient] = {client.name: client for client in (Confluent(), Aiokafka(), KafkaPython())}
JAVA = {"java-4.1.1": install, "java-3.9.1": lambda: install_clients("3.9.1")}
GO = {"franz-go": "franz", "sarama": "sarama"}

DRIVEN = [*(pytest.param(name, marks=pytest.mark.kafka) for name in JAVA), *GO]
"""Clients in other languages."""

every_client = pytest.mark.parametrize("client", [*PYTHON, *DRIVEN], indirect=True)


@pytest.fixture(scope="module")
def programs() -> Iterator[ExitStack]:
    """Ends the programs that clients in other languages have started."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def known(programs: ExitStack) -> dict[str, KafkaClient]:
    """The clients that were asked for already, by name."""
    return dict(PYTHON)


@pytest.fixture
def client(
    request: pytest.FixtureRequest,
    known: dict[str, KafkaClient],
    programs: ExitStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> KafkaClient:
    """A client by its name."""
    name: str = request.param
    if name not in known:
        driven = Driven(name, command_of(name, request), tmp_path_factory.mktemp(name))
        known[name] = programs.enter_context(contextlib.closing(driven))
    return known[name]


def command_of(name: str, request: pytest.FixtureRequest) -> Callable[[str], list[str]]:
    """The function that returns the command line of a client in another language; skips where that is missing."""
    if name in GO:
        program = request.getfixturevalue("go_folder") / GO[name]
        return lambda servers: [str(program), servers]
    request.getfixturevalue("kafka")
    java = JAVA[name]()
    return lambda servers: java.command("KafkaDriver", servers)


RECORDS = [
    Sent(b"key", b"value"),
    Sent(None, b"no key"),
    Sent(b"tombstone", None),
    Sent(b"", b""),
    Sent(b"one byte", b"\x00", (), T0_MS + 5),
    Sent(b"headers", b"v", (("a", b"1"), ("a", b"2"), ("empty", b""), ("\u00e4", b"\xff\x00"))),
    Sent(b"long", bytes(range(256)) * 300, (), T0_MS + 7),
    *[Sent(b"%d" % number, b"value %d" % number * 20, (), T0_MS + 10 + number) for number in range(50)],
]


def written(broker: Broker, client: KafkaClient, how: How) -> str:
    """Writes the records to a topic of their own; returns its name."""
    topic = broker.topic()
    offsets = client.produce(broker.servers, topic, RECORDS, how)
    assert offsets == ([-1] * len(RECORDS) if how.acks == "0" else list(range(len(RECORDS))))
    return topic


@pytest.mark.served(functions.PRODUCE)
@every_client
@pytest.mark.parametrize("codec", CODECS)
def test_codecs(broker: Broker, client: KafkaClient, codec: str) -> None:
    topic = written(broker, client, How(codec=codec))
    assert [record.sent for record in broker.read(topic, len(RECORDS))] == RECORDS


@pytest.mark.served(functions.ACKS)
@every_client
@pytest.mark.parametrize("acks", ["0", "1"])
def test_acks(broker: Broker, client: KafkaClient, acks: str) -> None:
    topic = written(broker, client, How(acks=acks))
    assert [record.sent for record in broker.read(topic, len(RECORDS))] == RECORDS


@pytest.mark.served(functions.IDEMPOTENCE)
@every_client
def test_idempotence(broker: Broker, client: KafkaClient) -> None:
    topic = written(broker, client, How(is_idempotent=True, codec="lz4"))
    assert [record.sent for record in broker.read(topic, len(RECORDS))] == RECORDS


@pytest.mark.served(functions.TOO_LARGE)
@every_client
def test_as_large_as_the_topic_takes_and_one_byte_more(broker: Broker, client: KafkaClient) -> None:
    topic = broker.topic(max_message_bytes=100_000)
    room = 100_000 - len(encode_batch([(T0_MS, None, bytes(90_000), ())])) + 90_000
    assert client.produce(broker.servers, topic, [Sent(value=bytes(room))], How()) == [0]
    with pytest.raises(RefusedError, match=r"(?i)too.?large"):
        client.produce(broker.servers, topic, [Sent(value=bytes(room + 1))], How())
    assert client.produce(broker.servers, topic, [Sent(value=b"after")], How()) == [1]


def test_a_topic_that_is_not_there(broker: Broker) -> None:
    """The other clients wait for the topic until their time is over."""
    with pytest.raises(RefusedError, match=r"(?i)unknown"):
        Confluent().produce(broker.servers, "missing", [Sent()], How())


# ---- reading ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def topics_of_all(broker: Broker) -> list[str]:
    """A topic by each client in Python, with a codec of its own."""
    return [
        written(broker, client, How(codec=codec))
        for client, codec in zip(PYTHON.values(), ("zstd", "snappy", "lz4"), strict=True)
    ]


@pytest.mark.served(functions.CONSUME)
@every_client
def test_reading_what_every_client_wrote(broker: Broker, client: KafkaClient, topics_of_all: list[str]) -> None:
    for topic in topics_of_all:
        found = client.consume(broker.servers, topic, 0, len(RECORDS))
        assert [record.sent for record in found] == RECORDS
        assert [record.offset for record in found] == list(range(len(RECORDS)))


@pytest.mark.served(functions.SEEK)
@every_client
def test_reading_from_an_offset(broker: Broker, client: KafkaClient, topics_of_all: list[str]) -> None:
    found = client.consume(broker.servers, topics_of_all[0], 30, 5)
    assert [(record.offset, record.sent) for record in found] == [(at, RECORDS[at]) for at in range(30, 35)]


@pytest.mark.served(functions.OFFSETS)
@every_client
def test_ends_and_times(broker: Broker, client: KafkaClient, topics_of_all: list[str]) -> None:
    topic = topics_of_all[1]
    assert client.ends(broker.servers, topic) == (0, len(RECORDS))
    asked = {T0_MS - 1: 0, T0_MS: 0, T0_MS + 5: 4, T0_MS + 6: 6, T0_MS + 59: len(RECORDS) - 1, T0_MS + 60: None}
    assert {time: client.offset_for_time(broker.servers, topic, time) for time in asked} == asked
    assert client.ends(broker.servers, broker.topic()) == (0, 0)


# ---- groups ----------------------------------------------------------------------------------------------------------------


def check_a_group_goes_on(broker: Broker, client: KafkaClient, protocol: str) -> None:
    """Twice a member comes, reads what is new to its group, commits and leaves."""
    assert isinstance(client, Driven)
    topic = broker.topic()
    for part in range(2):
        values = [b"%d-%d" % (part, number) for number in range(8)]
        client.produce(broker.servers, topic, [Sent(value=value) for value in values], How())
        assert client.read_as_member(broker.servers, f"of-{topic}", protocol, topic, 8) == values


@pytest.mark.served(functions.GROUPS)
@pytest.mark.parametrize("client", DRIVEN, indirect=True)
def test_a_group_whose_members_assign_goes_on_behind_its_commits(broker: Broker, client: KafkaClient) -> None:
    """The clients in Python are in test_kafka_groups.py."""
    check_a_group_goes_on(broker, client, "classic")


@pytest.mark.served(functions.ASSIGNED_GROUPS)
@pytest.mark.parametrize("client", [each for each in DRIVEN if each != "sarama"], indirect=True)
def test_a_group_whose_coordinator_assigns_goes_on_behind_its_commits(broker: Broker, client: KafkaClient) -> None:
    """Sarama does not know them."""
    check_a_group_goes_on(broker, client, "consumer")


# ---- transactions ----------------------------------------------------------------------------------------------------------


@pytest.mark.served(functions.TRANSACTIONS)
@every_client
def test_a_transactional_producer_takes_over_its_id(replog_broker: ServedCluster, client: KafkaClient) -> None:
    client.begin_transaction(replog_broker.bootstrap_servers, "mine")


# ---- topics ----------------------------------------------------------------------------------------------------------------


def eventually(condition: Callable[[], bool]) -> None:
    """Waits until a change has reached the broker that is asked."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.served(functions.METADATA)
@pytest.mark.served(functions.TOPICS)
@every_client
def test_topics_are_created_described_and_deleted(broker: Broker, client: KafkaClient) -> None:
    name = f"by-{client.name}"
    client.create_topic(broker.servers, name, 3, {"retention.ms": "1000000"})
    eventually(lambda: client.partitions_of(broker.servers, name) == 3)
    with pytest.raises(RefusedError, match=r"(?i)exists|36"):
        client.create_topic(broker.servers, name, 3, {})
    with pytest.raises(RefusedError, match=r"(?i)config|40"):
        client.create_topic(broker.servers, f"{name}-2", 1, {"retention.ms": "never"})
    client.delete_topic(broker.servers, name)
    eventually(lambda: client.partitions_of(broker.servers, name) == 0)
    with pytest.raises(RefusedError, match=r"(?i)unknown|3"):
        client.delete_topic(broker.servers, name)


# ---- several brokers -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Three nodes."""
    with served_cluster(tmp_path_factory.mktemp("three") / "cluster", 3) as cluster:
        yield cluster


@pytest.mark.served(functions.KILLED)
@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"], indirect=True)
def test_a_leader_that_is_killed_loses_nothing_that_was_acknowledged(three: ServedCluster, client: KafkaClient) -> None:
    """Without kafka-python, which never closes the socket of a connection that was refused: the warning comes in other tests."""
    topic = f"killed-under-{client.name}"
    three.create_topic(topic, 1, {"min.insync.replicas": 2})
    acknowledged: list[tuple[int, bytes | None]] = []
    is_over = threading.Event()

    def produce() -> None:
        for number in itertools.takewhile(lambda _: not is_over.is_set(), itertools.count(step=50)):
            records = [Sent(value=b"%d" % each) for each in range(number, number + 50)]
            with contextlib.suppress(RefusedError):  # then nobody knows which of them are there
                offsets = client.produce(three.bootstrap_servers, topic, records, How(is_idempotent=True))
                acknowledged.extend(zip(offsets, [record.value for record in records], strict=True))

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        eventually(lambda: len(acknowledged) >= 200)
        leader = three.leader(topic)
        three.kill(leader)
        before = len(acknowledged)
        eventually(lambda: len(acknowledged) >= before + 200)
    finally:
        is_over.set()
        producing.join()
    three.restart(leader)
    found = three.read_all(topic)
    assert set(acknowledged) <= set(found)
    assert len({value for _, value in found}) == len(found)
    assert [(got.offset, got.value) for got in client.consume(three.bootstrap_servers, topic, 0, len(found))] == found
