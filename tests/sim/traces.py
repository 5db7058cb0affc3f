"""What some seeds of the simulations do, line by line: `test_traces.py` runs this in processes with different hash seeds.

::

    PYTHONHASHSEED=1 python -m tests.sim.traces forwards     # or backwards: a run is the same after any others
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from tests.sim import campaign, controller_simulation, quorum_simulation
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.group_simulation import GroupSimulation
from tests.sim.metadata_cluster_simulation import Simulation as MetadataSimulation
from tests.sim.shrinking import Case
from tests.sim.transaction_simulation import TransactionSimulation


def quorum(seeds: Iterable[int] = (7, 13, 21)) -> list[str]:
    lines = []
    for seed in seeds:
        simulation = quorum_simulation.Simulation(seed)
        simulation.run()
        lines.append(f"{seed} {simulation.trace} {sorted(simulation.seen.items())}")
    return lines


def controller() -> list[str]:
    simulation = controller_simulation.Simulation(7)
    simulation.run()
    return [str(simulation.trace)]


def metadata_cluster(seed: int) -> list[str]:
    simulation = MetadataSimulation(seed)
    with _without_logs():
        simulation.run()
    return [f"{simulation.trace} {simulation.loop.steps}"]


def whole_cluster(simulation: MetadataSimulation) -> list[str]:
    with _without_logs():
        campaign.run_seed(simulation, Counter())
    return [str(simulation.trace)]


def data_cluster() -> list[str]:
    """Faults, what clients did and saw, what the metadata say and what nodes log, each with its virtual time."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        campaign._run_one(Case.of_seed(1, DataSimulation), DataSimulation, is_logged=True)  # as --seed 1 --log does
    return [line for line in said.getvalue().splitlines() if re.match(r" *\d+\.\d{6} ", line)]


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


TRACES: Mapping[str, Callable[[], list[str]]] = {
    "quorum": quorum,
    "controller": controller,
    "metadata cluster, seed 2": lambda: metadata_cluster(2),
    "metadata cluster, seed 3": lambda: metadata_cluster(3),
    "groups": lambda: whole_cluster(GroupSimulation(3)),
    "transactions": lambda: whole_cluster(TransactionSimulation(16)),
    "data cluster": data_cluster,
}


def main() -> int:
    """Prints all traces as JSON."""
    names = list(TRACES)
    if sys.argv[1] == "backwards":
        names.reverse()
    traces = {name: TRACES[name]() for name in names}
    print(json.dumps(traces))
    return 0


if __name__ == "__main__":
    sys.exit(main())
