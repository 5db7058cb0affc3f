"""A broker that has registered and does not run."""

from __future__ import annotations

import asyncio
from uuid import UUID

from kafka_node_kit import Served

from replog.controller.requests import RegisterBroker
from replog.metadata.features import SUPPORTED_FEATURES
from replog.metadata.records import CLIENT_LISTENER, BrokerEndpoint


async def register(it: Served, broker_id: int) -> None:
    """Registers it, and waits until the node knows of it; it stays fenced."""
    request = RegisterBroker(
        broker_id,
        it.kafka.cluster_id,
        UUID(int=broker_id),
        "127.0.0.1",
        1,
        (UUID(int=broker_id + 1000),),
        supported_features=SUPPORTED_FEATURES,
        endpoints=(BrokerEndpoint(CLIENT_LISTENER, "elsewhere", 9092),),
    )
    await it.node.parts.metadata.controller.submit(request, timeout_ms=5000)  # type: ignore[union-attr]  # it has one
    async with asyncio.timeout(60):
        while broker_id not in it.kafka.image.brokers:
            await asyncio.sleep(0.001)
