"""What clients did and saw, and which of the promises to them were broken.

A test records every send with its outcome, every poll, and at the end one long read of everything; `check` then names
each anomaly by its own name (the table below).  The same checker judges simulated clusters and real processes: it is
pure, it looks at nothing but the history.

======================= ==============================================================================================
`lost_write`            acknowledged at an offset; somebody saw a later one, nobody ever saw this one
`unseen`                acknowledged, and not readable at the end either
`inconsistent_offsets`  one (partition, offset) carries two values in any send or poll
`duplicate`             one unique value at two places although the producers are idempotent
`aborted_read`          the value of a send that definitely failed is polled
`poll_skip`             a consumer jumps over an offset that exists, without a seek
`nonmonotonic_poll`     a consumer goes back, without a seek
`nonmonotonic_send`     same producer and partition, later send, smaller offset
`stale_read`            what was read below the high watermark is gone at the end
======================= ==============================================================================================

Values must be unique over the history; a send whose outcome is never told counts as unknown, and may or may not be
in the log.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

Partition: TypeAlias = tuple[str, int]
"""Topic and partition number; a `replog.client.TopicPartition` is one."""

Place: TypeAlias = tuple[Partition, int]
"""A partition and an offset in it."""

SHOWN_MAX = 20


class AnomalyKind(StrEnum):
    """The promises, by what breaking them is called."""

    LOST_WRITE = "lost_write"
    UNSEEN = "unseen"
    INCONSISTENT_OFFSETS = "inconsistent_offsets"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted_read"
    POLL_SKIP = "poll_skip"
    NONMONOTONIC_POLL = "nonmonotonic_poll"
    NONMONOTONIC_SEND = "nonmonotonic_send"
    STALE_READ = "stale_read"
    # of transactions: `replog_chaos.transaction_history`
    WRITE_CYCLE = "write_cycle"
    INTERMEDIATE_READ = "intermediate_read"
    CIRCULAR_FLOW = "circular_flow"
    TORN_TRANSACTION = "torn_transaction"
    INPUT_TWICE = "input_twice"
    INPUT_LOST = "input_lost"
    INPUT_EARLY = "input_early"


class Anomaly(Struct, frozen=True, order=True):
    """One broken promise: which, where, and the facts in words."""

    kind: AnomalyKind
    partition: Partition
    offset: int
    detail: str

    def __str__(self) -> str:
        topic, number = self.partition
        return f"{self.kind}: {topic}-{number} offset {self.offset}: {self.detail}"


class AnomaliesFoundError(AssertionError):
    """The history breaks promises; the message lists them."""

    def __init__(self, anomalies: tuple[Anomaly, ...]) -> None:
        shown = "\n".join(f"  {anomaly}" for anomaly in anomalies[:SHOWN_MAX])
        more = f"\n  ... and {len(anomalies) - SHOWN_MAX} more" if len(anomalies) > SHOWN_MAX else ""
        super().__init__(f"{len(anomalies)} anomalies:\n{shown}{more}")
        self.anomalies = anomalies


class SentRecord:
    """One send; the history keeps them in the order in which they were begun.

    Attributes:
        producer: The producer that sent it; `nonmonotonic_send` compares sends of one producer only.
        place: The place where it was acknowledged; None until then.
        has_failed: Whether the broker has said for certain that it is not in the log.
    """

    __slots__ = ("has_failed", "place", "producer", "value")

    def __init__(self, producer: str, value: bytes) -> None:
        self.producer = producer
        self.value = value
        self.place: Place | None = None
        self.has_failed = False

    def acknowledged(self, partition: Partition, offset: int) -> None:
        self.place = (_plain(partition), offset)

    def failed(self) -> None:
        """Notes that it was definitely not appended.  Not for a time-out or a lost connection: leave those alone."""
        self.has_failed = True


class _Read(Struct, frozen=True):
    """One record as a consumer saw it; `after_seek`: the first one after an assignment or a seek."""

    offset: int
    value: bytes
    after_seek: bool


class _Span(Struct, frozen=True):
    """What the final read covered: [start_offset, end_offset)."""

    start_offset: int
    end_offset: int


class History:
    """Sends and polls of one run.

    ::

        history = History()
        send = history.send("p", b"v0")
        send.acknowledged(("t", 0), 0)
        history.poll("c", ("t", 0), [(0, b"v0")])
        history.final_read(("t", 0), 0, 1, [(0, b"v0")])
        assert history.check() == ()

    Args:
        idempotent: Whether the producers are, so that no value may stand at two places.
    """

    def __init__(self, *, idempotent: bool = True) -> None:
        self.sends: list[SentRecord] = []
        self._idempotent = idempotent
        self._reads: dict[tuple[str, Partition], list[_Read]] = {}
        self._after_seek: set[tuple[str, Partition]] = set()
        self._final: dict[Partition, _Span] = {}
        self._final_places: dict[Place, bytes] = {}

    # ---- recording -------------------------------------------------------------------------------------------------

    def send(self, producer: str, value: bytes) -> SentRecord:
        """Notes that a send begins; returns it."""
        send = SentRecord(producer, value)
        self.sends.append(send)
        return send

    def poll(self, consumer: str, partition: Partition, records: Iterable[tuple[int, bytes]]) -> None:
        """Notes that a consumer was handed these (offset, value), in this order."""
        key = (consumer, _plain(partition))
        reads = self._reads.setdefault(key, [])
        for offset, value in records:
            reads.append(_Read(offset, value, not reads or key in self._after_seek))
            self._after_seek.discard(key)

    def seek(self, consumer: str, partition: Partition) -> None:
        """Notes that the consumer's next record of this partition may be anywhere: it seeked, or was assigned anew."""
        self._after_seek.add((consumer, _plain(partition)))

    def final_read(
        self, partition: Partition, start_offset: int, end_offset: int, records: Iterable[tuple[int, bytes]]
    ) -> None:
        """Notes what was read after healing: all of [start_offset, end_offset), up to the high watermark then."""
        key = _plain(partition)
        self._final[key] = _Span(start_offset, end_offset)
        self._final_places.update({(key, offset): value for offset, value in records})

    # ---- questions -------------------------------------------------------------------------------------------------

    @property
    def acknowledged_count(self) -> int:
        return sum(send.place is not None for send in self.sends)

    def values_of(self, consumer: str, partition: Partition) -> set[bytes]:
        """Returns the values that a consumer was handed."""
        return {read.value for read in self._reads.get((consumer, _plain(partition)), ())}

    def check(self) -> tuple[Anomaly, ...]:
        """Returns all anomalies, sorted by kind and place; each at most once."""
        seen = self._seen()
        found = {
            *self._unread(seen),
            *self._inconsistent_offsets(),
            *self._duplicates(seen),
            *self._aborted_reads(),
            *self._polls_out_of_order(seen),
            *self._sends_out_of_order(seen),
            *self._stale_reads(),
        }
        return tuple(sorted(found))

    def check_or_raise(self) -> None:
        """Raises `AnomaliesFoundError` when `check` finds something."""
        anomalies = self.check()
        if anomalies:
            raise AnomaliesFoundError(anomalies)

    # ---- observations ----------------------------------------------------------------------------------------------

    def _polled(self) -> Iterator[tuple[Place, bytes]]:
        for (_, partition), reads in self._reads.items():
            for read in reads:
                yield (partition, read.offset), read.value
        yield from self._final_places.items()

    def _acknowledged(self) -> Iterator[tuple[Place, bytes]]:
        for send in self.sends:
            if send.place is not None:
                yield send.place, send.value

    def _seen(self) -> dict[Partition, dict[int, bytes]]:
        """Returns everything any poll has shown, by partition and offset; of two values at one offset, the last."""
        seen: dict[Partition, dict[int, bytes]] = {}
        for (partition, offset), value in self._polled():
            seen.setdefault(partition, {})[offset] = value
        return seen

    # ---- one function per promise ----------------------------------------------------------------------------------

    def _unread(self, seen: dict[Partition, dict[int, bytes]]) -> Iterator[Anomaly]:
        """Yields `lost_write` where a later offset was seen, else `unseen`."""
        ends = {partition: max(offsets) for partition, offsets in seen.items()}
        for (partition, offset), value in self._acknowledged():
            span = self._final.get(partition)
            if offset in seen.get(partition, {}) or (span is not None and offset < span.start_offset):
                continue  # read, or deleted by retention since
            end = ends.get(partition, -1)
            if end > offset:
                detail = f"{value!r} was acknowledged here; offset {end} was read, this one never"
                yield Anomaly(AnomalyKind.LOST_WRITE, partition, offset, detail)
            else:
                detail = f"{value!r} was acknowledged here and was never readable"
                yield Anomaly(AnomalyKind.UNSEEN, partition, offset, detail)

    def _inconsistent_offsets(self) -> Iterator[Anomaly]:
        values: dict[Place, bytes] = {}
        for place, value in (*self._acknowledged(), *self._polled()):
            first = values.setdefault(place, value)
            if first != value:
                detail = f"holds {first!r} and {value!r}"
                yield Anomaly(AnomalyKind.INCONSISTENT_OFFSETS, *place, detail)

    def _duplicates(self, seen: dict[Partition, dict[int, bytes]]) -> Iterator[Anomaly]:
        if not self._idempotent:
            return
        places: dict[bytes, Place] = {}
        polled = (
            ((partition, offset), value) for partition, offsets in seen.items() for offset, value in offsets.items()
        )
        for place, value in (*self._acknowledged(), *polled):
            first = places.setdefault(value, place)
            if first != place:
                (topic, number), offset = first
                detail = f"{value!r} stands at {topic}-{number} offset {offset} too"
                yield Anomaly(AnomalyKind.DUPLICATE, *place, detail)

    def _aborted_reads(self) -> Iterator[Anomaly]:
        failed = {send.value for send in self.sends if send.has_failed}
        for place, value in self._polled():
            if value in failed:
                yield Anomaly(AnomalyKind.ABORTED_READ, *place, f"{value!r} was read, its send had definitely failed")

    def _polls_out_of_order(self, seen: dict[Partition, dict[int, bytes]]) -> Iterator[Anomaly]:
        """Yields `poll_skip` and `nonmonotonic_poll`."""
        known = {partition: set(offsets) for partition, offsets in seen.items()}
        for (partition, offset), _ in self._acknowledged():
            known.setdefault(partition, set()).add(offset)
        existing = {partition: sorted(offsets) for partition, offsets in known.items()}
        for (consumer, partition), reads in self._reads.items():
            for last, read in itertools.pairwise(reads):
                if read.after_seek:
                    continue
                if read.offset <= last.offset:
                    detail = f"consumer {consumer} read it after offset {last.offset}"
                    yield Anomaly(AnomalyKind.NONMONOTONIC_POLL, partition, read.offset, detail)
                    continue
                offsets = existing[partition]
                following = offsets[bisect_right(offsets, last.offset)]
                if following != read.offset:
                    detail = f"consumer {consumer} went from offset {last.offset} to {read.offset} past this one"
                    yield Anomaly(AnomalyKind.POLL_SKIP, partition, following, detail)

    def _sends_out_of_order(self, seen: dict[Partition, dict[int, bytes]]) -> Iterator[Anomaly]:
        """Yields `nonmonotonic_send`; of idempotent producers also where a send of unknown outcome was read."""
        found = self._places_of_unacknowledged(seen) if self._idempotent else {}
        last: dict[tuple[str, Partition], int] = {}
        for send in self.sends:
            place = send.place or found.get(send.value)
            if place is None:
                continue
            partition, offset = place
            before = last.get((send.producer, partition), -1)
            if offset < before or (offset == before and send.place is not None):
                detail = f"producer {send.producer} got offset {before} for an earlier send"
                yield Anomaly(AnomalyKind.NONMONOTONIC_SEND, partition, offset, detail)
            last[send.producer, partition] = max(before, offset)

    def _places_of_unacknowledged(self, seen: dict[Partition, dict[int, bytes]]) -> dict[bytes, Place]:
        """Returns where values stand that were sent once: what its caller sent again has no place of its own."""
        count = Counter(send.value for send in self.sends)
        unknown = {send.value for send in self.sends if send.place is None and count[send.value] == 1}
        return {
            value: (partition, offset)
            for partition, values in seen.items()
            for offset, value in values.items()
            if value in unknown
        }

    def _stale_reads(self) -> Iterator[Anomaly]:
        """Yields what was polled and is not in the final read, unless it lies below that read's start (retention)."""
        for (consumer, partition), reads in self._reads.items():
            span = self._final.get(partition)
            if span is None:
                continue
            for read in reads:
                if read.offset >= span.start_offset and self._final_places.get((partition, read.offset)) != read.value:
                    detail = f"consumer {consumer} read {read.value!r}; at the end [{span.start_offset}, {span.end_offset}) is without it"
                    yield Anomaly(AnomalyKind.STALE_READ, partition, read.offset, detail)


def _plain(partition: Partition) -> Partition:
    topic, number = partition
    return topic, number
