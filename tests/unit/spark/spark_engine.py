"""Spark's micro-batch engine as a stream source sees it, without a JVM: its logs, the order of its calls, and its ends.

What it does is that of Spark 4 (MicroBatchExecution, and the engine with asynchronous progress tracking): the end of a batch is
logged before the batch is read, its completion behind the sink, and a query that is started again runs the last batch of the log
once more where its completion is missing.  Offsets come and go as text, tasks are pickled.
"""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from replog.client.ranges.offset_range import OffsetRange
from replog.spark.stream.reader import ReplogStreamReader


class Killed(Exception):  # noqa: N818 -- an end, no error
    """The driver ends here."""


class Row(NamedTuple):
    """One record that a batch has brought."""

    topic: str
    partition: int
    offset: int


@dataclass
class Checkpoint:
    """What is left of a query when its driver has ended: the offset log and the commit log, by the number of the batch."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    @property
    def is_done_with_its_last_batch(self) -> bool:
        return bool(self.offsets) and max(self.offsets) in self.commits


class FileSink:
    """Takes each batch once, as Spark's file sink does."""

    def __init__(self) -> None:
        self._batches: dict[int, list[Row]] = {}

    def add(self, batch_id: int, rows: Iterable[Row]) -> None:
        found = sorted(rows)
        assert self._batches.setdefault(batch_id, found) == found, (
            f"batch {batch_id} is another one when it is planned again"
        )

    @property
    def rows(self) -> list[Row]:
        return sorted(row for rows in self._batches.values() for row in rows)


class TopicSink:
    """Takes all that comes, as Spark's Kafka sink does, which alone is allowed with asynchronous progress tracking."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def add(self, batch_id: int, rows: Iterable[Row]) -> None:
        self._rows += rows

    @property
    def rows(self) -> list[Row]:
        """Each row once, however often it came."""
        return sorted(set(self._rows))


class Engine:
    """One life of a driver.

    Args:
        reader: The source.
        checkpoint: What lives before have left.
        sink: What takes the rows.
        read: The function that reads the ranges of a task.
        pause: The function that is called wherever the driver may be killed, or the world go on; raises `Killed`.
        is_late: The function that says, with asynchronous progress tracking, whether a batch is not logged, though the first one
            that a life plans is, and whether what is to be logged is not written yet; None: each batch is, and at once.
    """

    def __init__(
        self,
        reader: ReplogStreamReader,
        checkpoint: Checkpoint,
        sink: FileSink | TopicSink,
        read: Callable[[Sequence[OffsetRange]], list[Row]],
        pause: Callable[[], None],
        is_late: Callable[[], bool] | None = None,
    ) -> None:
        self._reader, self._checkpoint, self._sink = reader, checkpoint, sink
        self._read, self._wait, self._is_late = read, pause, is_late
        self._writes: deque[Callable[[], object]] = deque()
        self._logged_id = -1
        self._committed: str | None = None
        self._available: str | None = None
        self._is_constructed = False
        self._batch_id = 0
        self._is_first = True
        self._resume()

    def _resume(self) -> None:
        logged = sorted(self._checkpoint.offsets)
        if not logged:
            return
        self._batch_id, self._is_constructed = logged[-1], True
        self._available = self._checkpoint.offsets[logged[-1]]
        if self._checkpoint.is_done_with_its_last_batch:
            self._batch_id, self._is_constructed = logged[-1] + 1, False
            self._committed = self._available
        elif len(logged) > 1:
            self._committed = self._checkpoint.offsets[logged[-2]]

    @property
    def end(self) -> Any:
        """Where the last batch has ended."""
        return None if self._committed is None else json.loads(self._committed)

    def prepare_available_now(self) -> None:
        """Begins a run with the trigger `availableNow`, which ends at the first trigger without a batch."""
        self._reader.prepareForTriggerAvailableNow()
        self._pause()

    def trigger(self) -> bool:
        """Runs a batch, if there is one; returns whether there was."""
        if not self._is_constructed and not self._construct():
            return False
        self._is_constructed = True
        self._run()
        if self._is_first or self._batch_id == self._logged_id:
            self._write(partial(self._checkpoint.commits.add, self._batch_id))
        self._is_first, self._is_constructed = False, False
        self._committed = self._available
        self._batch_id += 1
        self._pause()
        return True

    def _construct(self) -> bool:
        start = self._available or self._initial()
        self._pause()
        self._available = _text(self._reader.latestOffset(json.loads(start), self._reader.getDefaultReadLimit()))
        self._reader.reportLatestOffset()
        if self._available == self._committed:
            return False
        self._pause()
        if self._logged_id < 0 or self._is_late is None or not self._is_late():
            self._logged_id = self._batch_id
            self._write(partial(self._checkpoint.offsets.__setitem__, self._batch_id, self._available))
        if before := self._checkpoint.offsets.get(self._batch_id - 1):
            self._reader.commit(json.loads(before))
        self._pause()
        return True

    def _run(self) -> None:
        start, end = self._committed or self._initial(), self._available
        assert end is not None
        tasks = pickle.loads(pickle.dumps(self._reader.partitions(json.loads(start), json.loads(end))))
        self._pause()
        rows = [row for task in tasks for row in self._read(task.value[1])]
        self._pause()
        self._sink.add(self._batch_id, rows)
        self._pause()

    def _write(self, write: Callable[[], object]) -> None:
        """Writes to a log: in order, with asynchronous progress tracking some time later, or never."""
        self._writes.append(write)
        self._write_some()

    def _pause(self) -> None:
        self._wait()
        self._write_some()

    def _write_some(self) -> None:
        while self._writes and not (self._is_late and self._is_late()):
            self._writes.popleft()()

    def _initial(self) -> str:
        return _text(self._reader.initialOffset())


def _text(offset: Any) -> str:
    return json.dumps(offset)
