"""How fast is a log read from one end to the other?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.meter import Meter
from bench.model import Measured, Params, Scenario, WrongResultError, throughput
from bench.scenarios.log_append import make_batch
from bench.systems.logs import LogSystem, OpenLog, count_headers, logs, read_all
from replog.records import decode_columns, decode_records

LOG_BYTES = 64 * 1024 * 1024
BATCH_KIB = 64


class LogScanScenario(Scenario[LogSystem]):
    """Reads a log of 64 KiB batches in fetches of 1 MiB from the page cache, and decodes none, all, or into columns.

    The plain file's bytes are decoded by the same code: what remains between the two is the log.

    Args:
        log_bytes: size of the log that is read.
    """

    name = "log-scan"
    question = "How fast is a log read from one end to the other, from the page cache?"

    def __init__(self, log_bytes: int = LOG_BYTES) -> None:
        self._log_bytes = log_bytes
        self._systems = logs()

    def systems(self) -> Sequence[LogSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [
            {"as": what, "record_bytes": record_bytes, "fetch_kib": 1024}
            for what in ("batches", "columns", "records")
            for record_bytes in (100, 1024)
        ]

    def measure(self, system: LogSystem, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        batch, in_batch = make_batch(record_bytes, BATCH_KIB)
        batches = max(1, self._log_bytes // len(batch))

        def fill(log: OpenLog) -> None:
            for _ in range(batches):
                log.append(batch)

        log = system.kept_log(f"scan-{record_bytes}", fill)
        with meter.timed() as timing:
            count = read_all(log, int(params["fetch_kib"]) * 1024, COUNTERS[str(params["as"])])
        if count != batches * in_batch:
            raise WrongResultError(f"{system.name} gave {count} records of {batches * in_batch}")
        return throughput(timing, records=count, data_bytes=log.size_bytes())


COUNTERS: dict[str, Callable[[bytes], int]] = {
    "batches": count_headers,
    "columns": lambda batches: decode_columns(batches).count,
    "records": lambda batches: len(decode_records(batches)),
}
"""What is made of the bytes: nothing (a broker, a follower), Arrow buffers (Spark), objects (a Python consumer)."""

SCENARIO = LogScanScenario()
