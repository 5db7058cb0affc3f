"""Who looks for the coordinator of a group finds a broker; of transactions there is none, and what to do is said."""

from __future__ import annotations

import pytest
from kafka_node_kit import serving

from replog.errors import ErrorCode
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.protocol.handlers.coordinators import find_coordinator, refuse_find_coordinator
from replog.protocol.handlers.node import Call, Failure
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.primitives import Reader, Writer

TRANSACTION, SHARE = 1, 2
TRANSACTIONAL = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def as_sent(response: FindCoordinatorResponse, version: int) -> FindCoordinatorResponse:
    """What a client of this version reads."""
    writer = Writer()
    response.write(writer, version)
    return FindCoordinatorResponse.read(Reader(memoryview(writer.joined())), version)


@pytest.mark.parametrize("version", FindCoordinatorRequest.VERSIONS)
async def test_there_is_none_of_transactions(version: int) -> None:
    keys = ["a", "b"] if version >= 4 else []
    request = FindCoordinatorRequest(key="a", key_type=TRANSACTION, coordinator_keys=keys)
    found = as_sent(await find_coordinator(None, request, Call(version, "")), version)  # type: ignore[arg-type]
    if version >= 4:
        assert [(each.key, each.error_code) for each in found.coordinators] == [
            ("a", TRANSACTIONAL),
            ("b", TRANSACTIONAL),
        ]
        assert all("leave transactional.id out" in (each.error_message or "") for each in found.coordinators)
    else:
        assert (found.error_code, found.node_id, found.coordinators) == (TRANSACTIONAL, -1, [])
        assert version == 0 or "leave transactional.id out" in (found.error_message or "")


async def test_a_group_is_found_in_every_version_and_the_topic_is_made_by_the_first() -> None:
    async with serving(offsets_topic_num_partitions=2) as it:
        host, _, port = it.node.address.rpartition(":")
        at = (1, host, int(port), ErrorCode.NONE)
        for version in FindCoordinatorRequest.VERSIONS:
            asked = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"] if version >= 4 else [])
            found = await it.ask(asked, version, FindCoordinatorResponse)
            told = found.coordinators if version >= 4 else [found]
            assert [(each.node_id, each.host, each.port, each.error_code) for each in told] == [at] * len(told)
            assert [each.key for each in found.coordinators] == asked.coordinator_keys
        topic = it.kafka.image.topics_by_name[OFFSETS_TOPIC]
        assert {number: each.replicas for number, each in topic.partitions.items()} == {0: (1,), 1: (1,)}


async def test_a_group_without_a_name_and_a_group_of_another_kind_are_refused() -> None:
    async with serving() as it:
        found = await it.ask(FindCoordinatorRequest(coordinator_keys=[""]), 6, FindCoordinatorResponse)
        assert found.coordinators[0].error_code == ErrorCode.INVALID_GROUP_ID
        asked = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=["g"])
        found = await it.ask(asked, 6, FindCoordinatorResponse)
        assert found.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
        assert OFFSETS_TOPIC not in it.kafka.image.topics_by_name


async def test_a_topic_that_cannot_be_made_is_a_reason_to_come_again() -> None:
    async with serving(offsets_topic_replication_factor=3) as it:
        found = await it.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 6, FindCoordinatorResponse)
        assert [each.error_code for each in found.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        assert "replication factor 3 is more than the 1 usable brokers" in found.coordinators[0].error_message


@pytest.mark.parametrize("keys", [[], ["a"]])
def test_a_request_that_failed_is_answered_in_the_shape_of_its_version(keys: list[str]) -> None:
    failed = refuse_find_coordinator(
        FindCoordinatorRequest(coordinator_keys=keys), Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug")
    )
    found = [each.error_code for each in failed.coordinators] or [failed.error_code]
    assert found == [ErrorCode.UNKNOWN_SERVER_ERROR]
