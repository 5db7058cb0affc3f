"""The loads of `replog perf`: records that are sent at a pace, those that are read, and the way from one to the other."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from replog.cli.records.pace import Pace

if TYPE_CHECKING:
    from replog.cli.records.topic_reader import TopicReader
    from replog.client import Consumer, Producer
    from replog.client.producer.batch import BulkDelivery, Delivery


RUN_BYTES: Final = 64 * 1024
"""What is sent between two looks at the clock."""

RUN_RECORDS_MAX: Final = 1_000
POLL_RECORDS_MAX: Final = 10_000
POLL_MS: Final = 100

_sent_at = struct.Struct(">8sQ")
STAMP_BYTES: Final = _sent_at.size
"""What a record of `e2e` needs to say of which run it is, and when it was sent."""


class LoadLimits(Struct, frozen=True):
    """How long a load goes on: until the first of these.

    Attributes:
        records_count: Records; None: any.
        seconds: Time; None: any.
    """

    records_count: int | None
    seconds: float | None

    def left(self, done_count: int, elapsed_s: float) -> int:
        """Returns how many records may still go, a large number where nothing says it; 0: it is over."""
        if self.seconds is not None and elapsed_s >= self.seconds:
            return 0
        return RUN_RECORDS_MAX if self.records_count is None else max(0, self.records_count - done_count)


class LoadSender:
    """Sends records and hears what becomes of them.

    A latency is that of the first record of each run of records (of 64 KB, or a tenth of a second): from before it is sent, which
    waits where the producer's memory is full, to its acknowledgement.

    Args:
        producer: The producer; its memory bounds what is under way.
        topic: The topic.
        make_value: What makes the value of the next record.
        value_bytes: Its size.
        figures: Where acknowledged and failed records are counted; they have begun.
        limits: When it ends.
        rate: Records a second; None: no limit.

    Attributes:
        sent_count: Records that were sent.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        make_value: Callable[[], bytes],
        value_bytes: int,
        figures: Figures,
        limits: LoadLimits,
        rate: float | None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._make_value = make_value
        self._value_bytes = value_bytes
        self._figures = figures
        self._limits = limits
        self._pace = None if rate is None else Pace(rate, time.monotonic())
        self._open: deque[BulkDelivery] = deque()
        self.sent_count = 0

    async def run(self) -> None:
        """Sends until a limit is reached, and waits for all acknowledgements.

        Raises:
            ReplogError: Records cannot be sent at all.
        """
        run_max = max(1, min(RUN_BYTES // self._value_bytes, RUN_RECORDS_MAX))
        if self._pace is not None:
            run_max = min(run_max, self._pace.together_max)
        while count := min(run_max, self._limits.left(self.sent_count, self._figures.elapsed_s)):
            if self._pace is not None:
                await asyncio.sleep(self._pace.pause_s(count, time.monotonic()))
            await self._send(count)
            self._count_settled()
        await self.settle()

    async def settle(self) -> None:
        """Waits until it is known what became of each record."""
        while self._open:
            await asyncio.wait([self._open[0]])
            self._count_settled()

    async def _send(self, count: int) -> None:
        from replog.client.producer.bulk import Runs

        runs, send, topic, make_value = Runs(), self._producer.send, self._topic, self._make_value
        begun_s = time.monotonic()
        try:
            for number in range(count):
                delivery = await send(topic, make_value())
                runs.add_one(delivery)
                self.sent_count += 1
                if number == 0:
                    delivery.add_done_callback(partial(self._heard, begun_s))
        finally:
            self._open.append(runs.finish())

    def _heard(self, begun_s: float, delivery: Delivery) -> None:
        if delivery.exception() is None:
            self._figures.latencies.add(time.monotonic() - begun_s)

    def _count_settled(self) -> None:
        while self._open and self._open[0].done():
            bulk = self._open.popleft()
            good_count = bulk.acknowledged_count
            self._figures.add(good_count, good_count * self._value_bytes)
            error = bulk.exception()
            if error is not None:
                self._figures.fail(type(error).__name__, bulk.records_count - good_count)


async def read(
    reader: TopicReader, figures: Figures, limits: LoadLimits, *, follow: bool, timeout_s: float | None
) -> None:
    """Reads what is in a topic, and counts; a latency is that of a poll that gave records.

    Args:
        reader: The reader, which has begun.
        figures: Where is counted.
        limits: When it ends.
        follow: Whether more is waited for at the end.
        timeout_s: How long nothing may come.

    Raises:
        ReplogError: The records cannot be read.
    """
    while (follow or reader.is_behind) and (left := limits.left(figures.records_count, figures.elapsed_s)):
        begun_s = time.monotonic()
        records = await reader.poll(
            left if limits.records_count is not None and left < POLL_RECORDS_MAX else POLL_RECORDS_MAX, timeout_s
        )
        if records:
            figures.latencies.add(time.monotonic() - begun_s)
            figures.add(len(records), sum(len(each.value or b"") + len(each.key or b"") for each in records))


class Stamps:
    """Makes values that say when they were sent, by this process's clock, and knows its own again.

    Args:
        value_bytes: The size of a value, at least `STAMP_BYTES`.
    """

    def __init__(self, value_bytes: int) -> None:
        self._run = os.urandom(8)
        self._rest = os.urandom(value_bytes - STAMP_BYTES)

    def make(self) -> bytes:
        return _sent_at.pack(self._run, time.monotonic_ns()) + self._rest

    def age_s(self, value: bytes | None) -> float | None:
        """Returns how long ago a value was made; None: somebody else has made it."""
        if value is None or len(value) < STAMP_BYTES:
            return None
        run, sent_ns = _sent_at.unpack_from(value)
        return (time.monotonic_ns() - sent_ns) / 1e9 if run == self._run else None


async def receive(
    consumer: Consumer, stamps: Stamps, sending: asyncio.Task[None], sent: Figures, figures: Figures, wait_s: float
) -> None:
    """Counts what comes back until all that was acknowledged has; what is missing after `wait_s` has failed.

    Args:
        consumer: The consumer; it reads from the end that the topic had before the first record was sent.
        stamps: What knows the records.
        sending: The task that sends.
        sent: What it has come to.
        figures: Where is counted what comes back, and, at the end, what failed.
        wait_s: How long records may be missing after the last acknowledgement, in seconds.

    Raises:
        ReplogError: Records cannot be sent or read.
    """
    ended_s: float | None = None
    while True:
        for record in await consumer.poll(max_records=POLL_RECORDS_MAX, timeout_ms=POLL_MS):
            age_s = stamps.age_s(record.value)
            if age_s is not None:
                figures.latencies.add(age_s)
                figures.add(1, len(record.value or b""))
        if not sending.done():
            continue
        sending.result()
        ended_s = ended_s or time.monotonic()
        missing_count = sent.records_count - figures.records_count
        if missing_count > 0 and time.monotonic() - ended_s < wait_s:
            continue
        figures.errors.update(sent.errors)
        if missing_count > 0:
            figures.fail(f"acknowledged, and not read within {wait_s:g} s", missing_count)
        return


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
