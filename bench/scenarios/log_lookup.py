"""How long does it take to find an offset or a time in a log of many segments?"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.data import SEED, TIMESTAMP_MS
from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.stored_logs import LEADER_EPOCH, LookupSystem, PlainReads, ReplogLookup, now_ms, open_log
from replog.log import LogConfig
from replog.records import encode_batch

SEGMENTS = 1000
BATCHES_PER_SEGMENT = 40
RECORDS_PER_BATCH = 10
LOOKUPS = 20_000
LOOKUP_US = Metric("lookup_us", "µs")
CPU_US = Metric("cpu_us", "µs")


class LogLookupScenario(Scenario[LookupSystem]):
    """Looks up random offsets and timestamps in a log of many segments, in the page cache; the mean of all look-ups.

    Args:
        segments: of the log.
        lookups: how many are timed together.
    """

    name = "log-lookup"
    question = "How long does it take to find an offset or a time in a log of 1,000 segments?"

    def __init__(self, segments: int = SEGMENTS, lookups: int = LOOKUPS) -> None:
        self._segments = segments
        self._lookups = lookups
        self._systems: list[LookupSystem] = [ReplogLookup(), PlainReads()]

    def systems(self) -> Sequence[LookupSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"by": by, "segments": self._segments} for by in ("offset", "time")]

    def measure(self, system: LookupSystem, params: Params, meter: Meter) -> Measured:
        with tempfile.TemporaryDirectory(prefix="replog-bench-") as parent:
            directory = Path(parent) / "lookup-0"
            end_offset = self._fill(directory)
            offsets = [random.Random(SEED).randrange(end_offset) for _ in range(self._lookups)]
            system.open(directory)
            try:
                if params["by"] == "offset":
                    with meter.timed() as timing:
                        for offset in offsets:
                            system.by_offset(offset)
                else:
                    with meter.timed() as timing:
                        for offset in offsets:
                            system.by_time(TIMESTAMP_MS + offset)
                self._check(system, offsets[0])
            finally:
                system.close()
        return {LOOKUP_US: timing.wall_s / self._lookups * 1e6, CPU_US: timing.cpu_s / self._lookups * 1e6}

    @staticmethod
    def _check(system: LookupSystem, offset: int) -> None:
        if system.by_offset(offset) <= 0 or system.by_time(TIMESTAMP_MS + offset) not in {offset, -1}:
            raise WrongResultError(f"{system.name} does not find offset {offset}")

    def _fill(self, directory: Path) -> int:
        """One record a millisecond; returns the log end offset."""
        value = bytes(400)
        config = LogConfig(segment_bytes=BATCHES_PER_SEGMENT * (RECORDS_PER_BATCH * 440 + 61))
        log = open_log(directory, config, clean=True)
        while len(log.segment_base_offsets) < self._segments:
            start = TIMESTAMP_MS + log.log_end_offset
            batch = encode_batch([(start + number, None, value, ()) for number in range(RECORDS_PER_BATCH)])
            log.append_as_leader(batch, leader_epoch=LEADER_EPOCH, now_ms=now_ms())
            if log.has_unflushed_segment:
                log.flush()
        log.close(now_ms())
        return log.log_end_offset


SCENARIO = LogLookupScenario()
