"""How fast is a log compacted, and how much memory does it take?"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.data import SEED, TIMESTAMP_MS
from bench.meter import Meter
from bench.model import CPU_S_PER_GB, MB_PER_S, Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.compactors import CONFIG, Compactor, ReadTwiceWriteTenth, ReplogCompactor
from bench.systems.stored_logs import LEADER_EPOCH, now_ms, open_log
from replog.log import Log
from replog.records import encode_batch

LOG_BYTES = 1_000_000_000
BATCH_BYTES = 64 * 1024
KEY_BYTES = 8
LIVE_SHARE = 10  # one record in so many is the newest of its key
PEAK_MEMORY_MIB = Metric("peak_memory_mib", "MiB")


class CompactionScenario(Scenario[Compactor]):
    """One pass over a log that was never compacted, with 10 % live keys, from the page cache, fsync included.

    Args:
        log_bytes: size of the log.
    """

    name = "compaction"
    question = "How fast is a log compacted, in bytes read, and how much memory does it take?"

    def __init__(self, log_bytes: int = LOG_BYTES) -> None:
        self._log_bytes = log_bytes
        self._systems: list[Compactor] = [ReplogCompactor(), ReadTwiceWriteTenth()]

    def systems(self) -> Sequence[Compactor]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"record_bytes": size, "live_percent": 100 // LIVE_SHARE} for size in (1024, 100)]

    def measure(self, system: Compactor, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 - the pass times itself
        with tempfile.TemporaryDirectory(prefix="replog-bench-") as parent:
            directory = Path(parent) / "compaction-0"
            log = open_log(directory, CONFIG, clean=True)
            live_keys = self._fill(log, int(params["record_bytes"]))
            size_bytes = log.size_bytes
            log.close(now_ms())
            done = system.compact_alone(directory)
        if done.work.bytes_read != size_bytes or done.work.records_kept not in {-1, live_keys}:
            raise WrongResultError(f"{system.name} kept {done.work.records_kept} records, {live_keys} keys are live")
        return {
            MB_PER_S: size_bytes / done.wall_s / 1e6,
            CPU_S_PER_GB: done.cpu_s / size_bytes * 1e9,
            PEAK_MEMORY_MIB: done.peak_bytes / 2**20,
        }

    def _fill(self, log: Log, record_bytes: int) -> int:
        """Batches of random keys, all on stable storage; returns how many different keys there are."""
        source = random.Random(SEED)
        per_batch = max(1, BATCH_BYTES // record_bytes)
        keys = max(1, self._log_bytes // record_bytes // LIVE_SHARE)
        value = source.randbytes(record_bytes - KEY_BYTES)
        seen: set[int] = set()
        while log.size_bytes < self._log_bytes:
            chosen = [source.randrange(keys) for _ in range(per_batch)]
            seen.update(chosen)
            rows = [(TIMESTAMP_MS, key.to_bytes(KEY_BYTES, "big"), value, ()) for key in chosen]
            log.append_as_leader(encode_batch(rows), leader_epoch=LEADER_EPOCH, now_ms=now_ms())
        log.roll(now_ms())
        log.flush()
        return len(seen)


SCENARIO = CompactionScenario()
