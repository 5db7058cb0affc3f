"""What writers that are gone have left in the topic of decisions: whoever writes a DataFrame looks after it.

A driver that dies between its decision and the end of what it has decided leaves transactions open that are to be committed, and no
time-out ends them.  A query that is started again carries its decision out, a write that nobody repeats never would.  A decision
stands once it is written, so anybody may do the rest of it.

Of a write without a name nobody asks what became of it, so that its records go after a while; else the topic would grow with each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from replog.client import Consumer, Producer
from replog.client.types import TopicPartition
from replog.errors import InvalidRecordError, ReplogError
from replog.spark.options.brokers import Brokers
from replog.spark.sink.once import decisions
from replog.spark.sink.once.decisions import DECISIONS_TOPIC, Decision
from replog.spark.sink.once.ledger import LIMIT_MS, finish_at_brokers
from replog.spark.sink.once.names import UNNAMED
from replog.spark.worker_client import CLIENT_ID, loop_thread

GONE_MS: Final = 5 * 60_000
"""How long after its decision a driver is taken for gone: each of its steps takes `LIMIT_MS` at most."""

KEPT_MS: Final = 24 * 60 * 60_000
"""How long the records of a write without a name are kept, for attempts of it that were held up."""

READ_MS: Final = 10_000
"""How long the topic is read for this: a write does not wait for long to look after others."""

DROPPED_MAX: Final = 1_000
"""How many writers are dropped at a time."""

_log = logging.getLogger(__name__)


class Left(Struct):
    """What the topic has of a writer.

    Attributes:
        keys: The keys of its records.
        last_ms: The time of its newest record, in milliseconds since 1970.
        decision: The last decision; None: there is none.
    """

    keys: set[bytes]
    last_ms: int
    decision: Decision | None = None


def look_after(brokers: Brokers) -> None:
    """Carries out decisions whose drivers are gone, and drops what nobody asks for; what fails is left to the next one."""
    loop_thread().run(partial(_look_after, brokers))


async def _look_after(brokers: Brokers) -> None:
    now_ms = time.time_ns() // 1_000_000
    try:
        left = await _read_all(brokers)
        await _drop(brokers, _nobodys(left, now_ms))
    except ReplogError as error:
        _log.warning("decisions of other writes, which may hold readers back, could not be looked at: %s", error)
        return
    for writer, each in left.items():
        if each.decision is not None and not each.decision.is_done and each.last_ms <= now_ms - GONE_MS:
            await _finish(brokers, writer, each.decision)


async def _finish(brokers: Brokers, writer: str, decision: Decision) -> None:
    try:
        await finish_at_brokers(brokers, writer)
    except ReplogError as error:
        _log.warning(
            "%s had been decided, its driver has gone, and nobody can do the rest: %s", decision.version, error
        )
    else:
        _log.warning("%s had been decided, and its driver has gone: it is there now", decision.version)


async def _read_all(brokers: Brokers) -> dict[str, Left]:
    """Returns what the topic has, by writer; up to the first transaction that is open in each partition."""
    left: dict[str, Left] = {}
    partitions = [TopicPartition(DECISIONS_TOPIC, number) for number in range(decisions.PARTITIONS)]
    async with Consumer(brokers.servers, security=brokers.security, client_id=CLIENT_ID) as consumer:
        ends = await consumer.end_offsets(partitions, timeout_ms=READ_MS)
        await consumer.assign(partitions)
        deadline_s = time.monotonic() + READ_MS / 1_000
        while any(consumer.position(each) < ends[each] for each in partitions) and time.monotonic() < deadline_s:
            for record in await consumer.poll():
                _note(left, record.key or b"", record.value, record.timestamp)
    return left


def _note(left: dict[str, Left], key: bytes, value: bytes | None, timestamp_ms: int) -> None:
    writer, _, kind = key.decode("utf-8", "replace").partition("/")
    if value is None:
        if writer in left:
            left[writer].keys.discard(key)
        return
    found = left.setdefault(writer, Left(set(), timestamp_ms))
    found.keys.add(key)
    found.last_ms = max(found.last_ms, timestamp_ms)
    if not kind:
        try:
            found.decision = decisions.decode(key, value)
        except InvalidRecordError as error:  # the writer's own driver will say so
            _log.warning("%s", error)


def _nobodys(left: Mapping[str, Left], now_ms: int) -> dict[str, set[bytes]]:
    """Returns the keys of writes without a name that have ended long ago, some at a time."""
    found = {
        writer: each.keys
        for writer, each in left.items()
        if writer.startswith(UNNAMED)
        and each.keys
        and each.last_ms <= now_ms - KEPT_MS
        and (each.decision is None or each.decision.is_done)
    }
    return dict(list(found.items())[:DROPPED_MAX])


async def _drop(brokers: Brokers, keys: Mapping[str, set[bytes]]) -> None:
    if not keys:
        return
    async with Producer(
        brokers.servers, security=brokers.security, client_id=CLIENT_ID, delivery_timeout_ms=LIMIT_MS
    ) as producer:
        for writer, its_keys in keys.items():
            for key in sorted(its_keys):
                await producer.send(DECISIONS_TOPIC, None, key, partition=decisions.partition_of(writer))
        await producer.flush()
