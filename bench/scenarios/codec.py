"""How fast are records turned into batches and back?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from bench.data import RecordInput, records
from bench.meter import Meter, timed_rounds
from bench.model import Measured, Metric, Params, Scenario, WrongResultError, throughput
from bench.systems.codecs import CodecSystem, codecs
from replog.records.model import Wanted

BATCH_BYTES = 64 * 1024
AT_LEAST_S = 0.1
CPU_NS_PER_RECORD = Metric("cpu_ns_per_record", "ns")
PROJECTIONS = {
    "decode_columns": Wanted.OFFSETS | Wanted.TIMESTAMPS | Wanted.KEYS | Wanted.VALUES,
    "decode_columns_with_headers": Wanted.OFFSETS | Wanted.TIMESTAMPS | Wanted.KEYS | Wanted.VALUES | Wanted.HEADERS,
    "decode_keys": Wanted.OFFSETS | Wanted.KEYS,
    "decode_timestamps": Wanted.OFFSETS | Wanted.TIMESTAMPS,
    "decode_offsets": Wanted.OFFSETS,
}
"""Operations that make columns, and which."""


class CodecScenario(Scenario[CodecSystem]):
    """Encodes, decodes or checks one batch of 64 KiB again and again.

    Args:
        at_least_s: how long one repetition goes on.
    """

    name = "codec"
    question = "How fast are records turned into batches and back?"

    def __init__(self, at_least_s: float = AT_LEAST_S) -> None:
        self._at_least_s = at_least_s
        self._systems = codecs()

    def systems(self) -> Sequence[CodecSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        operations = ("encode", "decode", *PROJECTIONS, "check")
        return [{"operation": operation, "record_bytes": size} for operation in operations for size in (100, 1024)]

    def measure(self, system: CodecSystem, params: Params, meter: Meter) -> Measured:
        given = batch_records(int(params["record_bytes"]))
        batch = system.encode(given)
        if system.decode(batch) != len(given):
            raise WrongResultError(f"{system.name} does not read back the {len(given)} records that it encoded")
        work = operation(system, str(params["operation"]), given, batch)
        timing, rounds = timed_rounds(meter, work, at_least_s=self._at_least_s)
        measured = throughput(timing, records=rounds * len(given), data_bytes=rounds * len(batch))
        return measured | {CPU_NS_PER_RECORD: timing.cpu_s / (rounds * len(given)) * 1e9}


def operation(system: CodecSystem, name: str, given: Sequence[RecordInput], batch: bytes) -> Callable[[], object]:
    """What one round does."""
    match name:
        case "encode":
            return lambda: system.encode(given)
        case "decode":
            return lambda: system.decode(batch)
        case _ if name in PROJECTIONS:
            return lambda: system.decode_columns(batch, PROJECTIONS[name])
        case "check":
            return lambda: system.check(batch)
        case _:
            raise ValueError(f"no operation {name}")


@cache
def batch_records(record_bytes: int) -> Sequence[RecordInput]:
    """Records of one batch of about 64 KiB."""
    return records(BATCH_BYTES // record_bytes, record_bytes)


SCENARIO = CodecScenario()
