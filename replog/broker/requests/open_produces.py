"""Produces on their way through `ProducePath`: what a step takes up, and what each batch of a request has come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from replog.log import TransactionGuard
from replog.records import BatchHeader
from replog.rpc.messages import Buffer, ProducePartition, ProduceRequest, ProduceResponse, ProduceResult

PARTITIONS_AT_ONCE = 100
"""Batches that are checked and appended in one step of the driver: each is a write of its own."""

BYTES_AT_ONCE = 8 << 20
"""Bytes of those batches together, unless the first one alone has more: all bytes are looked at and copied."""

Answer = Callable[[ProduceResponse], None]


def share_time(taken: Sequence[tuple[OpenProduce, range]], seconds: float) -> None:
    """Tells requests how much of the time of a step was theirs: by their bytes in it.

    Args:
        taken: The requests, and which of their batches were looked at.
        seconds: The time of the step.
    """
    sizes = [1 + sum(len(state.request.batches[index]) for index in indexes) for state, indexes in taken]
    for (state, _), size in zip(taken, sizes, strict=True):
        if state.add_time is not None:
            state.add_time(seconds * size / sum(sizes))


class ProduceStep(Struct):
    """The batches that one step of the driver has taken up."""

    partitions: int = 0
    bytes: int = 0

    def take(self, size_bytes: int) -> bool:
        """Takes a batch up, unless it is too much for the step.  The first batch never is."""
        is_full = self.partitions >= PARTITIONS_AT_ONCE or self.bytes + size_bytes > BYTES_AT_ONCE
        if self.partitions and is_full:
            return False
        self.partitions += 1
        self.bytes += size_bytes
        return True


class OpenProduce(Struct):
    """A request whose partitions are not all decided."""

    request: ProduceRequest
    answer: Answer
    results: list[ProduceResult | None] = field(default_factory=list)
    undecided: int = 0
    taken: int = 0  # how many partitions were looked at
    add_time: Callable[[float], None] | None = None  # is told the seconds that it took of the loop; None: nobody asks

    def take(self, step: ProduceStep) -> range:
        """Returns the partitions that a step looks at: as many as it takes."""
        first, batches = self.taken, self.request.batches
        while self.taken < len(batches) and step.take(len(batches[self.taken])):
            self.taken += 1
        return range(first, self.taken)

    def decide(self, index: int, result: ProduceResult) -> None:
        self.results[index] = result
        self.undecided -= 1
        if self.undecided == 0:
            results = tuple(result for result in self.results if result is not None)
            self.answer(ProduceResponse(self.request.correlation_id, results))


class AppendedBatch(Struct, frozen=True):
    """An appended batch whose acknowledgement waits for the high watermark."""

    open: OpenProduce
    index: int
    appended: ProduceResult


class ReadyBatch(Struct, eq=False):
    """A batch that has passed its checks, but for its compressed records where `must_be_read`.

    Attributes:
        guard: The guard with which a coordinator was asked whether the batch belongs to a transaction; None: none was.
    """

    open: OpenProduce
    index: int
    partition: ProducePartition
    batch: Buffer
    header: BatchHeader
    must_be_read: bool
    guard: TransactionGuard | None = None
