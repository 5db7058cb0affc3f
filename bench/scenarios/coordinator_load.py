"""What does a coordinator pay for each name that it loads: transactional ids beside committed offsets?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.coordinator_logs import CommittedOffsets, CoordinatorLog, TransactionalIds

RECORDS = 1_000_000
CPU_US_PER_RECORD = Metric("cpu_us_per_record", "µs")
LOADED_PER_S = Metric("records_per_s", "1/s")


class CoordinatorLoadScenario(Scenario[CoordinatorLog]):
    """One coordinator loads a log of a million names, one record each, from the bytes of its batches in memory.

    Args:
        records: The number of names.
    """

    name = "coordinator-load"
    question = "What does a coordinator pay for each name that it loads: transactional ids beside committed offsets?"

    def __init__(self, records: int = RECORDS) -> None:
        self._records = records
        self._systems: list[CoordinatorLog] = [TransactionalIds(), CommittedOffsets()]

    def systems(self) -> Sequence[CoordinatorLog]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"records": self._records}]

    def measure(self, system: CoordinatorLog, params: Params, meter: Meter) -> Measured:
        count = int(params["records"])
        batches = system.batches(count)
        with meter.timed() as timing:
            serves = system.load(batches, count)
        if not serves:
            raise WrongResultError(f"the coordinator of {count} {system.name} does not serve behind its load")
        return {CPU_US_PER_RECORD: timing.cpu_s / count * 1e6, LOADED_PER_S: count / timing.wall_s}


SCENARIO = CoordinatorLoadScenario()
