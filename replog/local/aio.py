"""A local log from asyncio: the appends of many tasks share batches, writes and fsyncs.

    task 1   await append ----+                           +--> offset 7
    task 2   await append ----+-> one batch, one write,   +--> offset 8
    task 3   await append ----+   one fsync, in a thread  +--> offset 9
    task 4        await append ...... waits, and is in the next group with everybody who came meanwhile

There is no delay on purpose: a group is what came while the last one was written.  The loop itself never touches the disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeAlias

from replog.errors import BrokerClosedError, InvariantViolationError
from replog.local.encoding import Group, RecordLike, record_input, record_inputs
from replog.local.reading import CHUNK_BYTES, MAX_RECORDS
from replog.local.writing import WritableLog, Written
from replog.records import Buffer, Header, Record, RecordInput
from replog.waiting.task_ends import Ending

_GROUP_ENTRIES_MAX: Final = 10_000
"""Appends in one group; more wait for the next one, so that the first are not kept waiting for the last."""

_Entry: TypeAlias = RecordInput | list[RecordInput]
_Waiting: TypeAlias = tuple[_Entry, asyncio.Future[int]]


class AsyncLocalLog:
    """A `LocalLog` for the tasks of one event loop.  Made by `LocalLog.aio` or `open_log_async`.

    Arguments, results and errors are those of `LocalLog`; what is not here (settings, Arrow, the read-only side) is on `log`.

    Invariants:
        - one group is under way at a time, so the offsets of one loop follow the order of the calls;
        - an append whose task is cancelled before its group begins is not written; later it is.

    Attributes:
        log: The log itself; other threads may use it at the same time.
    """

    def __init__(self, log: WritableLog, *, owns_log: bool = False) -> None:
        self.log = log
        self._owns_log = owns_log
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._is_committing = False
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._moved: asyncio.Future[None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="replog-log-writer")
        self._ending = Ending(self._release)
        log.add_watcher(self._wake)

    # Appending

    async def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        *,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Appends a record as `LocalLog.append` does; tasks that append at the same time share a batch and an fsync."""
        record = record_input(value, key, headers, timestamp_ms, self.log.config.batch_bytes)
        return await self._enqueue(record)

    async def append_many(self, records: Iterable[RecordLike]) -> range:
        """Appends records with consecutive offsets, as `LocalLog.append_many` does."""
        inputs = record_inputs(records, self.log.config.batch_bytes)
        if not inputs:
            return range(0)
        base_offset = await self._enqueue(inputs)
        return range(base_offset, base_offset + len(inputs))

    async def flush(self) -> int:
        """Makes everything appended so far durable, as `LocalLog.flush` does."""
        return await asyncio.to_thread(self.log.flush)

    async def truncate_before(self, offset: int) -> int:
        """Forgets all records below `offset`, as `LocalLog.truncate_before` does."""
        return await asyncio.to_thread(self.log.truncate_before, offset)

    async def maintain(self) -> None:
        """Carries out now the maintenance that is due, as `LocalLog.maintain` does."""
        await asyncio.to_thread(self.log.maintain)

    # Reading

    async def read(self, offset: int, *, max_records: int = MAX_RECORDS, max_bytes: int = CHUNK_BYTES) -> list[Record]:
        """Reads records from `offset` on, as `LocalLog.read` does."""
        return await asyncio.to_thread(self.log.read, offset, max_records=max_records, max_bytes=max_bytes)

    async def read_from(
        self, timestamp_ms: int, *, max_records: int = MAX_RECORDS, max_bytes: int = CHUNK_BYTES
    ) -> list[Record]:
        """Reads records from the first with at least this timestamp on, as `LocalLog.read_from` does."""
        return await asyncio.to_thread(self.log.read_from, timestamp_ms, max_records=max_records, max_bytes=max_bytes)

    async def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Finds the offset of the first record that late, as `LocalLog.offset_for_timestamp` does."""
        return await asyncio.to_thread(self.log.offset_for_timestamp, timestamp_ms)

    def iterate(self, start_offset: int | None = None, end_offset: int | None = None) -> AsyncIterator[Record]:
        """Returns the records of a range for `async for`, as `LocalLog.iterate` does."""
        return _Records(self, *self.log.range_of(start_offset, end_offset))

    def __aiter__(self) -> AsyncIterator[Record]:
        """Returns `iterate()`: everything acknowledged by now."""
        return self.iterate()

    def tail(self, start_offset: int | None = None, *, timeout_s: float | None = None) -> AsyncIterator[Record]:
        """Returns records for `async for` as `LocalLog.tail` does for loops; no thread waits meanwhile."""
        start, _ = self.log.range_of(self.log.high_watermark if start_offset is None else start_offset, None)
        return _Records(self, start, start, follows=True, timeout_s=timeout_s)

    async def wait_for(self, offset: int, *, timeout_s: float | None = None) -> bool:
        """Waits until the record at `offset` can be read, as `LocalLog.wait_for` does; no thread waits meanwhile."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.log.wait_for(offset, timeout_s=0):
                    if self._is_closed or self.log.closed:
                        return False
                    await self._next_move(offset)
        except TimeoutError:
            return False
        return True

    # What it knows

    @property
    def path(self) -> str:
        """As `LocalLog.path`."""
        return self.log.path

    @property
    def log_start_offset(self) -> int:
        """As `LocalLog.log_start_offset`."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """As `LocalLog.log_end_offset`."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """As `LocalLog.high_watermark`."""
        return self.log.high_watermark

    @property
    def flushed_offset(self) -> int:
        """As `LocalLog.flushed_offset`."""
        return self.log.flushed_offset

    @property
    def size_bytes(self) -> int:
        """As `LocalLog.size_bytes`."""
        return self.log.size_bytes

    # Its end

    async def close(self) -> None:
        """Waits for the appends under way; then closes the log if `open_log_async` opened it.  Twice does nothing."""
        self._is_closed = True
        await self._ending.wait()

    async def _release(self) -> None:
        await self._idle.wait()
        self.log.remove_watcher(self._wake)
        self._resolve_move()
        self._writer.shutdown(wait=False)
        if self._owns_log:
            await asyncio.to_thread(self.log.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Groups

    async def _enqueue(self, entry: _Entry) -> int:
        if self._is_closed:
            raise BrokerClosedError(f"this view of the log {self.log.path} is closed; make a new one")
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((entry, future))
        if not self._is_committing:
            self._is_committing = True
            self._idle.clear()
            self._loop.call_soon(self._commit_next)  # after the tasks that are ready now: they share the first group
        return await future

    def _commit_next(self) -> None:
        group: list[_Waiting] = []
        while self._waiting and len(group) < _GROUP_ENTRIES_MAX:
            waiting = self._waiting.popleft()
            if not waiting[1].done():  # cancelled meanwhile: not written
                group.append(waiting)
        if not group:
            self._is_committing = False
            self._idle.set()
            return
        commit = self._loop.run_in_executor(self._writer, self._commit, [entry for entry, _ in group])
        commit.add_done_callback(lambda done: self._finish(group, done))

    def _commit(self, entries: list[_Entry]) -> Written:
        """Appends a group; runs in the writer's thread."""
        return self.log.append_group(Group(entries))

    def _finish(self, group: list[_Waiting], done: asyncio.Future[Written]) -> None:
        error = done.exception()
        if error is not None:
            _fail_all(group, error)
        else:
            _answer(group, done.result())
        self._commit_next()

    # Following

    async def _next_move(self, offset: int) -> None:
        """Waits for a notification that comes after the high watermark was found at or below `offset`."""
        if self._moved is None:
            self._moved = self._loop.create_future()
        moved = self._moved
        if self.log.high_watermark <= offset and not self.log.closed and not self.log.failed:
            await asyncio.shield(moved)

    def _wake(self) -> None:
        """Wakes the tasks that wait for new records, from any thread.  A loop that has been closed needs no waking."""
        if self._moved is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resolve_move)

    def _resolve_move(self) -> None:
        moved, self._moved = self._moved, None
        if moved is not None and not moved.done():
            moved.set_result(None)


class _Records:
    """The records of [offset, end_offset), and with `follows` those that come.

    No generator, as one that is cancelled while it waits has ended: a loop that goes on with it would find no record any more
    and take that for the end of the log.  This one goes on with the record after the last that it gave.
    """

    def __init__(
        self,
        log: AsyncLocalLog,
        offset: int,
        end_offset: int,
        *,
        follows: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        self._log = log
        self._offset = offset
        self._end_offset = end_offset
        self._follows = follows
        self._timeout_s = timeout_s
        self._ready: list[Record] = []  # last first

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while not self._ready:
            if self._offset >= self._end_offset:
                await self._wait_for_more()
            try:
                chunk, self._offset = await asyncio.to_thread(self._log.log.read_chunk, self._offset, self._end_offset)
            except BrokerClosedError:
                if self._follows:  # closing the log ends a tail, wherever it is
                    raise StopAsyncIteration from None
                raise
            self._ready = chunk[::-1]
        return self._ready.pop()

    async def _wait_for_more(self) -> None:
        if not self._follows or not await self._log.wait_for(self._offset, timeout_s=self._timeout_s):
            raise StopAsyncIteration
        self._end_offset = self._log.high_watermark


def _fail_all(group: Sequence[_Waiting], error: BaseException) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)


def _answer(group: Sequence[_Waiting], written: Written) -> None:
    """Answers the callers of a group: with their offset where their records are all there, else with the error."""
    offset = written.base_offset
    for entry, future in group:
        end_offset = offset + (1 if isinstance(entry, tuple) else len(entry))
        if not future.done():
            if end_offset <= written.end_offset:
                future.set_result(offset)
            else:
                future.set_exception(written.error or InvariantViolationError(f"a group ended at {written.end_offset}"))
        offset = end_offset
