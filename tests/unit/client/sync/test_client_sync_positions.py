"""What `SyncConsumer` handed out is exactly what lies below its positions, whenever Ctrl-C comes."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from reading_kit import FIRST_OFFSET, HEALTHY, SICK, Account, filled_cluster

from replog.client import SyncConsumer
from replog.client.sync import consumer as under_test
from replog.client.sync.loop_thread import _Call
from replog.errors import OffsetOutOfRangeError, ReplogError


def consumer_of(records_count: int) -> SyncConsumer:
    cluster = filled_cluster(records_count)
    transport: Any = cluster.transport()
    settings: dict[str, Any] = {"fetch_max_wait_ms": 20, "max_partition_fetch_bytes": 20_000}
    return SyncConsumer(cluster.bootstrap, transport=transport, **settings)


def read_once(consumer: SyncConsumer, account: Account, rng: random.Random) -> None:
    kind = rng.choice(["iterate", "poll", "poll", "batches"])
    if kind == "poll":
        account.take(consumer.poll(rng.choice([1, 5, 100, 1_000]), timeout_ms=2_000))
    elif kind == "batches":
        account.take(consumer.fetch_batches(timeout_ms=2_000))
    else:
        unread_count = sum(account.end_offset - account.next_offsets[partition] for partition in HEALTHY)
        for _, record in zip(range(min(rng.randrange(1, 40), unread_count)), consumer, strict=False):
            account.take([record])
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
