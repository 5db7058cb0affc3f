"""A small state machine in a shard, and a log that a test moves by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from replog.coordinator.config import ShardConfig
from replog.coordinator.group_machine import GroupMachine, GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import OffsetCommitKey, OffsetCommitValue
from replog.coordinator.records import CoordinatorRecord, EncodedRecord, RecordCodec
from replog.coordinator.runtime.machine import Beside, Moment, Outcome, TimerKey, Timers
from replog.coordinator.runtime.messages import (
    Answer,
    AppendMarker,
    AppendRecords,
    AppendRefused,
    DoBeside,
    Done,
    Effect,
    HighWatermarkMoved,
    Lead,
    LogRead,
    Message,
    ReadLog,
    Reply,
    ReplyError,
    Submit,
)
from replog.coordinator.runtime.shard import Shard
from replog.coordinator.runtime.transactions import (
    EndMarker,
    LogEntry,
    LoggedMarker,
    TransactionalRecord,
    TransactionWriter,
)
from replog.errors import ReplogError
from replog_timeline import SnapshotRegistry, TimelineHashMap

WALL_MS = 1_700_000_000_000
MARKER: EncodedRecord = (b"", None)
FULL = ReplogError("the log is full")


@dataclass(frozen=True)
class Put:
    """Sets values; the answer is how many keys there are then."""

    values: dict[str, int]


@dataclass(frozen=True)
class Get:
    """Asks for a value."""

    key: str


@dataclass(frozen=True)
class Wait:
    """Is answered when somebody puts `key`."""

    key: str


@dataclass(frozen=True)
class Take:
    """Removes a key at once."""

    key: str


@dataclass(frozen=True)
class Remove:
    """Sets a timer that removes a key."""

    key: str
    at_ms: int


class Table:
    """Values by key; commits of one group, so that the records are those of the real topic."""

    def __init__(self, registry: SnapshotRegistry, timers: Timers) -> None:
        self.values = TimelineHashMap[str, int](registry)
        self.waiting: dict[str, list[int]] = {}
        self.started: list[Moment] = []
        self.epochs: list[int] = []
        self.lost: list[int] = []
        self.taken_back: list[Moment] = []
        self.timers = timers
        self.broken_key = ""
        self.done: list[tuple[TimerKey, Any]] = []
        self.divisor = 1

    def replay(self, record: CoordinatorRecord, offset: int) -> None:
        key: Any = record.key
        value: Any = record.value
        if value is None:
            del self.values[key.topic]
        else:
            self.values[key.topic] = value.offset
        if key.topic == self.broken_key:
            raise KeyError("a bug")

    def replay_encoded(self, key: bytes, value: bytes | None) -> bool:
        return False

    def start(self, moment: Moment, epoch: int) -> None:
        self.started.append(moment)
        self.epochs.append(epoch)

    def was_taken_back(self, moment: Moment) -> None:
        self.taken_back.append(moment)

    def were_lost(self, request_ids: tuple[int, ...], moment: Moment) -> None:
        self.lost += request_ids

    def pause(self) -> tuple[int, ...]:
        return self.stop()

    def stop(self) -> tuple[int, ...]:
        waiting = [request_id for ids in self.waiting.values() for request_id in ids]
        self.waiting.clear()
        return tuple(waiting)

    def handle(self, request_id: int, request: Any, moment: Moment) -> Outcome:
        match request:
            case Put(values):
                if -1 in values.values():
                    raise ReplogError("minus one is refused")
                count = len(self.values.keys() | values.keys())
                answers: list[Answer] = [Reply(request_id, count)]
                answers += [Reply(other, key) for key in values for other in self.waiting.pop(key, ())]
                return Outcome(tuple(put(key, value) for key, value in values.items()), tuple(answers))
            case Get(key):
                return Outcome(answers=(Reply(request_id, self.values.get(key)),))
            case Wait(key):
                self.waiting.setdefault(key, []).append(request_id)
                return Outcome()
            case Take(key):
                return Outcome((CoordinatorRecord(OffsetCommitKey("g", key, 0), None),), (Reply(request_id, None),))
            case Remove(key, at_ms):
                self.timers.set(key, at_ms)
                return Outcome(answers=(Reply(request_id, None),))
        raise ZeroDivisionError("a bug")

    def take_done(self, key: TimerKey, result: Any, moment: Moment) -> None:
        self.done.append((key, result))

    def handle_timer(self, key: TimerKey, moment: Moment) -> Outcome:
        if key == "beside":
            return Outcome(beside=(Beside(key, lambda: 1 // self.divisor),))
        if key == "bug":
            raise ZeroDivisionError("a bug")
        answers = tuple(Reply(other, "removed") for other in self.waiting.pop(str(key), ()))
        return Outcome(
            (CoordinatorRecord(OffsetCommitKey("g", str(key), 0), None),) if key in self.values else (), answers
        )


def put(key: str, value: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey("g", key, 0), OffsetCommitValue(value), 4)


class Topics:
    """The topics of a cluster that a test changes by hand.

    Attributes:
        partitions: The number of partitions by name; the id comes from the name.
    """

    def __init__(self, **partitions: int) -> None:
        self.partitions = partitions
        self.version = 0

    def change(self, **partitions: int) -> None:
        """Sets numbers of partitions; 0 deletes a topic."""
        self.partitions = {name: count for name, count in (self.partitions | partitions).items() if count}
        self.version += 1

    @property
    def by_name(self) -> dict[str, int]:
        """The topics, in another mapping after each change."""
        return self.partitions

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Returns id and number of partitions of a topic; None where there is none."""
        return (topic_id(name), self.partitions[name]) if name in self.partitions else None


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().rjust(16, b"\0"))


def group_host(topics: Topics, config: GroupsConfig) -> Host:
    """A shard of groups."""
    return Host(lambda registry, timers: GroupMachine(registry, timers, config, topics, random.Random(1)))


class Host:
    """Performs the effects of a shard on a log in memory, as the driver of a broker would.

    Attributes:
        log: The records, by offset; `MARKER` for the end of a transaction.
        of_transactions: Whose transaction a record is part of, and what the markers are, by offset.
        high_watermark: The end of what has committed.
        answers: The answers that have left, by request id.
        refuses: The error with which the log takes no records; None where it does.
        beside: The work that is to be done beside the loop and has not been, as long as the test holds it back (`holds_beside`).
    """

    def __init__(self, make_machine: Any = Table, codec: RecordCodec = GROUP_RECORDS, **config: int) -> None:
        self.machine: Any = None
        self.shard = Shard(
            name="topic-0", codec=codec, make_machine=self._make(make_machine), config=ShardConfig(**config)
        )
        self.log: list[EncodedRecord] = []
        self.of_transactions: dict[int, TransactionWriter | EndMarker] = {}
        self.high_watermark = 0
        self.answers: dict[int, Answer] = {}
        self.appended: list[AppendRecords | AppendMarker] = []
        self.refuses: ReplogError | None = None
        self.beside: list[DoBeside] = []
        self.holds_beside = False
        self.piece = 2
        self.now_ms = 0
        self.epoch = 0
        self._request_id = 0
        self._ends: dict[int, int] = {}  # request id -> end of what it has appended

    def _make(self, make_machine: Any) -> Any:
        def make(registry: SnapshotRegistry, timers: Timers) -> Any:
            self.machine = make_machine(registry, timers)
            return self.machine

        return make

    def step(self, message: Message) -> None:
        """Steps the shard, and performs what follows."""
        refused = None
        for effect in self.shard.step(message, Moment(self.now_ms, WALL_MS + self.now_ms)):
            refused = self._perform(effect, refused)
        if refused is not None:
            self.step(AppendRefused(refused.epoch, refused.base_offset, self.refuses or FULL, refused.request_id))
        while self.beside and not self.holds_beside:
            self.do_beside()

    def do_beside(self) -> None:
        """Does the oldest work that is to be done beside the loop, and tells the result."""
        effect = self.beside.pop(0)
        try:
            done = Done(effect.epoch, effect.key, effect.work())
        except ArithmeticError as error:
            done = Done(effect.epoch, effect.key, None, error)
        self.step(done)

    def _perform(
        self, effect: Effect, refused: AppendRecords | AppendMarker | None
    ) -> AppendRecords | AppendMarker | None:
        match effect:
            case ReadLog():
                self.step(self.piece_of_the_log(effect))
            case AppendRecords() | AppendMarker():
                if self.refuses or refused is not None:
                    return refused or effect
                assert effect.base_offset == len(self.log)
                self.appended.append(effect)
                self._append(effect)
                if effect.request_id is not None:
                    self._ends[effect.request_id] = len(self.log)
            case DoBeside():
                self.beside.append(effect)
            case Reply() | ReplyError():
                assert effect.request_id not in self.answers
                assert isinstance(effect, ReplyError) or self._ends.get(effect.request_id, 0) <= self.high_watermark
                self.answers[effect.request_id] = effect
        return refused

    def piece_of_the_log(self, asked: ReadLog) -> LogRead:
        """Returns what a `ReadLog` is answered with."""
        end = min(asked.offset + self.piece, asked.end_offset)
        return LogRead(asked.epoch, asked.offset, tuple(map(self._entry, range(asked.offset, end))), end)

    def _append(self, effect: AppendRecords | AppendMarker) -> None:
        of = effect.marker if isinstance(effect, AppendMarker) else effect.writer
        records = (MARKER,) if isinstance(effect, AppendMarker) else effect.records
        for offset, record in enumerate(records, effect.base_offset):
            self.log.append(record)
            self.of_transactions.pop(offset, None)
            if of is not None:
                self.of_transactions[offset] = of

    def _entry(self, offset: int) -> LogEntry:
        match self.of_transactions.get(offset):
            case None:
                return offset, self.log[offset]
            case EndMarker() as marker:
                return LoggedMarker(offset, marker)
            case TransactionWriter() as writer:
                return TransactionalRecord(offset, self.log[offset], writer)

    def lead(self) -> None:
        """Leads with a new epoch."""
        self.epoch += 1
        self.step(Lead(self.epoch, 0, len(self.log), self.high_watermark))

    def commit(self, offset: int | None = None) -> None:
        """Moves the high watermark, as a rule to the end of the log."""
        self.high_watermark = len(self.log) if offset is None else offset
        self.step(HighWatermarkMoved(self.high_watermark))

    def lose(self, base_offset: int) -> None:
        """Tells the shard that the log has not taken what is at an offset, nor what follows."""
        del self.log[base_offset:]
        self.step(AppendRefused(self.epoch, base_offset, FULL))

    def submit(self, request: Any, deadline_ms: int | None = None) -> int:
        """Asks; returns the request's id."""
        self._request_id += 1
        self.step(Submit(self._request_id, request, deadline_ms))
        return self._request_id

    def ask(self, request: Any) -> Any:
        """Asks, lets everything commit, and returns the response.

        Raises:
            ReplogError: The answer is an error.
        """
        request_id = self.submit(request)
        self.commit()
        return self.response(request_id)

    def response(self, request_id: int) -> Any:
        """Returns the response to a request that has been answered.

        Raises:
            ReplogError: The answer is an error.
        """
        answer = self.answers[request_id]
        if isinstance(answer, ReplyError):
            raise answer.error
        return answer.response
