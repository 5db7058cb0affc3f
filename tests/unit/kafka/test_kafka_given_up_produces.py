"""Produces whose client has gone: what they hold of the memory for requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka_node_kit import Served, batch, serving

from replog.broker.requests.kafka_node import LocalKafkaNode
from replog.log import Log
from replog.rpc.messages import ACKS_ALL, ProducePartition, ProduceRequest, ProduceResponse
from replog.waiting.byte_semaphore import ByteSemaphore

DATA = batch(b"v" * 1000)


async def begun(it: Served) -> asyncio.Task[ProduceResponse]:
    """A produce that the node has taken up."""
    topic_id = it.kafka.image.topics_by_name["t"].topic_id
    request = ProduceRequest(0, 5000, ACKS_ALL, (ProducePartition(topic_id, 0),), (DATA,))
    task = asyncio.create_task(it.kafka.produce(request))
    await asyncio.sleep(0)
    return task


async def test_what_waits_for_a_slow_disk_is_held_though_its_client_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: clients that give up and come back with the same batches do not fill the memory of a broker with a slow disk."""
    async with serving() as it:
        await it.create()
        request_bytes, stepper = it.node.parts.requests.credits, it.node.parts.replicas.stepper
        with monkeypatch.context() as disk:
            disk.setattr(Log, "is_behind_write_back", property(lambda _: True))
            tasks = [await begun(it) for _ in range(3)]
            await stepper.driver.call(lambda: None)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            assert request_bytes.held_bytes == 3 * len(DATA)
        (replica,) = stepper.replicas.values()
        await stepper.driver.call(lambda: stepper.written_back(replica))
        await it.until(lambda: not request_bytes.held_bytes)
        assert await it.produce(batch()) == 3


async def test_nothing_is_held_where_the_answer_comes_before_the_client_is_missed() -> None:
    answers: list[Callable[[ProduceResponse], None]] = []
    parts = SimpleNamespace(
        config=SimpleNamespace(kafka_fetch_sessions=0),
        fetch_path=SimpleNamespace(movements=None),
        coordinators=None,
        joins=None,
        credits=ByteSemaphore(1),
        produces=SimpleNamespace(submit=lambda _, answer, *_others: answers.append(answer)),
    )
    node = LocalKafkaNode(cast("Any", parts), cast("Any", None), (), random.Random(1))
    task = asyncio.create_task(node.produce(ProduceRequest(0, 5000, ACKS_ALL, (), (DATA,))))
    await asyncio.sleep(0)
    task.cancel()
    answers[0](ProduceResponse(0, ()))
    await asyncio.wait([task])
    assert task.cancelled()
    assert not parts.credits.held_bytes
