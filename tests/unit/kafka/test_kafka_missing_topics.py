"""Metadata for topics that are not there, with `auto.create.topics.enable` and without, over a node's port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from kafka_node_kit import Served, serving

from replog.errors import ErrorCode, NotControllerError
from replog.metadata.image import MetadataImage
from replog.protocol.handlers import metadata
from replog.protocol.handlers.node import Call, KafkaNode
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse

Named = MetadataRequest.MetadataRequestTopic
MISSING, SOON = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE


async def asked(it: Served, *names: str, version: int = 12, may_create: bool = True) -> dict[str, int]:
    """The codes by topic."""
    request = MetadataRequest([Named(name=name) for name in names], allow_auto_topic_creation=may_create)
    answer = await it.ask(request, version, MetadataResponse)
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", MetadataRequest.VERSIONS)
async def test_a_missing_topic_is_created_where_that_is_set(version: int) -> None:
    async with serving(auto_create_topics_enable=True, num_partitions=3) as it:
        await it.create("old")
        assert await asked(it, "t", "old", "no/name", version=version) == {
            "t": SOON,
            "old": 0,
            "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        async with asyncio.timeout(60):
            while (await asked(it, "t", version=version))["t"]:
                await asyncio.sleep(0.001)
        assert len(it.kafka.image.topics_by_name["t"].partitions) == 3
        assert set(it.kafka.image.topics_by_name) == {"t", "old"}


async def test_nothing_is_created_unasked() -> None:
    async with serving() as it:
        assert await asked(it, "t") == {"t": MISSING}
        assert not it.kafka.image.topics_by_name
    async with serving(auto_create_topics_enable=True) as it:
        assert await asked(it, "t", may_create=False) == {"t": MISSING}
        await it.ask(MetadataRequest(None), 12, MetadataResponse)
        await it.ask(MetadataRequest([]), 12, MetadataResponse)
        await it.create("after")
        assert set(it.kafka.image.topics_by_name) == {"after"}


async def test_a_topic_that_cannot_be_created_is_told_so() -> None:
    async with serving(auto_create_topics_enable=True, default_replication_factor=3) as it:
        assert await asked(it, "t") == {"t": ErrorCode.INVALID_REPLICATION_FACTOR}


async def test_one_request_creates_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "CREATED_MAX", 2)
    async with serving(auto_create_topics_enable=True) as it:
        assert await asked(it, "a", "b", "c") == {"a": SOON, "b": SOON, "c": MISSING}


async def test_without_a_controller_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(auto_create_topics_enable=True) as it:
        await it.create("old")

        async def failing(*_: object) -> None:
            raise NotControllerError("an election is under way")

        monkeypatch.setattr(it.kafka, "change", failing)
        assert await asked(it, "old", "t") == {"old": 0, "t": MISSING}


async def test_a_broker_that_is_gone_when_the_topics_are_there_spoils_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(auto_create_topics_enable=True) as it:

        async def create_and_lose(node: KafkaNode, names: Sequence[str], _call: Call) -> dict[str, ErrorCode]:
            monkeypatch.setattr(type(node), "image", MetadataImage())
            return dict.fromkeys(names, SOON)

        monkeypatch.setattr(metadata, "_create", create_and_lose)
        assert await asked(it, "t") == {"t": SOON}
