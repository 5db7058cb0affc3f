"""Bytes of connections that were given up arrive whenever they like: nothing is there twice, or out of order.

The producer's rules for one partition against the broker's (`ProducerStateManager`), with everything in between drawn: what
arrives next of which connection, which of them break, which answers get lost, what expires, when the leader epoch rises.
"""

from __future__ import annotations

import random
from collections import deque
from uuid import UUID

import pytest

from replog.client.cluster.addresses import LeaderAddress
from replog.client.producer.accumulator import Accumulator, AccumulatorSettings
from replog.client.producer.batch import ProducerBatch, ProducerIdentity
from replog.client.producer.partition_queue import PartitionQueue
from replog.errors import (
    InvalidProducerEpochError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    ReplogError,
    RequestTimedOutError,
)
from replog.log.producers.state import ProducerStateManager
from replog.records import decode_batch, parse_header
from replog.rpc.transport import ConnectionLostError

STEPS = 150
Sent = tuple[bytes, int, ProducerBatch, int]
"""Bytes, leader epoch, batch, attempt."""


class Run:
    """One drawn run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        settings = AccumulatorSettings(
            batch_size_bytes=100,
            linger_ms=0,
            buffer_memory_bytes=1 << 20,
            delivery_timeout_ms=10**9,
            max_in_flight=5,
            is_idempotent=True,
        )
        self.queue = PartitionQueue(Accumulator(settings), "t", UUID(int=1), 0)
        self.queue.set_identity(ProducerIdentity(7, 0))
        self.leader_epoch = 0
        self.producers = ProducerStateManager()
        self.log: list[int] = []
        self.sent: list[ProducerBatch] = []
        self.current: deque[Sent] = deque()
        self.given_up: list[deque[Sent]] = []

    def play(self) -> None:
        moves = [self.append, self.send, self.send, self.arrive, self.arrive, self.arrive_late, self.arrive_late]
        for _ in range(STEPS):
            self.rng.choice([*moves, *self.rng.choices((self.lose, self.expire, self.elect), (3, 2, 1))])()
        for late in self.given_up:
            while late:
                self.take(*late.popleft()[:2])

    def append(self) -> None:
        number = len(self.sent)
        self.sent.append(self.queue.append(1000, None, b"%030d" % number, (), 127)[0])

    def send(self) -> None:
        self.queue.leader = LeaderAddress(1, "a:1", self.leader_epoch, UUID(int=1))
        self.queue.backoff_until_s = 0
        batch = self.queue.sendable(1e9, allow_partial=True)
        if batch is not None:
            self.queue.mark_sent(batch)
            self.current.append((batch.payload or b"", self.leader_epoch, batch, batch.attempt))

    def arrive(self) -> None:
        """Something comes through, is carried out, and answered."""
        if self.current:
            data, leader_epoch, batch, attempt = self.current.popleft()
            outcome = self.take(data, leader_epoch)
            if batch.in_flight and batch.attempt == attempt and not batch.is_done:
                self.answer(batch, outcome)

    def answer(self, batch: ProducerBatch, outcome: int | ReplogError) -> None:
        match outcome:
            case int():
                self.queue.handle_acknowledged(batch, outcome, -1)
            case OutOfOrderSequenceError():
                self.queue.handle_out_of_order(batch, outcome, backoff_until_s=0)
            case NotEnoughReplicasError():
                self.queue.handle_retriable(batch, outcome, backoff_until_s=0)
            case _:
                self.queue.handle_failed(batch, outcome)

    def arrive_late(self) -> None:
        if late := [stream for stream in self.given_up if stream]:
            self.take(*self.rng.choice(late).popleft()[:2])

    def lose(self) -> None:
        """The connection breaks: what was sent is on the way, or carried out without an answer."""
        for _, _, batch, attempt in self.current:
            if batch.in_flight and batch.attempt == attempt and not batch.is_done:
                self.queue.handle_lost(batch, ConnectionLostError("lost"))
        self.given_up.append(self.current)
        self.current = deque()

    def expire(self) -> None:
        if waiting := [batch for batch in self.sent if not batch.is_done]:
            self.queue.handle_failed(waiting[0], RequestTimedOutError("expired"))

    def elect(self) -> None:
        self.leader_epoch += 1

    def take(self, data: bytes, leader_epoch: int) -> int | ReplogError:
        """What a leader does."""
        header = parse_header(data)
        if leader_epoch != self.leader_epoch or self.rng.random() < 0.1:
            return NotEnoughReplicasError("or another leader epoch")
        if self.rng.random() < 0.05:
            return RecordTooLargeError("x")
        try:
            duplicate = self.producers.check(header)
        except (InvalidProducerEpochError, OutOfOrderSequenceError) as error:
            return error
        if duplicate is not None:
            return duplicate.base_offset
        self.producers.update(header, len(self.log), 0)
        self.log += [int(record.value or b"") for record in decode_batch(data)]
        return len(self.log) - header.records_count


def is_in_order(log: list[int]) -> bool:
    return log == sorted(set(log))


async def test_whatever_arrives_late_is_there_once_and_in_order() -> None:
    acknowledged_count = 0
    for seed in range(300):
        run = Run(seed)
        run.play()
        assert is_in_order(run.log), f"seed {seed}: {run.log}"
        acknowledged = [number for number, batch in enumerate(run.sent) if batch.is_done and batch.error is None]
        assert set(acknowledged) <= set(run.log), f"seed {seed}"
        acknowledged_count += len(acknowledged)
    assert acknowledged_count > 2_000


@pytest.mark.parametrize("without", ["epochs", "unknown outcomes"])
async def test_each_safeguard_is_needed(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if without == "epochs":
        ids = iter(range(8, 10**6))
        monkeypatch.setattr(
            PartitionQueue,
            "_open_gap",
            lambda queue: (setattr(queue, "_has_gap", True), queue.set_identity(ProducerIdentity(next(ids), 0))),
        )
    else:
        monkeypatch.setattr(ProducerBatch, "may_still_arrive", False)
    logs = []
    for seed in range(300):
        run = Run(seed)
        run.play()
        logs.append(run.log)
    assert not all(map(is_in_order, logs))
