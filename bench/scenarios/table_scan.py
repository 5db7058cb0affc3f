"""How fast is a topic handed over as Arrow batches?"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import replog
from bench.data import values
from bench.meter import Meter
from bench.model import Measured, Params, Scenario, System, WrongResultError, throughput
from replog.client import SyncAdmin, SyncProducer

TOPIC_BYTES = 512 << 20
PARTITIONS = 4


class ScannedTopic(System):
    """A topic of a broker in this process, which has nothing to do: its files are read."""

    name = "replog"

    def __init__(self) -> None:
        self._filled: dict[int, int] = {}
        self._broker: replog.EmbeddedCluster | None = None

    def start(self, directory: Path) -> None:
        self._directory = directory / "broker"
        self._broker = replog.embedded(self._directory)
        self._broker.__enter__()

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.__exit__(None, None, None)
            shutil.rmtree(self._directory, ignore_errors=True)
        self._broker = None
        self._filled.clear()

    def fill(self, record_bytes: int, data_bytes: int) -> int:
        """Writes a topic of records of this size, the first time; returns how many there are."""
        if record_bytes not in self._filled and self._broker is not None:
            servers, count = self._broker.bootstrap_servers, max(PARTITIONS, data_bytes // record_bytes)
            with SyncAdmin(servers) as admin, SyncProducer(servers) as producer:
                admin.create_topic(f"of-{record_bytes}", PARTITIONS)
                some = values(min(count, 100_000), record_bytes)
                for first in range(0, count, len(some)):
                    producer.send_many(f"of-{record_bytes}", some[: count - first])
                producer.flush()
            self._filled[record_bytes] = count
        return self._filled[record_bytes]

    def scan(self, record_bytes: int, columns: Sequence[str]) -> int:
        """Reads all of that topic; returns the number of records."""
        servers = self._broker.bootstrap_servers if self._broker is not None else ""
        reader = replog.scan(f"of-{record_bytes}", bootstrap_servers=servers, columns=columns)
        return sum(batch.num_rows for batch in reader)


class TableScanScenario(Scenario[ScannedTopic]):
    """`replog.scan` of a topic of four partitions in the page cache, of some of its columns.

    Args:
        topic_bytes: how much is read.
    """

    name = "table-scan"
    question = "How fast is a topic handed over as Arrow batches?"

    def __init__(self, topic_bytes: int = TOPIC_BYTES) -> None:
        self._topic_bytes = topic_bytes
        self._systems = (ScannedTopic(),)

    def systems(self) -> Sequence[ScannedTopic]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [
            {"columns": columns, "record_bytes": size}
            for columns in ("offset", "value", "offset,timestamp,key,value")
            for size in (100, 1024)
        ]

    def measure(self, system: ScannedTopic, params: Params, meter: Meter) -> Measured:
        size = int(params["record_bytes"])
        count = system.fill(size, self._topic_bytes)
        with meter.timed() as timing:
            found = system.scan(size, str(params["columns"]).split(","))
        if found != count:
            raise WrongResultError(f"{system.name} gave {found} records of {count}")
        return throughput(timing, records=count, data_bytes=count * size)


SCENARIO = TableScanScenario()
