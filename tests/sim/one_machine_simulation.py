"""`data_cluster_simulation` without an fsync on the way of an acknowledgement (`flush.policy=auto`): any process may be
killed, and one machine, always the same, lose power again and again.  Replication must protect against that.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.one_machine_simulation --seeds 1000 --first 0
    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.one_machine_simulation --seed 4711 --log
"""

from __future__ import annotations

import sys

from tests.sim.campaign import main
from tests.sim.cluster_swarm import ONE_MACHINE
from tests.sim.data_cluster_simulation import ONE_TOPIC, DataSimulation


class OneMachineSimulation(DataSimulation):
    """One run."""

    fixed = {**ONE_TOPIC, **ONE_MACHINE}  # noqa: RUF012 -- as the base class says
    command = "tests.sim.one_machine_simulation"


if __name__ == "__main__":
    sys.exit(main(OneMachineSimulation))
