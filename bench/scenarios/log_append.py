"""How fast does one log take batches?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from bench.data import records
from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError, throughput
from bench.systems.logs import LogSystem, count_headers, logs, read_all
from replog.records import encode_batch

ROUND_BYTES = 64 * 1024 * 1024
FETCH_BYTES = 1024 * 1024
CPU_US_PER_BATCH = Metric("cpu_us_per_batch", "µs")


class LogAppendScenario(Scenario[LogSystem]):
    """Appends equal batches to a new log, into the page cache (no fsync), and reads them back to count them.

    Args:
        round_bytes: how much one repetition appends.
    """

    name = "log-append"
    question = "How fast does one log take batches, into the page cache?"

    def __init__(self, round_bytes: int = ROUND_BYTES) -> None:
        self._round_bytes = round_bytes
        self._systems = logs()

    def systems(self) -> Sequence[LogSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        sizes = ((100, 16), (1024, 16), (1024, 64), (1024, 1024))
        return [{"record_bytes": record_bytes, "batch_kib": batch_kib} for record_bytes, batch_kib in sizes]

    def measure(self, system: LogSystem, params: Params, meter: Meter) -> Measured:
        batch, records_count = make_batch(int(params["record_bytes"]), int(params["batch_kib"]))
        batches = max(1, self._round_bytes // len(batch))
        log = system.new_log()
        try:
            with meter.timed() as timing:
                for _ in range(batches):
                    log.append(batch)
            if (
                log.size_bytes() != batches * len(batch)
                or read_all(log, FETCH_BYTES, count_headers) != batches * records_count
            ):
                raise WrongResultError(f"{system.name} does not hold the {batches * records_count} records appended")
        finally:
            log.close()
        measured = throughput(timing, records=batches * records_count, data_bytes=batches * len(batch))
        return measured | {CPU_US_PER_BATCH: timing.cpu_s / batches * 1e6}


@cache
def make_batch(record_bytes: int, batch_kib: int) -> tuple[bytes, int]:
    """A batch as a producer sends it, and the number of its records."""
    given = records(batch_kib * 1024 // record_bytes, record_bytes)
    return encode_batch(given), len(given)


SCENARIO = LogAppendScenario()
