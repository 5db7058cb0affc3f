"""Dead letters of workers: why each is one, and the way back to the topic that it came from."""

from __future__ import annotations

from collections import Counter
from typing import Final

from aiohttp import web
from msgspec import Struct

from replog.client import Producer, TopicPartition
from replog.console import reading
from replog.console.asking import answered, body_of, text_of
from replog.console.context import CONTEXT
from replog.console.topics import topic_named
from replog.errors import InvalidRequestError
from replog.worker.replaying import replay, send_back

READ_MAX: Final = 1_000
"""Of the newest records of a topic that are looked at."""

ROWS_MAX: Final = 200
"""Of those that are shown."""

REPLAYED_MAX: Final = 1_000
"""Dead letters that go back at once."""


class _Redrive(Struct, forbid_unknown_fields=True):
    topic: str
    partition: int | None = None
    offset: int | None = None
    dry_run: bool = False


async def letters(request: web.Request) -> web.Response:
    """Tells the newest dead letters of a topic, and how many there are of each reason among them."""
    context, name = request.app[CONTEXT], text_of(request, "topic")
    info = topic_named(await context.metadata(), name)
    async with context.readers, context.consumer() as consumer:
        found = await reading.newest(consumer, reading.readable(info, None), READ_MAX, {})
    reasons = Counter((row.letter.topic, row.letter.group, row.letter.error) for row in found.rows if row.letter)
    return answered(
        {
            "rows": found.rows[:ROWS_MAX],
            "read_count": len(found.rows),
            "has_more": found.has_more,
            "strange_count": sum(row.letter is None for row in found.rows),
            "reasons": [
                {"topic": topic, "group": group, "error": error, "count": count}
                for (topic, group, error), count in reasons.most_common(50)
            ],
        }
    )


async def redrive(request: web.Request) -> web.Response:
    """Sends one dead letter back, or those that were not sent back together with others before."""
    wanted: _Redrive = await body_of(request, _Redrive)
    context = request.app[CONTEXT]
    servers, security = context.settings.bootstrap_servers, context.settings.security
    if (wanted.partition is None) != (wanted.offset is None):
        raise InvalidRequestError("name partition and offset of one dead letter, or neither for all")
    topic_named(await context.metadata(), wanted.topic)
    if wanted.partition is None or wanted.offset is None:
        done = await replay(servers, wanted.topic, security=security, max_records=REPLAYED_MAX, dry_run=wanted.dry_run)
        more = done.sent.total() >= REPLAYED_MAX
        told = {"sent": dict(done.sent), "strange_count": done.strange_count, "silence": done.silence}
        return answered({**told, "may_be_more": more})
    async with context.readers, context.consumer() as consumer:
        record = await reading.one(consumer, TopicPartition(wanted.topic, wanted.partition), wanted.offset)
    if record is None:
        raise InvalidRequestError(f"{wanted.topic}-{wanted.partition} has no record at offset {wanted.offset:,}")
    async with Producer(servers, security=security) as producer:
        letter = await send_back(producer, record)
        await producer.flush()
    if letter is None:
        raise InvalidRequestError("this record is no dead letter of a worker: nothing says where it came from")
    return answered({"sent": {letter.topic: 1}, "strange_count": 0, "silence": "", "may_be_more": False})
