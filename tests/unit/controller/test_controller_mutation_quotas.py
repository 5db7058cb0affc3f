"""`controller_mutation_rate`: who creates and deletes too many partitions is refused or told to wait (KIP-599)."""

from __future__ import annotations

import pytest
from controller_kit import Quorum

from replog.controller.request_parts import divided
from replog.controller.requests import (
    AlterClientQuotas,
    AlteredQuota,
    AlteredQuotaEntity,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    MutatingClient,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from replog.errors import ErrorCode
from replog.metadata.records import QuotaEntityPart

STRICT, PERMISSIVE = MutatingClient("alice", "loader", True), MutatingClient("alice", "loader", False)  # noqa: FBT003
REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.fixture
def quorum() -> Quorum:
    """A cluster in which each user may change a partition a second, eleven at once."""
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    limit(quorum, 1.0)
    return quorum


def limit(quorum: Quorum, rate: float | None) -> None:
    entity = AlteredQuotaEntity((QuotaEntityPart("user", None),), (AlteredQuota("controller_mutation_rate", rate),))
    quorum.ask(AlterClientQuotas((entity,)))


def created(
    quorum: Quorum, partitions: int, *names: str, client: MutatingClient | None = STRICT, validate_only: bool = False
) -> tuple[list[ErrorCode], int]:
    """The results of topics with so many partitions each, and the throttle time."""
    topics = tuple(NewTopic(name, partitions, 1) for name in names)
    answer = quorum.ask(CreateTopics(topics, validate_only, client))
    assert isinstance(answer, CreateTopicsResponse)
    return [one.error for one in answer.topics], answer.throttle_time_ms


def test_a_strict_request_is_done_until_there_is_a_debt_and_the_others_are_refused(quorum: Quorum) -> None:
    assert created(quorum, 6, "a", "b", "c", "d") == ([ErrorCode.NONE, ErrorCode.NONE, REFUSED, REFUSED], 1_000)
    quorum.now_ms += 900
    assert created(quorum, 1, "c") == ([REFUSED], 100)
    quorum.now_ms += 100
    assert created(quorum, 1, "c") == ([ErrorCode.NONE], 0)


def test_a_permissive_request_is_done_and_its_client_waits(quorum: Quorum) -> None:
    assert created(quorum, 6, "a", "b", "c", client=PERMISSIVE) == ([ErrorCode.NONE] * 3, 7_000)
    assert created(quorum, 1, "d", client=PERMISSIVE) == ([ErrorCode.NONE], 8_000)
    assert created(quorum, 1, "e") == ([REFUSED], 8_000)


def test_new_and_deleted_partitions_count_as_those_of_new_topics_do(quorum: Quorum) -> None:
    created(quorum, 5, "a", "b", client=None)
    grown = quorum.ask(CreatePartitions((NewPartitions("a", 11), NewPartitions("b", 10)), client=STRICT))
    assert isinstance(grown, CreatePartitionsResponse)
    assert ([one.error for one in grown.topics], grown.throttle_time_ms) == ([ErrorCode.NONE] * 2, 0)
    deleted = quorum.ask(DeleteTopics(("a", "b"), client=STRICT))
    assert isinstance(deleted, DeleteTopicsResponse)
    assert [one.error for one in deleted.topics] == [ErrorCode.NONE, REFUSED]
    assert deleted.throttle_time_ms == 11_000


def test_what_is_only_judged_counts_as_in_kafka_and_what_is_refused_does_not(quorum: Quorum) -> None:
    assert created(quorum, 12, "a", validate_only=True) == ([ErrorCode.NONE], 0)
    assert created(quorum, 1, "a") == ([REFUSED], 1_000)
    quorum.now_ms += 12_000
    assert created(quorum, 20, "no/name") == ([ErrorCode.INVALID_TOPIC_EXCEPTION], 0)
    assert created(quorum, 11, "a") == ([ErrorCode.NONE], 0)


def test_clients_without_the_quota_and_nodes_are_not_counted(quorum: Quorum) -> None:
    for client in (None, STRICT):
        if client is not None:
            limit(quorum, None)
        for number in range(3):
            name = f"t-{number}-{client is None}"
            assert created(quorum, 50, name, client=client) == ([ErrorCode.NONE], 0)


def test_a_large_request_in_parts_tells_the_longest_wait() -> None:
    request = CreateTopics(tuple(NewTopic(f"t{number}", 600, 1) for number in range(3)), client=STRICT)
    parts = divided(request, lambda _: ())
    assert parts is not None
    assert [one.client for one in parts.requests if isinstance(one, CreateTopics)] == [STRICT] * 3
    results = [TopicResult(topic.name, REFUSED) for topic in request.topics]
    told = [CreateTopicsResponse((one,), wait_ms) for one, wait_ms in zip(results, (0, 70, 5), strict=True)]
    assert parts.answer(told) == CreateTopicsResponse(tuple(results), 70)
