"""`data_cluster_simulation` with somebody who asks any broker where the partition ends: no answer may be older than what
was acknowledged before the question.

This is what a broker's lease is for (`replog.broker.controller.broker_lifecycle`).  It ends by the broker's own clock, and a broker that stops in
order gives its leaderships away while it has one; so there are neither stalled clocks nor orderly stops here.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.fresh_ends_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.fresh_ends_simulation --seed 4711 --log
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Coroutine

from replog.errors import ErrorCode, ReplogError
from replog.rpc.messages import LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse
from tests.sim.campaign import main
from tests.sim.cluster_swarm import Swarm
from tests.sim.data_cluster_simulation import ONE_TOPIC, TOPIC, DataSimulation
from tests.sim.data_topics import Load, newest_image

QUESTION_INTERVAL_S = 0.04
QUESTION_TIMEOUT_MS = 500


class FreshEndsSimulation(DataSimulation):
    """One run."""

    fixed = {**ONE_TOPIC, "stop": 0.0, "stall": 0.0}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.fresh_ends_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        super().__init__(seed, swarm)
        self._asking = random.Random(seed)
        self._acknowledged_end = 0

    def _work(self, load: Load) -> list[Coroutine[None, None, None]]:
        return [*super()._work(load), *(self._ask(load, node_id) for node_id in self.swarm.brokers)]

    def acknowledged(self, offset: int) -> None:
        super().acknowledged(offset)
        self._acknowledged_end = max(self._acknowledged_end, offset + 1)

    async def _ask(self, load: Load, node_id: int) -> None:
        connection = self.cluster.client(f"asks-{node_id}").connection(node_id)
        topic_id = newest_image(self.cluster).topics_by_name[TOPIC].topic_id
        request = ListOffsetsRequest((ListOffsetsPartition(topic_id, 0, LATEST_TIMESTAMP),))
        while not load.is_stopping:
            await asyncio.sleep(self._asking.uniform(0, 2 * QUESTION_INTERVAL_S))
            acknowledged_end = self._acknowledged_end
            try:
                response = await connection.call(request, timeout_ms=QUESTION_TIMEOUT_MS)
            except ReplogError:
                continue
            if not isinstance(response, ListOffsetsResponse) or response.results[0].error is not ErrorCode.NONE:
                continue
            self.seen["end told"] += 1
            end_offset = response.results[0].offset
            if end_offset < acknowledged_end:
                self.checker.report(
                    f"stale_end: node {node_id} says that the partition ends at {end_offset}; offset"
                    f" {acknowledged_end - 1} was acknowledged before it was asked"
                )


if __name__ == "__main__":
    sys.exit(main(FreshEndsSimulation))
