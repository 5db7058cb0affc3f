"""Groups whose coordinator resolves the patterns of its members (KIP-848): with our brokers, and in campaigns (`mark.campaign`) with Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from brokers import Broker
from confluent_kafka import Consumer, Producer
from kafka_install import KafkaInstall
from raw_client import RawClient, raw_client

from replog.errors import ErrorCode
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.kafka.line_driver import Driver, DriverError, driver

pytestmark = pytest.mark.cluster
pytest.importorskip("re2", reason="the extra replog[patterns] is not installed")

TIMEOUT_S = 60
VERSION = 1
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with raw_client(broker.servers) as found:
        yield found


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that a broker does."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


class Member:
    """A member of a group that speaks when it is told to, with what it has got so far as its own.

    Attributes:
        topics: The ids of the topics that it has.
    """

    def __init__(self, client: RawClient, group: str, pattern: str | None) -> None:
        self._client, self._group = client, group
        self._id, self._epoch = f"{group}-member", 0
        self.topics: dict[UUID, list[int]] = {}
        until(self._finds_coordinator)
        self.first = self.beat(rebalance_timeout_ms=30_000, subscribed_topic_regex=pattern)

    def _finds_coordinator(self) -> bool:
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        (found,) = self._client.ask(asked, 4, FindCoordinatorResponse).coordinators
        return bool(found.error_code == 0)

    def beat(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        owned = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id, numbers)
            for topic_id, numbers in self.topics.items()
        ]
        request = ConsumerGroupHeartbeatRequest(
            self._group,
            self._id,
            self._epoch,
            topic_partitions=owned,
            **fields,  # type: ignore[arg-type] -- of any field
        )
        answers: list[ConsumerGroupHeartbeatResponse] = []

        def is_served() -> bool:
            answers.append(self._client.ask(request, VERSION, ConsumerGroupHeartbeatResponse))
            return answers[-1].error_code not in NOT_YET

        until(is_served)
        answer = answers[-1]
        if answer.error_code == 0:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self.topics = {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}
        return answer

    def has(self, topics: set[UUID]) -> bool:
        """Whether it has these topics after one more heartbeat."""
        assert self.beat().error_code == 0
        return self.topics.keys() == topics


def made(broker: Broker, *names: str) -> set[UUID]:
    return {broker.create(f"{name}-{broker.name}", 1, {}) for name in names}


def test_a_pattern_has_to_match_the_whole_name(broker: Broker, client: RawClient) -> None:
    found = made(broker, "whole-a", "whole-b")
    made(broker, "not-whole-a")
    member = Member(client, "whole", "whole-.*")
    until(lambda: member.has(found))
    member.beat(subscribed_topic_regex=f"(?i)WHOLE-[A]-{broker.name}")
    until(lambda: len(member.topics) == 1 or member.has(set()))


def test_internal_topics_are_matched_too(broker: Broker, client: RawClient) -> None:
    member = Member(client, "internal", "__consumer_off.*")
    until(lambda: member.beat().error_code == 0 and len(member.topics) == 1)


@pytest.mark.parametrize("pattern", ["(", "[a", r"(a)\1", "(?=a)b", "a**b", "(?<!a)b"])
def test_what_is_no_pattern_is_refused(broker: Broker, client: RawClient, pattern: str) -> None:
    answer = Member(client, "refused", pattern).first
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message


def test_a_member_says_what_it_reads_be_it_nothing(broker: Broker, client: RawClient) -> None:
    """A client that matches names itself may have found none yet."""
    assert Member(client, f"silent-{broker.name}", None).first.error_code == ErrorCode.INVALID_REQUEST
    assert Member(client, f"nothing-{broker.name}", "").first.error_code == ErrorCode.NONE


def test_confluents_consumer_subscribes_by_pattern(broker: Broker) -> None:
    """Goal: librdkafka hands a pattern to the coordinator; a topic that is made later is read, too."""
    made(broker, "flights-one", "other-flights")
    producer = Producer({"bootstrap.servers": broker.servers})
    settings = {"group.id": f"by-pattern-{broker.name}", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.servers, **settings})
    try:
        consumer.subscribe(["^flights-.*"])
        for name in ("flights-one", "flights-two"):
            made(broker, name) if name == "flights-two" else None
            producer.produce(f"{name}-{broker.name}", name)
            producer.produce(f"other-flights-{broker.name}", "other")
            assert producer.flush(TIMEOUT_S) == 0
            (message,) = consumer.consume(1, TIMEOUT_S)
            assert (message.error(), message.value()) == (None, name.encode())
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def java(kafka: KafkaInstall, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Kafka's clients in Java."""
    with driver(kafka.command("KafkaDriver", broker.servers), tmp_path_factory.mktemp("java")) as found:
        yield found


def test_java_s_consumer_subscribes_by_pattern(broker: Broker, client: RawClient, java: Driver) -> None:
    """Goal: `subscribe(SubscriptionPattern)` reads what matches, and also a topic that is made while it reads."""
    group = f"java-pattern-{broker.name}"
    producer = Producer({"bootstrap.servers": broker.servers})

    def reads() -> bool:
        asked = ConsumerGroupDescribeRequest([group])
        (found,) = client.ask(asked, VERSION, ConsumerGroupDescribeResponse).groups
        return any(each.assignment.topic_partitions for each in found.members)

    made(broker, "java-one", "other-java")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(java.ask, "read-by-pattern", group, "java-.*", 2)
        until(reads)
        made(broker, "java-two")
        for name in ("other-java", "java-one", "java-two"):
            producer.produce(f"{name}-{broker.name}", name)
        assert producer.flush(TIMEOUT_S) == 0
        assert {bytes.fromhex(each) for each in reading.result(TIMEOUT_S)} == {b"java-one", b"java-two"}


def test_java_s_consumer_is_told_that_a_pattern_is_none(java: Driver, broker: Broker) -> None:
    with pytest.raises(DriverError, match="InvalidRegularExpression"):
        java.ask("read-by-pattern", f"java-none-{broker.name}", "a**b", 1)
