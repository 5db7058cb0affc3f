"""How fast is a durable log inside a Python process?

The injected delay stands for a disk with a slower fsync than this machine's; SQLite's fsyncs cannot be delayed from here, so
it has no row in those cases.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.data import values
from bench.meter import Meter
from bench.model import Measured, Params, Scenario, WrongResultError, throughput
from bench.systems.local_logs import LocalLogSystem, Store, local_logs

RECORD_BYTES = 1024
AT_MOST_S = 1.5
"""About how long one repetition may take on the slowest system."""

_SYNC_S = 0.0003  # of this machine, for choosing how many records are appended


class OpenLogScenario(Scenario[LocalLogSystem]):
    """Appends records of 1 KiB, from one caller or from many tasks, and reads them back.

    Args:
        scale: share of the usual number of records, for trying it out.
    """

    name = "open-log"
    question = "How fast does a log in this process take and give records, with and without an fsync for each?"

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._systems = local_logs()

    def systems(self) -> Sequence[LocalLogSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [
            {"work": "append", "flush": "os", "tasks": 1, "sync_delay_ms": 0},
            {"work": "append", "flush": "always", "tasks": 1, "sync_delay_ms": 0},
            {"work": "append", "flush": "always", "tasks": 64, "sync_delay_ms": 0},
            {"work": "append", "flush": "always", "tasks": 1, "sync_delay_ms": 2},
            {"work": "append", "flush": "always", "tasks": 64, "sync_delay_ms": 2},
            {"work": "read", "flush": "os", "tasks": 1, "sync_delay_ms": 0},
        ]

    def measure(self, system: LocalLogSystem, params: Params, meter: Meter) -> Measured:
        sync_delay_s = float(params["sync_delay_ms"]) / 1000
        given = values(self._records_count(system, params), RECORD_BYTES)
        store, directory = system.new_store(flush=str(params["flush"]), sync_delay_s=sync_delay_s)
        try:
            if store is None:
                return {}
            return self._measure(store, params, given, meter, system.name)
        finally:
            system.drop(store, directory)

    def _measure(self, store: Store, params: Params, given: Sequence[bytes], meter: Meter, name: str) -> Measured:
        given_bytes = sum(map(len, given))
        if params["work"] == "read":
            store.append_all(given)
            with meter.timed() as timing:
                found_bytes = store.read_all()
        else:
            with meter.timed() as timing:
                if int(params["tasks"]) == 1:
                    store.append_all(given)
                else:
                    store.append_from_tasks(given, int(params["tasks"]))
            found_bytes = store.read_all()
        if found_bytes != given_bytes:
            raise WrongResultError(f"{name} gave {found_bytes} bytes back, {given_bytes} were appended")
        return throughput(timing, records=len(given), data_bytes=given_bytes)

    def _records_count(self, system: LocalLogSystem, params: Params) -> int:
        """What takes about a second: an fsync is shared by all tasks with us, and by nobody with the peers."""
        if params["flush"] == "os":
            return max(64, int(40_000 * self._scale))
        syncs = AT_MOST_S / (_SYNC_S + float(params["sync_delay_ms"]) / 1000)
        shared_by = int(params["tasks"]) if system.name == "replog" else 1
        return max(64, int(syncs * shared_by * self._scale) // 4)


SCENARIO = OpenLogScenario()
