"""Producer ids for idempotent producers, from blocks that the controller hands out (docs/KAFKA.md 6.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from replog.broker.controller.channel import ControllerChannel
from replog.controller.requests import AllocateProducerIds, AllocateProducerIdsResponse
from replog.rpc.messages import InitProducerIdResponse


class ProducerIdAllocator:
    """Hands out each producer id once; asks for a new block when the last is used up."""

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], channel: ControllerChannel) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def allocate(self, timeout_ms: int) -> InitProducerIdResponse:
        """Hands out a producer id that no other producer has.

        Raises:
            RequestTimedOutError: No controller answered in time.
        """
        async with self._lock:
            if self._next >= self._end:
                request = AllocateProducerIds(self._broker_id, self._broker_epoch())
                block = await self._channel.send(request, AllocateProducerIdsResponse, timeout_ms=timeout_ms)
                self._next, self._end = block.first_producer_id, block.first_producer_id + block.count
            producer_id = self._next
            self._next += 1
        return InitProducerIdResponse(producer_id, 0)
