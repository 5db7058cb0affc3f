"""A scan of a topic: ranges of offsets, pinned by asking the leaders once, then read from files or brokers."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from replog.client.cluster.addresses import parse_bootstrap_servers
from replog.client.cluster.view import ClusterView
from replog.client.ranges.bounds import look_up_bounds, look_up_times
from replog.client.ranges.offset_range import OffsetRange, RangeWords
from replog.client.ranges.patience import PlanningPatience
from replog.client.ranges.range_client import CONNECT_TIMEOUT_MS, RangeClient, ask_cluster
from replog.client.ranges.read_ahead import Stop
from replog.client.ranges.transport import ReadTransport
from replog.client.sync.loop_thread import LoopThread
from replog.client.types import TopicPartition
from replog.errors import UnknownTopicIdError
from replog.rpc.messages import ListOffsetsResult
from replog.tables.places import ScanLimits, chosen_numbers, offsets_of, times_of

if TYPE_CHECKING:
    import pyarrow as pa

    from replog.client.security.security import Security

CLIENT_ID: Final = "replog-scan"

WORDS: Final = RangeWords(
    planned="the scan began",
    after_loss="Scan again: what is there now has another beginning or another end.",
    wait_longer="wait longer with timeout_ms",
    reachable_from="here",
)


class _Options(Struct, frozen=True):
    """How ranges are read; see `RangeOptions`."""

    poll_timeout_ms: int | None
    fail_on_data_loss: bool = True
    transport: ReadTransport = ReadTransport()


class TopicScan:
    """What one scan reads of a topic.

    Args:
        bootstrap_servers: The brokers to ask first.
        topic: The name of the topic.
        partitions: The partitions; none: all.
        limits: Where each begins and ends.
        timeout_ms: How long nothing may come; None: 10 s while no broker could serve, 60 s while one may.

    Raises:
        ConfigError: No broker answers.
        UnknownTopicOrPartitionError: There is no such topic or partition.
        OffsetOutOfRangeError: The limits lie outside of the log.
        RequestTimedOutError: A leader did not tell its offsets in time.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topic: str,
        partitions: Collection[int],
        limits: ScanLimits,
        timeout_ms: int | None,
        security: Security | None,
    ) -> None:
        self._security = security
        self._servers = ",".join(parse_bootstrap_servers(bootstrap_servers))
        self._timeout_ms = timeout_ms
        self._cluster_id = ""
        self._ranges: tuple[OffsetRange, ...] = ()

        async def plan(view: ClusterView) -> None:
            self._ranges = await _pinned(view, topic, partitions, limits, timeout_ms)
            self._cluster_id = view.cluster_id

        with _loop() as thread:
            thread.run(lambda: ask_cluster(self._servers, plan, client_id=CLIENT_ID, words=WORDS, security=security))

    @property
    def offsets_count(self) -> int:
        """The number of offsets that are read: of records, as far as compaction and transactions have left no gaps."""
        return sum(each.offsets_count for each in self._ranges)

    def batches(self, columns: Sequence[str], stop: Stop) -> Generator[pa.RecordBatch, None, None]:
        """Reads the ranges one after the other; runs in a thread of its own.

        Raises:
            ReplogError: Whatever `RangeReader` raises.
        """
        options = _Options(self._timeout_ms)
        with _loop() as thread:
            client = RangeClient(
                thread, self._servers, self._cluster_id, client_id=CLIENT_ID, words=WORDS, security=self._security
            )
            try:
                for wanted in self._ranges:
                    if wanted.offsets_count:
                        yield from _read(client, wanted, options, columns, stop)
            finally:
                client.close()


def _read(
    client: RangeClient, wanted: OffsetRange, options: _Options, columns: Sequence[str], stop: Stop
) -> Iterator[pa.RecordBatch]:
    from replog.records.arrow.columns import ArrowColumns

    made = ArrowColumns(columns, (wanted.topic, wanted.partition))
    with client.open_range(wanted, options, stop) as pieces:
        for encoded in pieces:
            yield from made.bounded(
                encoded.data,
                start_offset=encoded.start_offset,
                end_offset=wanted.end_offset,
                is_checked=not encoded.is_checked,
            )


@contextmanager
def _loop() -> Generator[LoopThread]:
    """Lends the process's event loop; it ends with the last who uses it."""
    user = object()
    try:
        yield LoopThread.acquire(user)
    finally:
        LoopThread.release(user)


async def _pinned(
    view: ClusterView, topic: str, partitions: Collection[int], limits: ScanLimits, timeout_ms: int | None
) -> tuple[OffsetRange, ...]:
    """Asks the leaders where each partition begins and ends for readers, and fixes what is read."""
    await view.ready(CONNECT_TIMEOUT_MS)
    info = await view.topic_or_raise(topic)
    numbers = chosen_numbers(topic, partitions, [each.partition_id for each in info.partitions])
    chosen = [TopicPartition(topic, number) for number in numbers]
    patience = PlanningPatience(view, timeout_ms, WORDS)
    bounds = await look_up_bounds(view, chosen, patience)
    times = [{} if time is None else dict.fromkeys(chosen, time) for time in times_of(limits)]
    first, last = [await look_up_times(view, each, patience) for each in times]
    now = view.image.topics.get(topic)
    if now is None or now.topic_id != info.topic_id:
        raise UnknownTopicIdError(f"topic {topic} was deleted or created anew while it was looked at; scan it again")
    ranges: list[OffsetRange] = []
    for each in chosen:
        found = (_offset(first.get(each)), _offset(last.get(each)))
        start, end = offsets_of(limits, each, bounds[each], found)
        epoch, metadata_offset = bounds[each].leader_epoch, view.image.shared_offset
        ranges.append(OffsetRange(topic, info.topic_id, each.partition, start, end, epoch, metadata_offset))
    return tuple(ranges)


def _offset(found: ListOffsetsResult | None) -> int | None:
    return None if found is None or found.offset < 0 else found.offset
