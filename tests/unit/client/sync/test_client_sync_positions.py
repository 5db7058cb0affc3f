"""What `SyncConsumer` handed out is exactly what lies below its positions, whenever Ctrl-C comes."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
from reading_kit import FIRST_OFFSET, HEALTHY, SICK, Account, filled_cluster

from replog.client import SyncConsumer
from replog.client.sync import consumer as under_test
from replog.client.sync.loop_thread import _Call
from replog.errors import BrokerClosedError, InvalidRequestError, OffsetOutOfRangeError, ReplogError


def consumer_of(records_count: int) -> SyncConsumer:
    cluster = filled_cluster(records_count)
    transport: Any = cluster.transport()
    settings: dict[str, Any] = {"fetch_max_wait_ms": 20, "max_partition_fetch_bytes": 20_000}
    return SyncConsumer(cluster.bootstrap, transport=transport, **settings)


def read_once(consumer: SyncConsumer, account: Account, rng: random.Random) -> None:
    kind = rng.choice(["iterate", "poll", "poll", "getmany", "batches"])
    if kind == "poll":
        account.take(consumer.poll(rng.choice([1, 5, 100, 1_000]), timeout_ms=2_000))
    elif kind == "getmany":
        for found in consumer.getmany(max_records=rng.choice([1, 5, 100, 1_000]), timeout_ms=2_000).values():
            account.take(found)
    elif kind == "batches":
        account.take(consumer.fetch_batches(timeout_ms=2_000))
    else:
        unread_count = sum(account.end_offset - account.next_offsets[partition] for partition in HEALTHY)
        for _, record in zip(range(min(rng.randrange(1, 40), unread_count)), consumer, strict=False):
            account.take([record])
            if rng.random() < 0.2:
                consumer.pause(rng.choice(HEALTHY))
                consumer.resume(*consumer.paused())
            assert consumer.position((record.topic, record.partition)) == record.offset + 1


def read_all(consumer: SyncConsumer, account: Account, read: Callable[[], None]) -> None:
    """Reads until the healthy partitions end, where the sick one is out of range again and again."""
    consumer.assign(account.next_offsets, start=account.next_offsets)
    while any(account.next_offsets[partition] < account.end_offset for partition in HEALTHY):
        try:
            read()
        except KeyboardInterrupt:
            pass
        except OffsetOutOfRangeError:
            account.seek(consumer, SICK, FIRST_OFFSET)
        if account.next_offsets[SICK] >= account.end_offset:
            account.seek(consumer, SICK, 10_000)
        assert {partition: consumer.position(partition) for partition in account.next_offsets} == account.next_offsets


@pytest.mark.parametrize("seed", range(10))
def test_an_interrupt_before_and_after_the_result_is_ready(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    wait = _Call.wait
    is_hostile = False

    def interrupted(call: _Call[Any], timeout_s: float | None) -> Any:
        if is_hostile and rng.random() < 0.3:
            if rng.random() < 0.7:
                with contextlib.suppress(ReplogError):
                    wait(call, 10)  # ready, and the waiting thread has not got it
            raise KeyboardInterrupt
        return wait(call, timeout_s)

    monkeypatch.setattr(_Call, "wait", interrupted)
    account = Account([*HEALTHY, SICK], 400)

    def read() -> None:
        nonlocal is_hostile
        is_hostile = True
        try:
            read_once(consumer, account, rng)
        finally:
            is_hostile = False

    with consumer_of(400) as consumer:
        read_all(consumer, account, read)


def undisturbed(call: Callable[[], Any]) -> Any:
    """Calls until no interrupt comes in between."""
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            return call()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Real SIGINTs all the time; KeyboardInterrupt where code under test runs, so that the account stays right."""
    is_over = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(_number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename == under_test.__file__ and frame.f_code.co_name != "__next__":
            raise KeyboardInterrupt

    def send() -> None:
        rng = random.Random(4711)
        while not is_over.wait(rng.uniform(0.0001, 0.003)):
            signal.pthread_kill(main, signal.SIGINT)

    before, sender = signal.signal(signal.SIGINT, interrupt), threading.Thread(target=send)
    sender.start()
    yield
    is_over.set()
    sender.join()
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_real_interrupts_at_any_instruction() -> None:
    rng = random.Random(4711)
    account = Account(HEALTHY, 2_000)
    with consumer_of(2_000) as consumer:
        undisturbed(lambda: consumer.assign(HEALTHY, start=account.next_offsets))
        while any(offset < account.end_offset for offset in account.next_offsets.values()):
            with contextlib.suppress(KeyboardInterrupt):
                read_once(consumer, account, rng)
            for partition, next_offset in account.next_offsets.items():
                assert undisturbed(lambda partition=partition: consumer.position(partition)) == next_offset


def test_pausing_and_committing_keep_what_was_read_ahead() -> None:
    """Goal: whoever does so for each record does not fetch it anew each time."""
    with consumer_of(400) as consumer:
        consumer.assign(HEALTHY)
        first = next(consumer)
        other = next(each for each in HEALTHY if each.partition != first.partition)
        left = [each for each in consumer._left if each.partition == first.partition]
        assert left
        consumer.pause(other)
        assert consumer._left == left
        assert consumer.position(other) == 0
        consumer.resume(other)
        assert consumer._left == left
        assert next(consumer).offset == first.offset + 1


@pytest.mark.parametrize("read", ["__next__", "getone", "poll", "getmany", "fetch_batches"])
def test_nothing_is_handed_out_behind_the_end(read: str) -> None:
    with consumer_of(40) as consumer:
        consumer.assign(HEALTHY)
        next(consumer)
    with pytest.raises(BrokerClosedError):
        getattr(consumer, read)()


@pytest.mark.usefixtures("interrupts")
def test_real_interrupts_of_one_record_after_the_other() -> None:
    seen: list[tuple[int, int]] = []
    with consumer_of(200) as consumer:
        undisturbed(lambda: consumer.assign(HEALTHY))
        while len(seen) < 400:
            with contextlib.suppress(KeyboardInterrupt):
                record = consumer.getone()
                seen.append((record.partition, record.offset))
    assert len(set(seen)) == 400


def test_an_interrupt_while_records_are_put_in_order_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with consumer_of(40) as consumer:
        consumer.assign(HEALTHY)
        with monkeypatch.context() as patch:
            patch.setattr(under_test, "TopicPartition", interrupt)
            with pytest.raises(KeyboardInterrupt):
                consumer.getmany(timeout_ms=2_000)
        found = consumer.getmany(timeout_ms=2_000)
        assert {records[0].offset for records in found.values()} == {0}


def test_a_limit_of_another_library_may_have_no_sign() -> None:
    with consumer_of(40) as consumer:
        consumer.assign(HEALTHY)
        found = [record.offset for _ in range(8) for record in consumer.poll(np.uint16(10))]
        assert sorted(found) == sorted([*range(40), *range(40)])


@pytest.mark.parametrize("count", [0, -1])
def test_no_record_is_asked_for(count: int) -> None:
    """Goal: `poll(0)`, which waits for nothing in other clients, says what to write here; what was read ahead stays."""
    with consumer_of(40) as consumer:
        consumer.assign(HEALTHY)
        assert next(consumer).offset == 0
        for ask in (lambda: consumer.poll(count), lambda: consumer.getmany(max_records=count)):
            with pytest.raises(InvalidRequestError, match=r"max_records is .*timeout_ms=0"):
                ask()
        found = [next(consumer).offset for _ in range(79)]
        assert sorted([0, *found]) == sorted([*range(40), *range(40)])
