"""Records of a topic: lists, one record, a search, a tail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from msgspec import Struct
from msgspec.structs import asdict

from replog.client import Consumer, ConsumerRecord, TopicPartition
from replog.client.consumer.positions import offsets_of, parse_place
from replog.console import reading, shown_records
from replog.console.asking import answered, number_of, offsets_of_text, text_of
from replog.console.context import ASK_MS, CONTEXT
from replog.console.topics import topic_named
from replog.errors import InvalidRequestError

Line = dict[str, object]

LIMIT: Final = 100
LIMIT_MAX: Final = 500

MATCHES_MAX: Final = 500
"""Of one search."""

SEARCH_S: Final = 120.0
PROGRESS_S: Final = 0.25
POLL_MS: Final = 250

TAIL_ROWS_MAX: Final = 100
"""Of one look, which takes `POLL_MS` at least: what comes faster is counted, and not shown."""

PARTS: Final = ("key", "value", "headers")
PARTITION_MAX: Final = 2**31 - 1


class SearchFor(Struct, frozen=True):
    """What is searched for.

    Attributes:
        word: The bytes to find; in lower case where case does not count.
        parts: Where to look: key, value, headers.
        is_exact: Whether case counts; else ASCII letters are equal in both cases.
    """

    word: bytes
    parts: frozenset[str]
    is_exact: bool

    def is_in(self, record: ConsumerRecord) -> bool:
        """Whether the record holds it."""
        if "value" in self.parts and self._holds(record.value):
            return True
        if "key" in self.parts and self._holds(record.key):
            return True
        return "headers" in self.parts and any(
            self._holds(name.encode()) or self._holds(each) for name, each in record.headers
        )

    def _holds(self, data: bytes | None) -> bool:
        if data is None:
            return False
        return self.word in (data if self.is_exact else data.lower())


def search_of(request: web.Request) -> SearchFor:
    """Returns what a request searches for.

    Raises:
        InvalidRequestError: It says nothing, or names other parts of a record.
    """
    word, is_exact = text_of(request, "word"), text_of(request, "case", "") == "exact"
    parts = frozenset(text_of(request, "in", ",".join(PARTS)).split(","))
    if not word or not parts <= set(PARTS):
        raise InvalidRequestError(f"say word=, and in= of {', '.join(PARTS)}")
    return SearchFor(word.encode() if is_exact else word.encode().lower(), parts, is_exact)


async def messages(request: web.Request) -> web.Response:
    """Tells some records: the newest (up to `before`), those from a place on (`from`), or from offsets on (`at`)."""
    limit = max(1, number_of(request, "limit", LIMIT, high=LIMIT_MAX))
    at, place, before = (text_of(request, name, "") for name in ("at", "from", "before"))
    start = offsets_of_text(at) if at else parse_place(place, _now_ms()) if place else None
    ends = offsets_of_text(before)
    async with request.app[CONTEXT].readers, _opened(request) as (consumer, partitions, leaderless):
        if start is None:
            found = await reading.newest(consumer, partitions, limit, ends)
        else:
            found = await reading.onward(consumer, partitions, limit, start)
    return answered(asdict(found) | {"leaderless": leaderless})


async def message(request: web.Request) -> web.Response:
    """Tells one record, whole, with lines that write it again."""
    context = request.app[CONTEXT]
    name = TopicPartition(text_of(request, "topic"), number_of(request, "partition", high=PARTITION_MAX))
    offset = number_of(request, "offset")
    async with context.readers, context.consumer() as consumer:
        found = await reading.one(consumer, name, offset)
    if found is None:
        raise InvalidRequestError(f"{name} has no record at offset {offset:,} (any more, or yet)")
    return answered(shown_records.whole(found, context.settings.bootstrap_servers))


async def search(request: web.Request) -> AsyncGenerator[Line]:
    """Yields the records that hold a word, from a place on up to the end of now, and how far it has come.

    Raises:
        InvalidRequestError: There is nothing to search for, or no such place.
        ReplogError: A leader does not answer, or what it sends is damaged.
    """
    wanted, place = search_of(request), parse_place(text_of(request, "from", "earliest"), _now_ms())
    async with _opened(request) as (consumer, partitions, leaderless):
        _, ends = await reading.windows(consumer, partitions)
        begins = await offsets_of(consumer, partitions, place, ASK_MS)
        left: dict[tuple[str, int], int] = {each: begin for each, begin in begins.items() if begin < ends[each]}
        total = sum(ends[each] - begin for each, begin in begins.items())
        await consumer.assign(left, start=left, timeout_ms=ASK_MS)
        loop = asyncio.get_running_loop()
        deadline_s, told_s, read_count, matches_count = loop.time() + SEARCH_S, 0.0, 0, 0
        reason = "end"
        while left:
            for record in await consumer.poll(reading.POLL_RECORDS, POLL_MS):
                if record.offset >= ends[TopicPartition(record.topic, record.partition)]:
                    continue
                read_count += 1
                if wanted.is_in(record):
                    matches_count += 1
                    yield {"record": shown_records.row(record)}
                    if matches_count == MATCHES_MAX:
                        break
            for name in [name for name in left if consumer.position(name) >= ends[TopicPartition(*name)]]:
                del left[name]
                consumer.pause(name)
            if matches_count == MATCHES_MAX or loop.time() > deadline_s:
                reason = "matches" if matches_count == MATCHES_MAX else "time"
                break
            if loop.time() - told_s >= PROGRESS_S:
                told_s = loop.time()
                done = total - sum(max(0, ends[TopicPartition(*name)] - consumer.position(name)) for name in left)
                yield {"progress": {"done": done, "total": total, "read": read_count, "matches": matches_count}}
        yield {"end": {"reason": reason, "read": read_count, "matches": matches_count, "leaderless": leaderless}}


async def tail(request: web.Request) -> AsyncGenerator[Line]:
    """Yields records as they come, from now or from offsets (`at`) on; ends when the browser goes away.

    Raises:
        InvalidRequestError: The offsets cannot be read.
        ReplogError: A leader does not answer, or what it sends is damaged.
    """
    at = offsets_of_text(text_of(request, "at", ""))
    async with _opened(request) as (consumer, partitions, leaderless):
        _, ends = await reading.windows(consumer, partitions)
        begins: dict[tuple[str, int], int] = {each: at.get(each.partition, end) for each, end in ends.items()}
        await consumer.assign(begins, start=begins, timeout_ms=ASK_MS)
        yield {"begun": {each[1]: begin for each, begin in begins.items()}, "leaderless": leaderless}
        if not begins:
            return
        while True:
            found = await consumer.poll(reading.POLL_RECORDS, POLL_MS)
            rows = [shown_records.row(record) for record in found[-TAIL_ROWS_MAX:]]
            yield {"records": rows, "passed_over": len(found) - len(rows)}
            if found:
                await asyncio.sleep(POLL_MS / 1000)  # a page shows four screens a second, whatever comes


@asynccontextmanager
async def _opened(request: web.Request) -> AsyncIterator[tuple[Consumer, list[TopicPartition], list[int]]]:
    """Opens a consumer; yields it, the partitions that can be read, and the numbers of those that have no leader."""
    context = request.app[CONTEXT]
    wanted = text_of(request, "partition", "")
    number = number_of(request, "partition", high=PARTITION_MAX) if wanted else None
    info = topic_named(await context.metadata(), text_of(request, "topic"))
    leaderless = [each.partition_id for each in info.partitions if each.leader < 0]
    async with context.consumer() as consumer:
        yield consumer, reading.readable(info, number), leaderless


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
