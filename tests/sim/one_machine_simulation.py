"""`data_cluster_simulation` without an fsync on the way of an acknowledgement (`flush.policy=auto`): any process may be
killed, and one machine, always the same, lose power again and again.  Replication must protect against that.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.one_machine_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.one_machine_simulation --seed 4711 --log
"""

from __future__ import annotations

import sys
from dataclasses import replace

from tests.sim.data_cluster_simulation import NODES, DataSimulation
from tests.sim.metadata_cluster_simulation import Swarm, main


class OneMachineSimulation(DataSimulation):
    """One run.

    Attributes:
        machine: the node that may lose power.
    """

    settings = {**DataSimulation.settings, "flush.policy": "auto"}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.one_machine_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        super().__init__(seed, swarm)
        self.swarm = replace(self.swarm, mains=0.0)
        self.machine = self.rng.choice(NODES)

    async def _fault(self, node_id: int) -> None:
        drawn = self.swarm
        if node_id != self.machine:
            self.swarm = replace(drawn, power_cut=0.0, cut_in_write=0.0)
        try:
            await super()._fault(node_id)
        finally:
            self.swarm = drawn


if __name__ == "__main__":
    sys.exit(main(OneMachineSimulation))
