"""What does it cost to have a past?"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.tables import SNAPSHOTS_MAX, CopiedDict, PlainDict, TableSystem, Timeline

ENTRIES = 100_000
WRITES_OF = {0: 200_000, 1: 500, 100: 20_000, 10_000: 100_000}
"""Writes between two snapshots (0: no snapshots) -> writes timed: whole tables are copied, which takes its time."""
WRITTEN = -1
WRITE_NS = Metric("write_ns", "ns")
READ_NS = Metric("read_ns", "ns")
REVERT_US = Metric("revert_us", "µs")
BYTES_PER_CHANGED_KEY = Metric("bytes_per_changed_key", "B")


class TimelineScenario(Scenario[TableSystem]):
    """Writes, reads and takes back values of a table of many entries.

    Reads of the past are at the oldest of the snapshots kept, between which a tenth of the table changed each time.
    Writes and reads are timed with the loop around them, which is the same for all, over the keys in their order: in a
    random order the caches of the processor would cost more than any of the tables, and hide what they cost.

    Args:
        entries: of the table.
    """

    name = "timeline"
    question = "What does a table cost that can be read as it was, beside a dict, and beside copies of it?"

    def __init__(self, entries: int = ENTRIES) -> None:
        self._entries = entries
        self._systems: list[TableSystem] = [Timeline(), PlainDict(), CopiedDict()]
        self._operations: dict[str, Callable[[TableSystem, Params, Meter], Measured]] = {
            "write": self._write,
            "read": self._read,
            "read_past": self._read_past,
            "revert": self._revert,
            "memory": self._memory,
        }

    def systems(self) -> Sequence[TableSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        writes: list[Params] = [{"operation": "write", "snapshot_every": every} for every in WRITES_OF]
        changed: list[Params] = [
            {"operation": operation, "changed": changed}
            for operation in ("revert", "memory")
            for changed in (100, 10_000)
        ]
        return [*writes, {"operation": "read"}, {"operation": "read_past"}, *changed]

    def measure(self, system: TableSystem, params: Params, meter: Meter) -> Measured:
        needs_past = params["operation"] not in {"read", "write"} or params.get("snapshot_every", 0) != 0
        if needs_past and not system.has_past:
            return {}
        system.clear()
        for key in range(self._entries):
            system.table[key] = key
        return self._operations[str(params["operation"])](system, params, meter)

    def _write(self, system: TableSystem, params: Params, meter: Meter) -> Measured:
        every = int(params["snapshot_every"])
        keys = self._keys(min(WRITES_OF[every], 10 * self._entries))
        with meter.timed() as timing:
            if every == 0:
                _write_all(system, keys)
            for start in range(0, len(keys), every) if every else ():
                system.snapshot(start)
                _write_all(system, keys[start : start + every])
        if system.table[keys[-1]] != WRITTEN:
            raise WrongResultError(f"{system.name} lost the last write")
        return {WRITE_NS: timing.wall_s / len(keys) * 1e9}

    def _read(self, system: TableSystem, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- one case only
        keys, table = self._keys(2 * self._entries), system.table
        with meter.timed() as timing:
            for key in keys:
                table[key]
        return {READ_NS: timing.wall_s / len(keys) * 1e9}

    def _read_past(self, system: TableSystem, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- one case only
        for epoch in range(SNAPSHOTS_MAX):
            system.snapshot(epoch)
            _write_all(system, self._keys(self._entries // 10))
        keys, past = self._keys(self._entries), system.past(0)
        with meter.timed() as timing:
            for key in keys:
                past[key]
        self._check(system, past)
        return {READ_NS: timing.wall_s / len(keys) * 1e9}

    def _revert(self, system: TableSystem, params: Params, meter: Meter) -> Measured:
        system.snapshot(0)
        _write_all(system, range(min(int(params["changed"]), self._entries)))
        with meter.timed() as timing:
            system.revert(0)
        self._check(system, system.table)
        return {REVERT_US: timing.wall_s * 1e6}

    def _memory(self, system: TableSystem, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- bytes, not time
        keys = range(min(int(params["changed"]), self._entries))
        tracemalloc.start()
        try:
            system.snapshot(0)
            for key in keys:
                system.table[key] = WRITTEN  # one object for all: only the past costs memory
            size_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        self._check(system, system.past(0))
        return {BYTES_PER_CHANGED_KEY: size_bytes / len(keys)}

    def _check(self, system: TableSystem, table: object) -> None:
        if table != {key: key for key in range(self._entries)}:
            raise WrongResultError(f"{system.name} does not remember the table as it was")

    def _keys(self, count: int) -> list[int]:
        return [number % self._entries for number in range(count)]


def _write_all(system: TableSystem, keys: Sequence[int]) -> None:
    table = system.table
    for key in keys:
        table[key] = WRITTEN


SCENARIO = TimelineScenario()
