"""Every machine loses power at once under load, without an fsync on the way of an acknowledgement, and comes back when it
does.  What was acknowledged may be lost then; what the disk of any member of ISR or ELR has kept must not be.

The controller waits for all of them and elects the longest log (a `recovered` election), and must not take those for dead
that are only slower to start; who does not come back within its session is given up.  `min.insync.replicas=1`, so that
nobody is eligible but the ISR.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.blackout_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.blackout_simulation --seed 4711 --log
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from tests.sim.campaign import main
from tests.sim.cluster_swarm import Swarm
from tests.sim.data_cluster_simulation import ONE_TOPIC, DataSimulation

LOAD_S = (0.5, 2.0)
DARK_MAX_S = 1.5
SESSION_MS = 5_000
"""All come back before the first of them is given up for lost."""


class BlackoutSimulation(DataSimulation):
    """One run."""

    settings = {**DataSimulation.settings, "broker.session.timeout.ms": SESSION_MS}  # noqa: RUF012 -- as the base class says
    fixed = {**ONE_TOPIC, "flush_policy": "auto", "min_isr": 1}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.blackout_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        super().__init__(seed, swarm)
        self.swarm = replace(self.swarm, slow_thread=max(self.swarm.slow_thread, 0.2))
        self._is_dark = False

    def acknowledged(self, offset: int) -> None:
        if not self._is_dark:  # else it was on its way
            super().acknowledged(offset)

    def _knows_all(self) -> bool:
        """No change of the metadata is on its way: one that commits after the power cut may have ended a membership before."""
        running = self.cluster.running
        ends = {node.parts.metadata.log.log_end_offset for node in running}
        return self.cluster.is_settled() and ends == {running[0].image.end_offset}

    async def _run(self) -> None:
        cluster = self.cluster
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await self._settle()
        await self._create_topic()
        load = self._load()
        task = asyncio.create_task(load.produce())
        await self._watch(self.rng.uniform(*LOAD_S))
        await self._until(self._knows_all, "metadata do not commit")
        for node_id in cluster.nodes:
            cluster.crash(node_id)
        task.cancel()
        self._is_dark = True
        self.checker.replication.lose_power()
        self.seen["power cut of everything"] += 1
        for node_id in cluster.nodes:
            self.loop.call_later(self.rng.uniform(0, DARK_MAX_S), cluster.start, node_id)
        await self._watch(DARK_MAX_S)
        self._is_healed = True
        await self.performer.heal()
        await self._settle()
        await self._until(self._is_in_sync, "the ISR is not whole")
        self.checker.replication.check_end()
        self.checker.check()
        self.seen["acknowledged"] += self.history.acknowledged_count


if __name__ == "__main__":
    sys.exit(main(BlackoutSimulation))
