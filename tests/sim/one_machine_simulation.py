"""`data_cluster_simulation` without an fsync on the way of an acknowledgement (`flush.policy=auto`): any process may be
killed, and one machine, always the same, lose power again and again.  Replication must protect against that.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.one_machine_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.one_machine_simulation --seed 4711 --log
"""

from __future__ import annotations

import sys

from tests.sim.campaign import main
from tests.sim.cluster_swarm import Swarm
from tests.sim.data_cluster_simulation import ONE_TOPIC, DataSimulation
from tests.sim.fault_schedule import Fault, FaultDrawer


class OneMachineSimulation(DataSimulation):
    """One run.

    Attributes:
        machine: the node that may lose power.
    """

    settings = {**DataSimulation.settings, "flush.policy": "auto"}  # noqa: RUF012 -- as the base class says
    fixed = {**ONE_TOPIC, "mains": 0.0, "wipe": 0.0, "min_isr": 2}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.one_machine_simulation"

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        super().__init__(seed, swarm)
        self.machine = self.rng.choice(self.swarm.nodes)

    def draw_schedule(self, drawer: FaultDrawer) -> tuple[Fault, ...]:
        return drawer.draw(frail=(self.machine,))


if __name__ == "__main__":
    sys.exit(main(OneMachineSimulation))
