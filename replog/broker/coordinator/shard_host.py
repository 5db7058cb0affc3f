"""Carries out what one shard decides, on the log of the replica that this broker leads.

Messages are taken in one after the other, also those that come while the effects of another are carried out: an append moves
the high watermark of a partition with one replica at once.  What the messages of one turn append goes into the log together,
and what comes while that is replicated goes into the next batch: a batch costs the brokers more than a record in it, and none
can commit before the one in front of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias, assert_never

from replog.broker.coordinator.fencing import check_not_fenced
from replog.broker.coordinator.log_pieces import LogPieces, Told
from replog.broker.driver import Work
from replog.broker.replicas.replica import Replica
from replog.broker.replicas.stepper import ReplicaStepper
from replog.coordinator.runtime.machine import Moment
from replog.coordinator.runtime.messages import (
    AppendMarker,
    AppendRecords,
    AppendRefused,
    DoBeside,
    Done,
    Effect,
    Lead,
    Message,
    ReadLog,
    Reply,
    ReplyError,
    Resigned,
    Submit,
    Tick,
)
from replog.coordinator.runtime.shard import Shard, ShardState
from replog.errors import (
    BrokerClosedError,
    BrokerNotAvailableError,
    DiskFullError,
    ErrorCode,
    InternalError,
    InvariantViolationError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ReplogError,
    StorageError,
    ThrottledError,
)
from replog.records import HEADER_BYTES, RecordInput, encode_batch, encode_end_transaction_marker
from replog.replication.leader import Leader
from replog.replication.messages import Appended
from replog.rpc.messages import ACKS_ALL


class ReadTurns:
    """Pieces that are to be read.  Runs on the replica driver.

    A broker that takes over fifty shards at once would hold everybody else up for fifty pieces if each took its own turn.  A log
    that has begun is read to its end before the next one: half of the groups then have their coordinator in half of the time,
    where in turns all of them would have to wait until the end.

    Args:
        submit: The function that hands work to the driver, behind what waits there.
    """

    def __init__(self, submit: Callable[[Work], None]) -> None:
        self._submit = submit
        self._waiting: deque[Work] = deque()
        self._is_due = False

    def add(self, read: Work, *, goes_on: bool) -> None:
        """Adds a piece.

        Args:
            read: The function that reads it, and adds the next one of the log when that is known.
            goes_on: Whether the log has been begun, and comes before those that have not.
        """
        if goes_on:
            self._waiting.appendleft(read)
        else:
            self._waiting.append(read)
        self._call()

    def _call(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._submit(self._read_one)

    def _read_one(self) -> None:
        self._is_due = False
        read = self._waiting.popleft()
        read()
        self._call()


BATCH_BYTES: Final = 512 << 10
"""Bytes of a batch behind which changes go into another one, and wait for none; one change is never divided.  Where segments are
smaller than that, batches are."""

BATCHES_AT_ONCE: Final = 100
"""Batches that are appended in one turn of the driver, each with what is of one transaction: some 5 ms."""

RECORD_BYTES_MAX: Final = 32
"""The most bytes of a record in a batch, beside its key and its value: six numbers of variable length."""

READ_RETRY_MS: Final = 100
"""After how long a read is tried again for which the disk had no time."""

MARKER_BYTES: Final = HEADER_BYTES + RECORD_BYTES_MAX + 10
"""The most bytes of a batch with the marker of a transaction."""

Append: TypeAlias = AppendRecords | AppendMarker

_log = logging.getLogger(__name__)


class ShardHost:
    """One shard, its inbox, and its replica.  Runs on the replica driver.

    Invariants:
        - the shard is stepped by nobody else, and never while its effects are carried out;
        - records are appended in the order in which the shard made them, each where it must be, or not at all.

    Args:
        replica: The replica that leads.
        shard: The shard.
        stepper: The stepper of this broker's replicas.
        read_turns: The turns in which the shards of this broker read their logs.
        refuses: The function that says why this broker may not serve now; None when it may.
        answer: The function that hands an answer over to whoever waits for it.
        on_run: The function that is called when `next_deadline_ms` may be another one.

    Attributes:
        shard: The shard.
        load_ms: The milliseconds that reading the log has taken; None while it is read, or cannot be.
    """

    def __init__(
        self,
        replica: Replica,
        shard: Shard,
        stepper: ReplicaStepper,
        read_turns: ReadTurns,
        refuses: Callable[[], str | None],
        answer: Callable[[int, Any], None],
        on_run: Callable[[], None],
    ) -> None:
        self.shard = shard
        self._replica = replica
        self._stepper = stepper
        self._read_turns = read_turns
        self._refuses = refuses
        self._answer = answer
        self._on_run = on_run
        self._inbox: deque[Message] = deque()
        self._is_running = False
        self._beside: set[asyncio.Task[None]] = set()
        self._unwritten: list[Append] = []
        self._unwritten_bytes = 0
        self._has_more = False  # to append that need not wait
        self._start_offset = replica.log.log_start_offset
        self._end_offset = replica.log.log_end_offset  # behind what has been appended here
        self._pieces = LogPieces(stepper, replica)
        self._reading: ReadLog | None = None  # to be tried again
        self._retry_ms = 0
        self._lead_ms = 0
        self._timer_failures = 0
        self.load_ms: int | None = None

    @property
    def topic(self) -> str:
        """The internal topic."""
        return self._replica.topic

    # ---- messages -----------------------------------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        """Tells the shard that its replica leads in a new epoch, in which nothing has been appended."""
        log = self._replica.log
        self._start_offset, self._end_offset = log.log_start_offset, log.log_end_offset
        self._pieces = LogPieces(self._stepper, self._replica)
        self._reading, self.load_ms = None, None
        self._lead_ms = self._stepper.clock.now_ms()
        self.tell(Lead(epoch, self._start_offset, self._end_offset, self._replica.high_watermark))

    def tell(self, message: Message) -> None:
        """Takes in a message, for the next `run`."""
        self._inbox.append(message)

    def run(self) -> None:
        """Steps the shard with all that has been told, and carries out what follows."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._inbox or self._has_more:
                while self._inbox:
                    self._step(self._inbox.popleft())
                self._write()
                if self._has_more:  # others have their turn first
                    self._stepper.driver.submit(self.run)
                    break
        finally:
            self._is_running = False
        self._on_run()

    def next_deadline_ms(self) -> int | None:
        """Returns when the next `tick` is due; None where nothing happens by itself."""
        due_ms = self.shard.next_deadline_ms()
        if self._reading is None:
            return due_ms
        return self._retry_ms if due_ms is None else min(due_ms, self._retry_ms)

    def tick(self) -> None:
        """Tells the shard the time, and tries a read again for which the disk had none."""
        reading = self._reading
        if reading is not None and self._stepper.clock.now_ms() >= self._retry_ms:
            self._reading = None
            self._read(reading)
        self.tell(Tick())
        self.run()
        self._tell_timer_failures()

    def _tell_timer_failures(self) -> None:
        """Tells people what timers have failed with; what they were to do is tried again."""
        status = self.shard.status()
        if status.timer_failures > self._timer_failures:
            count = status.timer_failures - self._timer_failures
            _log.error(
                "%s: %d timers of its coordinator have failed, the last with: %s",
                self._replica.name,
                count,
                status.timer_failure,
            )
            self._timer_failures = status.timer_failures

    # ---- effects ------------------------------------------------------------------------------------------------------

    def _step(self, message: Message) -> None:
        clock, before = self._stepper.clock, self.shard.state
        if isinstance(message, Submit) and before is ShardState.ACTIVE:
            try:
                check_not_fenced(self._replica.log.producers, message.request)
            except ReplogError as error:
                self._answer(message.request_id, error)
                return
        if isinstance(message, Lead | Resigned):
            self._take_unwritten()  # of a leadership that has ended: the shard fails what needs them
        for effect in self.shard.step(message, Moment(clock.now_ms(), clock.wall_ms())):
            self._perform(effect)
        if self.shard.state is not before:
            self._tell_state()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case AppendRecords() | AppendMarker():
                self._unwritten.append(effect)
                self._unwritten_bytes += _size_bytes(effect)
            case ReadLog():
                self._read_turns.add(partial(self._read, effect), goes_on=effect.offset > self._start_offset)
            case DoBeside():
                self._do_beside(effect)
            case Reply():
                self._answer(effect.request_id, effect.response)
            case ReplyError():
                if isinstance(effect.error, InternalError):
                    _log.error("%s: a request met a bug of ours", self._replica.name, exc_info=effect.error)
                self._answer(effect.request_id, effect.error)
            case _ as unreachable:
                assert_never(unreachable)

    def _tell_state(self) -> None:
        """Tells people whether the shard serves."""
        status, name = self.shard.status(), self._replica.name
        match status.state:
            case ShardState.ACTIVE:
                self.load_ms = self._stepper.clock.now_ms() - self._lead_ms
                _log.info("%s: coordinates in epoch %d, read within %d ms", name, status.epoch, self.load_ms)
            case ShardState.FAILED:
                _log.error(
                    "%s: cannot be read, so it has no coordinator until it is led anew: %s",
                    name,
                    status.failure,
                )
            case _:
                pass

    # ---- beside the loop ----------------------------------------------------------------------------------------------

    def _do_beside(self, effect: DoBeside) -> None:
        task = asyncio.create_task(self._done_beside(effect), name="decide-targets")
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _done_beside(self, effect: DoBeside) -> None:
        with contextlib.suppress(BrokerClosedError):  # a node that is stopping decides nothing any more
            done = await self._stepper.decisions.run(partial(_done, effect))
            self._stepper.driver.submit(partial(self._take_done, done))

    def _take_done(self, done: Done) -> None:
        self.tell(done)
        self.run()

    # ---- reading ------------------------------------------------------------------------------------------------------

    def _read(self, asked: ReadLog) -> None:
        role = self._replica.role
        if not isinstance(role, Leader) or role.leader_epoch != asked.epoch:
            return  # the leadership has ended meanwhile
        self._pieces.read(asked, partial(self._was_read, asked))

    def _was_read(self, asked: ReadLog, told: Told | None) -> None:
        status = self.shard.status()
        if status.epoch != asked.epoch or status.state is not ShardState.LOADING:
            return
        if told is None:
            self._reading, self._retry_ms = asked, self._stepper.clock.now_ms() + READ_RETRY_MS
            self._on_run()
            return
        self.tell(told)
        self.run()

    # ---- appending ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Appends what the shard has made, unless that can wait, and tells it where the log did not take it.

        Of many batches some are appended, and the others in the next turn.
        """
        self._has_more = False
        if not self._unwritten or self._may_wait():
            return
        batches = _batches(self._take_unwritten(), self._batch_bytes())
        for batch in batches[:BATCHES_AT_ONCE]:
            error = self._append(batch)
            if error is not None:
                request_id = batch[0].request_id if len(batch) == 1 else None
                self.tell(AppendRefused(batch[0].epoch, batch[0].base_offset, error, request_id))
                return  # what follows would not land where it must
        self._unwritten = list(chain.from_iterable(batches[BATCHES_AT_ONCE:]))
        self._unwritten_bytes = sum(map(_size_bytes, self._unwritten))
        self._has_more = bool(self._unwritten)

    def _may_wait(self) -> bool:
        """Whether a batch is under way, behind which whatever comes meanwhile can go into the log together."""
        is_under_way = self._replica.high_watermark < self._end_offset
        is_small = self._unwritten_bytes < self._batch_bytes()
        return is_under_way and is_small and self._refusal(self._unwritten[0].epoch) is None

    def _batch_bytes(self) -> int:
        """Returns how many bytes go into one batch: no more than a segment takes."""
        return min(BATCH_BYTES, self._replica.log.config.segment_bytes - HEADER_BYTES)

    def _take_unwritten(self) -> list[Append]:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        return unwritten

    def _append(self, batch: Sequence[Append]) -> ReplogError | None:
        """Appends one batch.

        Returns:
            Why the log does not take it; None where it does.

        Raises:
            InvariantViolationError: Somebody else has appended to the log.
        """
        replica, first = self._replica, batch[0]
        problem = self._refusal(first.epoch)
        if problem is not None:
            return problem
        if replica.log.log_end_offset != first.base_offset:
            raise InvariantViolationError(
                f"{replica.name} ends at {replica.log.log_end_offset}, and its coordinator appends at {first.base_offset}"
            )
        wall_ms = self._stepper.clock.wall_ms()
        try:
            replica.log.append_as_leader(_encoded(batch, wall_ms), leader_epoch=first.epoch, now_ms=wall_ms)
        except DiskFullError as error:
            self._stepper.trouble.disk_full(replica, error)
            return error
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)  # which ends the leadership
            return error
        except ReplogError as error:
            return error
        self._end_offset = replica.log.log_end_offset
        self._stepper.step_leader(replica, Appended(self._end_offset))
        self._stepper.fetches.progressed(replica.key)
        return None

    def _refusal(self, epoch: int) -> ReplogError | None:
        """Returns why nothing may be appended now; None: it may."""
        replica, role, reason = self._replica, self._replica.role, self._refuses()
        if reason is not None:
            return BrokerNotAvailableError(reason)
        if not isinstance(role, Leader) or role.leader_epoch != epoch:
            return NotLeaderOrFollowerError(f"{replica.name} is not led in epoch {epoch} any more")
        if role.check_produce(ACKS_ALL) is not ErrorCode.NONE:
            return NotEnoughReplicasError(f"{replica.name} has fewer in-sync replicas than min.insync.replicas")
        if replica.log.is_behind_write_back:
            return ThrottledError(f"the disk is behind with {replica.name}")
        return None


def _done(effect: DoBeside) -> Done:
    """Returns what the work gives; needs only its arguments, so that any thread may call it."""
    try:
        return Done(effect.epoch, effect.key, effect.work())
    except Exception as error:  # noqa: BLE001 - the shard counts it, and tries it again
        return Done(effect.epoch, effect.key, None, error)


def _batches(appends: Sequence[Append], bytes_max: int) -> list[list[Append]]:
    """Returns appends in order, divided into as many as go into one batch of the log.

    A larger one has a batch of its own, and so has what is of a transaction.
    """
    found: list[list[Append]] = []
    size_bytes = 0
    was_alone = True
    for each in appends:
        change_bytes, is_alone = _size_bytes(each), isinstance(each, AppendMarker) or each.writer is not None
        size_bytes += change_bytes
        if size_bytes > bytes_max or was_alone or is_alone:
            found.append([])
            size_bytes = change_bytes
        found[-1].append(each)
        was_alone = is_alone
    return found


def _encoded(batch: Sequence[Append], wall_ms: int) -> bytes:
    """Returns a batch of the log: a marker, what is of one transaction, or any number of other changes."""
    records: list[RecordInput] = []
    for each in batch:
        if isinstance(each, AppendMarker):
            return encode_end_transaction_marker(
                base_offset=0,
                leader_epoch=each.epoch,
                timestamp_ms=wall_ms,
                producer_id=each.marker.producer_id,
                producer_epoch=each.marker.producer_epoch,
                coordinator_epoch=each.marker.coordinator_epoch,
                is_commit=each.marker.is_commit,
            )
        records += ((wall_ms, key, value, ()) for key, value in each.records)
        if each.writer is not None:
            who = each.writer
            return encode_batch(
                records, producer_id=who.producer_id, producer_epoch=who.producer_epoch, is_transactional=True
            )
    return encode_batch(records)


def _size_bytes(change: Append) -> int:
    """Returns the most bytes that a change takes up in a batch."""
    if isinstance(change, AppendMarker):
        return MARKER_BYTES
    return sum(RECORD_BYTES_MAX + len(key) + len(value or b"") for key, value in change.records)
