"""What a load has come to: counts, rates, latencies and errors, in bounded memory however long it runs."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

_EXACT_BITS: Final = 6
"""Bits of a latency that count: what is told is at most 3 percent too high."""

_EXACT: Final = 1 << _EXACT_BITS
_LATENCY_US_MAX: Final = (1 << 40) - 1
"""Twelve days; what takes longer counts as that."""

ERRORS_MAX: Final = 8
"""The kinds of errors that are told apart."""

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


class Latencies:
    """How often which latency was seen: a histogram whose buckets grow with the latency, as HdrHistogram's do.

    Attributes:
        count: The number of latencies.
    """

    def __init__(self) -> None:
        self.count = 0
        self._counts: Counter[int] = Counter()  # by bucket: fewer than 1,200

    def add(self, latency_s: float) -> None:
        """Counts a latency in seconds; less than 0, of a clock that was set, counts as 0."""
        self.count += 1
        self._counts[_bucket(min(max(0, int(latency_s * 1e6)), _LATENCY_US_MAX))] += 1

    def quantile_ms(self, share: float) -> float | None:
        """Returns what this share of the latencies does not exceed, in milliseconds; None while there are none.

        Args:
            share: From 0 to 1, which is the largest.
        """
        left = share * self.count
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 1e-9:
                return _ceiling_us(bucket) / 1000
        return None


def _bucket(latency_us: int) -> int:
    """Returns the place of a latency: 0 to 63 us have one each, then 32 places have what doubles."""
    shift = max(0, latency_us.bit_length() - _EXACT_BITS)
    return (shift << (_EXACT_BITS - 1)) + (latency_us >> shift)


def _ceiling_us(bucket: int) -> int:
    """Returns the largest latency of a place."""
    half = _EXACT >> 1
    shift = max(0, bucket // half - 1)
    return ((bucket - shift * half + 1) << shift) - 1


class Figures:
    """What a load has come to by now.

    Args:
        latency: What a latency is, in the words of the summary.

    Attributes:
        records_count: Records that were acknowledged, or read.
        bytes_count: The bytes of their keys and values.
        errors: How many records failed, by why; the ninth reason and further ones count together.
        latencies: The latencies.
        is_begun: Whether the load has begun: before, there is nothing to tell.
    """

    def __init__(self, latency: str) -> None:
        self.latency = latency
        self.records_count = self.bytes_count = 0
        self.errors: Counter[str] = Counter()
        self.latencies = Latencies()
        self.is_begun = False
        self._began_s = 0.0
        self._ended_s: float | None = None
        self._shown = (0.0, 0, 0)

    def begin(self) -> None:
        """Starts the clock."""
        self.is_begun = True
        self._began_s = time.monotonic()
        self._shown = (self._began_s, 0, 0)

    def add(self, records_count: int, bytes_count: int) -> None:
        """Counts records that are done."""
        self.records_count += records_count
        self.bytes_count += bytes_count

    def fail(self, reason: str, records_count: int) -> None:
        """Counts records that failed."""
        is_known = reason in self.errors or len(self.errors) < ERRORS_MAX
        self.errors[reason if is_known else "other errors"] += records_count

    def end(self) -> None:
        """Stops the clock of the summary; the first call counts."""
        self._ended_s = self._ended_s or time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """The time from the beginning to the end, or to now."""
        return (self._ended_s or time.monotonic()) - self._began_s

    def live(self) -> str:
        """Says the rates since the last call, and the latencies since the beginning."""
        (then_s, records, size), now_s = self._shown, time.monotonic()
        self._shown = (now_s, self.records_count, self.bytes_count)
        span_s = max(now_s - then_s, 1e-6)
        text = (
            f"{self.records_count:,} records, {(self.records_count - records) / span_s:,.0f}/s, "
            f"{(self.bytes_count - size) / span_s / 1e6:,.2f} MB/s, {self.latency}: p50 {self._ms(0.5)}, p99 {self._ms(0.99)}"
        )
        return f"{text}, {self.errors.total():,} failed" if self.errors else text

    def rows(self) -> list[tuple[str, str]]:
        """Returns (name, value) for each line of the summary."""
        rates = self.rates()
        return [
            ("records", f"{self.records_count:,}"),
            ("MB", f"{self.bytes_count / 1e6:,.2f}"),
            ("seconds", f"{self.elapsed_s:,.2f}"),
            ("records/s", f"{rates['records_per_s']:,.1f}"),
            ("MB/s", f"{rates['bytes_per_s'] / 1e6:,.2f}"),
            *((f"{self.latency}, {name}", self._ms(share)) for name, share in QUANTILES.items()),
            *((f"failed: {reason}", f"{count:,}") for reason, count in self.errors.items()),
        ]

    def rates(self) -> dict[str, float]:
        """Returns records and bytes a second, from the beginning to the end."""
        span_s = max(self.elapsed_s, 1e-6)
        return {"records_per_s": self.records_count / span_s, "bytes_per_s": self.bytes_count / span_s}

    def values(self) -> dict[str, object]:
        """Returns the summary for JSON; a latency is None where there was none."""
        return {
            "records": self.records_count,
            "bytes": self.bytes_count,
            "elapsed_s": round(self.elapsed_s, 3),
            **{name: round(rate, 1) for name, rate in self.rates().items()},
            "latency": self.latency,
            "latency_ms": {name: self.latencies.quantile_ms(share) for name, share in QUANTILES.items()},
            "failed": dict(self.errors),
        }

    def _ms(self, share: float) -> str:
        found = self.latencies.quantile_ms(share)
        return "-" if found is None else f"{found:,.2f} ms"
