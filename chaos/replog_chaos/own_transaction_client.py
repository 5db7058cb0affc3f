"""A client of transactions under chaos, a process of its own, with our clients; what it writes is that of `transaction_client`.

    python -m replog_chaos.own_transaction_client write SERVERS ID TOPIC PARTITIONS
    python -m replog_chaos.own_transaction_client chain SERVERS ID GROUP FROM TO
    python -m replog_chaos.own_transaction_client read SERVERS PARTITIONS TOPIC ...

It does what docs/TRANSACTIONS.md tells programs to do: a transaction that has failed is begun anew, its inputs are sought again, and
whoever is fenced or does not know the outcome ends.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from replog.client import Consumer, ConsumerRecord, Producer, Transaction
from replog.errors import ProducerFencedError, ReplogError, TransactionOutcomeUnknownError
from replog_chaos.transaction_client import (
    ABORTED,
    PAUSE_S,
    POLL_S,
    TAKEN_MAX,
    TRANSACTION_MS,
    WRITES_MAX,
    FencedError,
    write,
)

POLL_MS: Final = round(POLL_S * 1000)


class _AbortWantedError(Exception):
    """The transaction is to be aborted."""


class OwnTransactionalWork:
    """One transaction after the other.

    Args:
        producer: The producer, which has been started.
        transactional_id: The id; it is part of each value.
    """

    def __init__(self, producer: Producer, transactional_id: str) -> None:
        self._producer = producer
        self._name = f"{transactional_id}.{time.monotonic_ns():x}"
        self._count = 0

    async def run(self, fill: Callable[[Transaction], Awaitable[object]], *, aborts: bool = False) -> bool:
        """Runs a transaction; returns whether it was committed.

        Args:
            fill: The function that appends and commits offsets.
            aborts: Whether it is to be aborted.

        Raises:
            FencedError: Another producer has the transactional id, or the outcome is not known.
        """
        has_begun = False
        try:
            async with self._producer.transaction() as transaction:
                # not before: the first one of a producer fences the one before, whose transactions may begin until then
                write("begin", time.monotonic_ns())
                has_begun = True
                await fill(transaction)
                if aborts:
                    raise _AbortWantedError  # noqa: TRY301 -- leaving the block so is what aborts
                write("ask", time.monotonic_ns())
        except (ProducerFencedError, TransactionOutcomeUnknownError) as error:
            raise FencedError(repr(error)) from error
        except (ReplogError, _AbortWantedError):
            if has_begun:
                write("end aborted")
            return False
        write("end committed")
        return True

    async def append(self, topic: str, partition: int, source: tuple[str, int, int] | None = None) -> None:
        """Appends a value; of a record that was consumed for it the place is noted."""
        self._count += 1
        value = f"{self._name}.{self._count}"
        write("write", topic, partition, value, *(source or ()))
        await self._producer.send(topic, value.encode(), partition=partition)


def _producer_of(servers: str, transactional_id: str) -> Producer:
    return Producer(
        servers, transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_MS, request_timeout_ms=3_000
    )


async def _write(stopping: Sequence[int], servers: str, transactional_id: str, topic: str, partitions: str) -> None:
    """Appends values to random partitions until SIGTERM."""
    draw = random.Random(time.monotonic_ns())  # noqa: S311 -- a load
    async with _producer_of(servers, transactional_id) as producer:
        work = OwnTransactionalWork(producer, transactional_id)
        write("ready")

        async def fill(_transaction: Transaction) -> None:
            for _ in range(draw.randint(1, WRITES_MAX)):
                await work.append(topic, draw.randrange(int(partitions)))

        while not stopping:
            await work.run(fill, aborts=draw.random() < ABORTED)
            await asyncio.sleep(PAUSE_S)


async def _chain(
    stopping: Sequence[int], servers: str, transactional_id: str, group: str, source: str, sink: str
) -> None:
    """Appends to `sink` one value for each record of `source` until SIGTERM, in transactions with the offsets."""
    async with (
        Consumer(servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
        _producer_of(servers, transactional_id) as producer,
    ):
        work = OwnTransactionalWork(producer, transactional_id)
        await consumer.subscribe([source])
        write("ready")
        while not stopping:
            taken = await consumer.poll(TAKEN_MAX, POLL_MS)
            if taken and not await work.run(partial(_pass_on, work, consumer, taken, sink)):
                for record in reversed(taken):
                    consumer.seek((record.topic, record.partition), record.offset)


async def _pass_on(
    work: OwnTransactionalWork,
    consumer: Consumer,
    taken: Sequence[ConsumerRecord],
    sink: str,
    transaction: Transaction,
) -> None:
    """Appends what is made of some inputs, and commits the offsets behind them."""
    for record in taken:
        await work.append(sink, record.partition, (record.topic, record.partition, record.offset))
    await transaction.commit_offsets(consumer)


async def _read(stopping: Sequence[int], servers: str, partitions: str, *topics: str) -> None:
    """Reads all partitions of topics from their beginning until SIGTERM."""
    async with Consumer(servers) as consumer:
        await consumer.assign([(topic, number) for topic in topics for number in range(int(partitions))])
        write("ready")
        while not stopping:
            for each in await consumer.poll(TAKEN_MAX, POLL_MS):
                place = (each.topic, each.partition, each.offset)
                write("read", time.monotonic_ns(), *place, (each.value or b"").decode())


KINDS: Final[Mapping[str, Callable[..., Any]]] = {"write": _write, "chain": _chain, "read": _read}


async def main(kind: str, *arguments: str) -> None:
    """Works until the process is ended, or fenced."""
    stopping: list[int] = []
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.append, signal.SIGTERM)
    try:
        await KINDS[kind](stopping, *arguments)
    except FencedError as error:
        write("fenced", error)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
