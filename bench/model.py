"""What is measured: scenarios, systems under test, metrics, and the rows that come out.

A `Scenario` asks one performance question of several `System`s under several parameters.  The harness decides when and
how often; a scenario only knows how to do the work once, check that it was done, and say what it cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from bench.meter import Meter, Timing

Params: TypeAlias = Mapping[str, str | int | float]
"""What distinguishes the cases of a scenario, such as {"record_bytes": 1024}; units last in the names."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity; the name carries the unit's meaning, `unit` is what a table shows."""

    name: str
    unit: str


RECORDS_PER_S = Metric("records_per_s", "1/s")
MB_PER_S = Metric("mb_per_s", "MB/s")
CPU_S_PER_GB = Metric("cpu_s_per_gb", "s/GB")
BROKERS_CPU_S_PER_GB = Metric("brokers_cpu_s_per_gb", "s/GB")

Measured: TypeAlias = Mapping[Metric, float]
"""What one repetition found."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a result: the middle of `n` repetitions and how far they spread."""

    scenario: str
    system: str
    metric: str
    unit: str
    params: Params
    median: float
    low: float
    high: float
    n: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"params": dict(self.params)}


@dataclass(frozen=True, slots=True)
class Trace:
    """How often something happened in the course of one repetition.

    Attributes:
        first_s: where the first bin begins, from the moment that matters.
        bin_s: how wide a bin is.
        counts: of each bin.
    """

    scenario: str
    system: str
    params: Params
    first_s: float
    bin_s: float
    counts: Sequence[int]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"params": dict(self.params), "counts": list(self.counts)}


class System(ABC):
    """One thing under test.  Scenarios extend it by the operations that they need."""

    name: str

    def missing(self) -> str | None:
        """Why it cannot run here, None where it can.  A system that is missing is left out and named."""
        return None

    def start(self, directory: Path) -> None:  # noqa: B027 - a library has nothing to start
        """Makes it ready to be measured.  `directory` is empty, its own, and removed afterwards."""

    def stop(self) -> None:  # noqa: B027 - and nothing to stop
        """Ends everything that `start` began; also called after a failed measurement."""

    def durability(self) -> str:
        """What an acknowledgement of it means; told with the results, for speeds compare only where it is the same."""
        return ""

    def process_ids(self) -> Sequence[int]:
        """Processes of it beside this one, whose CPU time counts."""
        return ()

    def client_ids(self) -> Sequence[int]:
        """Processes that use it beside this one; their CPU time counts, but not as that of brokers."""
        return ()


SystemT = TypeVar("SystemT", bound=System)


class Scenario(ABC, Generic[SystemT]):
    """One performance question."""

    name: str
    question: str

    @abstractmethod
    def systems(self) -> Sequence[SystemT]:
        """The systems to compare, ours first."""

    @abstractmethod
    def cases(self) -> Sequence[Params]:
        """The parameters to try."""

    @abstractmethod
    def measure(self, system: SystemT, params: Params, meter: Meter) -> Measured:
        """Does the work once.  What stands inside `meter.timed()` counts; preparing and checking stand outside.

        Raises:
            WrongResultError: the system did not do what it was asked.
            NotOfferedError: the system has no such thing.
        """

    def warm_up(self, system: SystemT, params: Params, meter: Meter) -> None:
        """Makes a system ready for a case, before its first measurement; by default, a measurement that does not count.

        Raises:
            WrongResultError: the system did not do what it was asked.
            NotOfferedError: the system has no such thing.
        """
        self.measure(system, params, meter)

    def traces(self) -> Sequence[Trace]:
        """What happened when, where one number does not say it; asked for when all is measured."""
        return ()


class WrongResultError(Exception):
    """A system gave a wrong answer; its speed means nothing."""


class NotOfferedError(Exception):
    """A system has no such thing; it is left out of a case, and the message is told with the results."""


def throughput(timing: Timing, *, records: int, data_bytes: int) -> dict[Metric, float]:
    """Records and megabytes (10^6) per second of wall time, and CPU seconds per 10^9 bytes, of `data_bytes` moved."""
    return {
        RECORDS_PER_S: records / timing.wall_s,
        MB_PER_S: data_bytes / timing.wall_s / 1e6,
        CPU_S_PER_GB: timing.cpu_s / data_bytes * 1e9,
    }
