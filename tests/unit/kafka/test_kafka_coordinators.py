"""Whoever looks for the coordinator of a group or of a transactional id finds a broker."""

from __future__ import annotations

import pytest
from kafka_node_kit import serving

from replog.errors import ErrorCode
from replog.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog.protocol.handlers.coordinators import refuse_find_coordinator
from replog.protocol.handlers.node import Failure
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

TRANSACTION, SHARE = 1, 2


async def test_a_transactional_id_is_found_in_every_version_that_knows_them() -> None:
    async with serving(transaction_state_log_num_partitions=2) as it:
        host, _, port = it.node.address.rpartition(":")
        at = (1, host, int(port), ErrorCode.NONE)
        for version in range(1, FindCoordinatorRequest.VERSIONS.stop):
            keys = ["a", "b"] if version >= 4 else []
            asked = FindCoordinatorRequest(key="a", key_type=TRANSACTION, coordinator_keys=keys)
            found = await it.ask(asked, version, FindCoordinatorResponse)
            told = found.coordinators if version >= 4 else [found]
            assert [(each.node_id, each.host, each.port, each.error_code) for each in told] == [at] * len(told)
        assert len(it.kafka.image.topics_by_name[TRANSACTIONS_TOPIC].partitions) == 2
        assert OFFSETS_TOPIC not in it.kafka.image.topics_by_name


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
