"""A large request goes through the controller in parts: none of its steps holds the loop, and others come in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kafka_node_kit import Served, serving

from replog.access.principal import Envelope
from replog.controller import request_parts
from replog.controller.controller import Controller
from replog.controller.messages import Message, Submit
from replog.controller.requests import (
    AlterPartitionReassignments,
    CreateTopics,
    ElectLeaders,
    ElectLeadersResponse,
    NewTopic,
    Reassignment,
)
from replog.errors import ErrorCode
from replog.metadata.records import ElectionType
from tests.envelopes import CLIENT, sender

TOPICS = 25


@asynccontextmanager
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Served, list[object]]]:
    """A node whose requests have parts of ten, and the requests that its controller was asked."""
    asked: list[object] = []
    step = Controller.step

    def noting(core: Controller, message: Message, now_ms: int) -> object:
        if isinstance(message, Submit):
            asked.append(message.request.change if isinstance(message.request, Envelope) else message.request)
        return step(core, message, now_ms)

    monkeypatch.setattr(request_parts, "PART", 10)
    monkeypatch.setattr(Controller, "step", noting)
    async with serving() as it:
        yield it, asked


async def test_a_large_request_is_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(monkeypatch) as (it, asked):
        create = CreateTopics(tuple(NewTopic(f"t{number}", 1, 1) for number in range(TOPICS)))
        small = CreateTopics((NewTopic("small", 1, 1),))
        made, _ = await asyncio.gather(
            it.kafka.change(create, 5_000, sender(CLIENT)), it.kafka.change(small, 5_000, sender(CLIENT))
        )
        assert [(each.name, each.error) for each in made.topics] == [(each.name, 0) for each in create.topics]
        sizes = [len(each.topics) for each in asked if isinstance(each, CreateTopics)]
        assert sizes == [5, 1, 5, 5, 5, 5]
        moves = AlterPartitionReassignments(tuple(Reassignment(f"t{number}", 0, (9,)) for number in range(TOPICS)))
        moved = await it.kafka.change(moves, 5_000, sender(CLIENT))
        assert [(each.topic, each.error) for each in moved.partitions] == [
            (each.topic, ErrorCode.INVALID_REPLICA_ASSIGNMENT) for each in moves.items
        ]
        assert await it.kafka.change(ElectLeaders(ElectionType.PREFERRED), 5_000, sender(CLIENT)) == (
            ElectLeadersResponse(())
        )
