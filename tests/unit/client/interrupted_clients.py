"""Uses the sync clients while real SIGINTs come at random moments, and keeps account; `test_client_interrupts` runs it.

One signal is under way at a time, and each must reach the caller as one KeyboardInterrupt.  What a call returned is taken by a
plain assignment, before which nothing can be interrupted once the call has returned: so the account is exact.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from fake_cluster import FakeCluster
from reading_kit import FIRST_OFFSET, HEALTHY, Account, filled_cluster

from replog.client import SyncAdmin, SyncConsumer, SyncDelivery, SyncProducer
from replog.client.sync.loop_thread import LoopThread
from replog.errors import BrokerClosedError, ReplogError

T = TypeVar("T")
HANGS_AFTER_S = 90


class Interrupts:
    """Sends the signals and counts them.

    Attributes:
        raised_count: Those that were raised as KeyboardInterrupt, wherever that was.
        caught_count: Those that came out of a call.
    """

    def __init__(self, seed: int) -> None:
        self.raised_count = 0
        self.caught_count = 0
        self._is_armed = False
        self._is_over = threading.Event()
        self._rng = random.Random(seed)
        signal.signal(signal.SIGINT, self._handle)
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def call(self, work: Callable[[], T]) -> T | None:
        """What `work` returns; None: it was interrupted."""
        try:
            self._is_armed = True
            result = work()
            self._is_armed = False
        except KeyboardInterrupt:
            self._is_armed = False
            self.caught_count += 1
            result = None
        if self.raised_count != self.caught_count:
            sys.exit(f"{self.raised_count} interrupts were raised, {self.caught_count} reached the caller")
        return result

    def stop(self) -> None:
        self._is_over.set()
        self._sender.join()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_armed and self.raised_count == self.caught_count:  # the sender may have looked just before
            self.raised_count += 1
            raise KeyboardInterrupt

    def _send(self) -> None:
        while not self._is_over.wait(self._rng.choice([0, 0.0001, 0.0005, 0.002]) * self._rng.random()):
            if self._is_armed and self.raised_count == self.caught_count:
                os.kill(os.getpid(), signal.SIGINT)


def produce(interrupts: Interrupts, count: int) -> None:
    """Every record whose `send` returned is in the log once, in order; of the others at most one copy."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    transport: Any = cluster.transport()
    sent: list[bytes] = []
    until_count = interrupts.caught_count + count
    producer = SyncProducer(cluster.bootstrap, transport=transport)
    number = 0
    while interrupts.caught_count < until_count:
        value = b"%d" % number
        number += 1
        delivery: SyncDelivery | None = interrupts.call(lambda value=value: producer.send("t", value))  # type: ignore[misc]
        if delivery is not None:
            sent.append(value)
            interrupts.call(lambda delivery=delivery: delivery.result(10))  # type: ignore[misc]
    interrupts.call(producer.flush)
    producer.close()
    found = [value or b"" for value in cluster.logs["t", 0].values()]
    assert len(set(found)) == len(found), "nothing is doubled"
    assert set(sent) <= set(found), "nothing is lost"
    assert sorted(found, key=int) == found


def consume(interrupts: Interrupts, count: int) -> None:
    """What was handed out is what lies below the positions."""
    rng = random.Random(count)
    until_count = interrupts.caught_count + count
    while interrupts.caught_count < until_count:
        cluster = filled_cluster(400)
        transport: Any = cluster.transport()
        account = Account(HEALTHY, 400)
        consumer = SyncConsumer(
            cluster.bootstrap, transport=transport, fetch_max_wait_ms=20, max_partition_fetch_bytes=20_000
        )
        reads: list[Callable[[], Any]] = [
            lambda consumer=consumer: consumer.poll(7, timeout_ms=1_000),  # type: ignore[misc]
            lambda consumer=consumer: consumer.fetch_batches(timeout_ms=1_000),  # type: ignore[misc]
            consumer.__next__,
        ]
        while not consumer.assignment():
            interrupts.call(lambda: consumer.assign(HEALTHY, start=account.next_offsets))  # noqa: B023 -- called at once
        while any(offset < account.end_offset for offset in account.next_offsets.values()):
            found = interrupts.call(rng.choice(reads))
            if found is not None:
                account.take(found if isinstance(found, list) else [found])
            for partition, next_offset in account.next_offsets.items():
                position = interrupts.call(lambda partition=partition: consumer.position(partition))  # type: ignore[misc]  # noqa: B023
                assert position in {None, next_offset}
        consumer.close()
        assert min(account.next_offsets.values()) > FIRST_OFFSET


def open_and_close(interrupts: Interrupts, count: int) -> None:
    """Each client starts the loop's thread, and ends it."""
    cluster = FakeCluster()
    transport: Any = cluster.transport()
    until_count = interrupts.caught_count + count
    while interrupts.caught_count < until_count:
        admin = SyncAdmin(cluster.bootstrap, transport=transport)
        interrupts.call(admin.list_topics)
        admin.close()
        assert LoopThread._shared is None


def close(interrupts: Interrupts, count: int) -> None:
    """However often `close` is interrupted, the next one ends the client, and what a record's outcome was it stays."""
    rng = random.Random(count)
    until_count = interrupts.caught_count + count
    while interrupts.caught_count < until_count:
        cluster = FakeCluster(2)
        cluster.create_topic("t")
        transports: list[Any] = [cluster.transport() for _ in range(3)]
        producer = SyncProducer(cluster.bootstrap, transport=transports[0])
        acknowledged = [producer.send("t", b"%d" % number) for number in range(rng.randrange(3))]
        producer.flush()
        cluster.nodes[1].hold_replies = rng.random() < 0.5  # the producer waits for them until it is interrupted
        waiting = [producer.send("t", b"%d" % number) for number in range(3, 3 + rng.randrange(3))]
        consumer = SyncConsumer(cluster.bootstrap, transport=transports[1])
        consumer.assign([("t", 0)])
        admin = SyncAdmin(cluster.bootstrap, transport=transports[2])
        admin.list_topics()
        clients = [*zip((producer, consumer, admin), transports, strict=True)]
        rng.shuffle(clients)
        for client, transport in clients:
            while interrupts.call(lambda client=client: has_closed(client)) is None:  # type: ignore[misc]
                pass
            assert not transport.open_connections, f"{type(client).__name__} left connections open"
        assert LoopThread._shared is None
        assert [cluster.logs["t", 0].values()[one.result().offset] for one in acknowledged] == [
            b"%d" % number for number in range(len(acknowledged))
        ]
        for number, one in enumerate(waiting, 3):
            assert one.done(), "every record's fate is told"
            with contextlib.suppress(BrokerClosedError):
                assert cluster.logs["t", 0].values()[one.result().offset] == b"%d" % number


def has_closed(client: SyncProducer | SyncConsumer | SyncAdmin) -> bool:
    with contextlib.suppress(ReplogError):  # of records that were not acknowledged
        client.close()
    return True


def main() -> None:
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
    interrupts = Interrupts(int(sys.argv[1]))
    for use in (produce, consume, open_and_close, close):
        use(interrupts, int(sys.argv[2]))
    interrupts.stop()
    left = [thread for thread in threading.enumerate() if thread.name == "replog-loop" and thread.ident]
    for thread in left:
        thread.join(10)
    assert not any(thread.is_alive() for thread in left)
    print(interrupts.caught_count)


main()
