"""A shard: one state machine over one partition of an internal topic, on the node that leads it.

As the controller does (docs/KAFKA.md 6.1): a request becomes records and an answer, made from the newest state; the records
are replayed at once and handed over to be appended; the answer leaves when everything that it was made of has committed.
What changes nothing waits for what others have changed just before, so nobody sees what may still be taken back.

===================== ==============================================================================================
message               what happens
===================== ==============================================================================================
Lead                  the state is forgotten; the log is asked for, piece by piece
LogRead               its records are replayed; after the last one, requests are handled
ReadFailed            requests are refused until the partition is led anew
Submit                answered as above; refused while the log is being read, or if nobody leads here
HighWatermarkMoved    answers up to it leave
AppendRefused         the state goes back to before those records; what was made of them fails, timers run again
Resigned              the state is forgotten, and all that waits fails: another leader has the same log
Tick                  requests past their deadline fail; timers that are due run
Paused                no timers run: a silent member may be refused before it is heard; what needs more steps fails
Resumed               they go on, put off by the pause
Done                  the machine takes in what was worked out beside the loop; a failure is that of the timer behind it
===================== ==============================================================================================

Nothing is kept of a leadership that is lost: the state would go on to be that of a log which another node writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final, assert_never

from msgspec import Struct

from replog.coordinator.config import ShardConfig
from replog.coordinator.records import CoordinatorRecord, EncodedRecord, RecordCodec
from replog.coordinator.runtime.machine import (
    Moment,
    Outcome,
    StateMachine,
    TimerKey,
    Timers,
    UnsureTimers,
    WantedTimer,
)
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
    Paused,
    ReadFailed,
    ReadLog,
    ReplyError,
    Resigned,
    Resumed,
    Submit,
    Tick,
)
from replog.coordinator.runtime.transactions import (
    LoggedMarker,
    TransactionalMachine,
    TransactionalRecord,
    TransactionWriter,
)
from replog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InternalError,
    InvalidRequestError,
    InvariantViolationError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    StorageError,
)
from replog.waiting.parked_answers import ParkedAnswers
from replog.waiting.written_batches import WrittenBatches
from replog_timeline import SnapshotRegistry

TIMERS_PER_STEP: Final = 200
"""How many timers run in one step, so that a thousand sessions that end together do not hold a loop."""
TIMER_RETRY_MS: Final = 500
"""How long a timer waits that is to run again: its records were refused, or those of the state that it has run on."""


class ShardState(Enum):
    """Whether a shard serves."""

    IDLE = "another node leads"
    LOADING = "the log is being read"
    ACTIVE = "requests are handled"
    FAILED = "the log could not be read"


class ShardStatus(Struct, frozen=True):
    """What people and metrics are shown.

    Attributes:
        loaded_offset: How far the log has been read.
        end_offset: Where reading ends.
        parked_answers: The number of answers that wait for commits.
        timers: The number of timers that are set.
        timer_failures: The number of timers that ended in an exception.
        timer_failure: What the last of these says; "" where none did.
        failure: Why the log could not be read; "" where it could.
    """

    state: ShardState
    epoch: int
    loaded_offset: int
    end_offset: int
    parked_answers: int
    timers: int
    timer_failures: int
    timer_failure: str
    failure: str


class Shard:
    """Owns the state of one partition.  Driven by one task; owns no clock, no log, no connection.

    Invariants:
        - state changes only by replaying records, in log order, each exactly once;
        - an answer leaves when everything it was made of has committed, or not at all;
        - every Submit is answered exactly once, by the shard or, later, by the machine that keeps it.
    """

    def __init__(
        self,
        *,
        name: str,
        codec: RecordCodec,
        make_machine: Callable[[SnapshotRegistry, Timers], StateMachine],
        config: ShardConfig,
    ) -> None:
        """Makes a shard of a partition that another node leads.

        Args:
            name: The partition, for messages to people.
            codec: The types of records of the topic.
            make_machine: The function that makes the state machine over the shard's registry and timers.
            config: The bounds.
        """
        self._name = name
        self._codec = codec
        self._config = config
        self._registry = SnapshotRegistry()
        self._timers = Timers()
        self._machine = make_machine(self._registry, self._timers)
        self._transactional = self._machine if isinstance(self._machine, TransactionalMachine) else None
        self._written = WrittenBatches(self._registry)
        self._parked = ParkedAnswers[Answer]()
        self._unsure_timers = UnsureTimers()
        self._wanted_timers: deque[tuple[int, WantedTimer]] = (
            deque()
        )  # each with the offset up to which all has to commit
        self._paused_since_ms: int | None = None
        self._timer_failures = 0
        self._timer_failure = ""
        self._failure = ""
        self._state = ShardState.IDLE
        self._lead: Lead | None = None
        self._loaded_offset = 0
        self._committed_offset = 0
        self._effects: list[Effect] = []

    # ---- the core's face --------------------------------------------------------------------------------------------

    def step(self, message: Message, moment: Moment) -> tuple[Effect, ...]:
        """Takes in one message, and returns what follows from it.

        Args:
            message: The message, which says what happened.
            moment: The time; its monotonic part is never less than before.

        Returns:
            What the driver has to do, in order.

        Raises:
            InvariantViolationError: The log or the driver broke a rule; the node must stop.
        """
        self._effects = []
        match message:
            case Submit():
                self._handle_submit(message, moment)
            case HighWatermarkMoved():
                self._handle_high_watermark(message.offset, moment)
            case Tick():
                self._expire(moment)
            case LogRead():
                self._handle_log_read(message, moment)
            case AppendRefused():
                self._handle_refused(message, moment)
            case Lead():
                self._handle_lead(message)
            case ReadFailed():
                self._handle_read_failed(message)
            case Paused() | Resumed():
                self._handle_pause(message, moment)
            case Done():
                self._handle_done(message, moment)
            case Resigned():
                self._forget(NotCoordinatorError(f"{self._name} is led by another node now; the change may survive"))
            case _ as unreachable:
                assert_never(unreachable)
        if self._state is ShardState.ACTIVE and self._paused_since_ms is None:
            self._run_timers(moment)
        return tuple(self._effects)

    @property
    def state(self) -> ShardState:
        """Whether it serves."""
        return self._state

    def next_deadline_ms(self) -> int | None:
        """Returns when the next `Tick` is due, which may lie in the past; None where nothing happens by itself."""
        timer_ms = self._timers.next_deadline_ms() if self._paused_since_ms is None else None
        parked_ms = self._parked.next_deadline_ms()
        if timer_ms is None or parked_ms is None:
            return parked_ms if timer_ms is None else timer_ms
        return min(timer_ms, parked_ms)

    def status(self) -> ShardStatus:
        """Returns what people and metrics are shown."""
        lead = self._lead
        return ShardStatus(
            state=self._state,
            epoch=-1 if lead is None else lead.epoch,
            loaded_offset=self._loaded_offset,
            end_offset=-1 if lead is None else lead.end_offset,
            parked_answers=len(self._parked),
            timers=len(self._timers),
            timer_failures=self._timer_failures,
            timer_failure=self._timer_failure,
            failure=self._failure,
        )

    # ---- leaderships ------------------------------------------------------------------------------------------------

    def _handle_lead(self, message: Lead) -> None:
        self._forget(CoordinatorLoadInProgressError(f"{self._name} has a new leadership; the change may survive"))
        self._lead = message
        self._state, self._failure = ShardState.LOADING, ""
        self._loaded_offset = message.start_offset
        self._committed_offset = message.high_watermark
        self._effects.append(ReadLog(message.epoch, message.start_offset, message.end_offset))

    def _forget(self, error: ReplogError) -> None:
        """Forgets the state and whatever leads to it; fails what waits."""
        self._effects += [ReplyError(each.request_id, error) for each in self._parked.fail_all()]
        self._effects += [ReplyError(request_id, error) for request_id in self._machine.stop()]
        self._unsure_timers.clear()
        self._wanted_timers.clear()
        self._timers.clear()
        self._written.stop()
        self._registry.reset()
        self._lead = None
        self._state = ShardState.IDLE

    def _handle_log_read(self, message: LogRead, moment: Moment) -> None:
        lead = self._lead
        if lead is None or self._state is not ShardState.LOADING or message.epoch != lead.epoch:
            return  # asked by a leadership that has ended
        if message.offset != self._loaded_offset or not message.offset <= message.next_offset <= lead.end_offset:
            raise InvariantViolationError(
                f"{self._name} was read from {message.offset} to {message.next_offset}, wanted is "
                f"[{self._loaded_offset}, {lead.end_offset})"
            )
        try:
            self._replay_read(message)
        except ReplogError as error:
            self._fail(error)
            return
        self._loaded_offset = message.next_offset
        if message.next_offset < lead.end_offset:
            self._effects.append(ReadLog(lead.epoch, message.next_offset, lead.end_offset))
        else:
            self._activate(lead, moment)

    def _replay_read(self, message: LogRead) -> None:
        """Replays the records of a piece of the log; those of a type that is not known are left out.

        Raises:
            ReplogError: A record cannot be read or replayed.
        """
        decode, replay, replay_encoded = self._codec.decode, self._machine.replay, self._machine.replay_encoded
        for entry in message.records:
            try:
                if isinstance(entry, TransactionalRecord | LoggedMarker):
                    self._replay_of_transaction(entry)
                    continue
                offset, (key, value) = entry
                if not replay_encoded(key, value) and (record := decode(key, value)) is not None:
                    replay(record, offset)
            except Exception as error:
                raise ReplogError(
                    f"the record at offset {entry[0]} of {self._name} cannot be replayed: {error!r}"
                ) from error

    def _replay_of_transaction(self, entry: TransactionalRecord | LoggedMarker) -> None:
        """Replays what is of a transaction.

        Raises:
            StorageError: The topic is one whose records are never part of transactions.
        """
        machine = self._transactional
        if machine is None:
            raise StorageError(
                f"{self._name} has a transaction, and what is written to this topic is never part of one"
            )
        if isinstance(entry, LoggedMarker):
            machine.replay_marker(entry.marker)
        else:
            machine.replay_pending(entry.record, entry.offset, entry.writer)

    def _activate(self, lead: Lead, moment: Moment) -> None:
        self._written.begin(lead.end_offset)
        self._written.move_to(lead.end_offset)
        self._state = ShardState.ACTIVE
        self._machine.start(moment, lead.epoch)

    def _handle_read_failed(self, message: ReadFailed) -> None:
        if self._lead is not None and self._state is ShardState.LOADING and message.epoch == self._lead.epoch:
            self._fail(message.error)

    def _fail(self, error: ReplogError) -> None:
        lead = self._lead
        self._forget(error)
        self._lead, self._state, self._failure = lead, ShardState.FAILED, str(error)

    # ---- the log ----------------------------------------------------------------------------------------------------

    def _handle_high_watermark(self, offset: int, moment: Moment) -> None:
        if offset <= self._committed_offset:
            return
        self._committed_offset = offset
        if self._state is not ShardState.ACTIVE:
            return
        end_offset = self._written.commit_up_to(offset)
        if end_offset is not None:
            self._registry.delete_snapshots_up_to(end_offset)
            self._unsure_timers.settle_up_to(end_offset)
            while self._wanted_timers and self._wanted_timers[0][0] <= end_offset:
                self._timers.begin(self._wanted_timers.popleft()[1], moment.now_ms)
            self._effects += self._parked.complete_up_to(end_offset)

    def _handle_refused(self, message: AppendRefused, moment: Moment) -> None:
        lead = self._lead
        if lead is None or self._state is not ShardState.ACTIVE or message.epoch != lead.epoch:
            return  # appended by a leadership that has ended
        if message.base_offset >= self._written.next_offset_or_raise():
            return  # taken back already, with a batch in front of it
        if message.base_offset < max(lead.end_offset, self._committed_offset):
            raise InvariantViolationError(
                f"{self._name} refuses what is at {message.base_offset}: committed is {self._committed_offset}"
            )
        self._written.take_back(message.base_offset)
        while self._wanted_timers and self._wanted_timers[-1][0] > message.base_offset:
            self._wanted_timers.pop()
        for key in self._unsure_timers.take_beyond(message.base_offset):
            self._timers.set_if_none(key, moment.now_ms + TIMER_RETRY_MS)
        failed = self._parked.fail_beyond(message.base_offset)
        for each in failed:
            error = self._told(message.error, is_own=each.request_id == message.request_id)
            self._effects.append(ReplyError(each.request_id, error))
        self._machine.were_lost(tuple(each.request_id for each in failed), moment)
        self._machine.was_taken_back(moment)

    def _told(self, error: ReplogError, *, is_own: bool) -> ReplogError:
        """Returns the error of an append as clients of a coordinator understand it.

        They know nothing of the partition behind it, so each would take "not enough replicas" for an end, not for a reason to
        come again; nor of each other, so what is wrong with the change of one (`is_own`) is no end for others.
        """
        text = f"{self._name} did not take the change, ask again: {error.told}"
        if isinstance(error, NotLeaderOrFollowerError | StorageError):
            return NotCoordinatorError(text)
        is_worth_asking = isinstance(error, RetriableError) or not is_own
        return CoordinatorNotAvailableError(text) if is_worth_asking else error

    def _append(self, outcome: Outcome, request_id: int | None = None) -> None:
        """Replays the records or the marker of an outcome, and has them appended.

        Args:
            outcome: The outcome.
            request_id: The request that made it; None where a timer did.

        Raises:
            ReplogError: They cannot be written or replayed; the state is as before.
        """
        if not outcome.records and outcome.marker is None:
            return
        lead, base_offset = self._lead, self._written.next_offset_or_raise()
        if lead is None:
            raise InvariantViolationError(f"an append to {self._name} by one who does not lead")
        if outcome.marker is not None:
            entry = LoggedMarker(base_offset, outcome.marker)
            self._replay_made(base_offset, 1, partial(self._replay_of_transaction, entry))
            self._effects.append(AppendMarker(lead.epoch, base_offset, outcome.marker, request_id))
            return
        encoded = self._encoded(outcome.records)
        replay = partial(self._replay_records, outcome.records, encoded, base_offset, outcome.writer)
        self._replay_made(base_offset, len(encoded), replay)
        self._effects.append(AppendRecords(lead.epoch, base_offset, encoded, request_id, outcome.writer))

    def _replay_made(self, base_offset: int, count: int, replay: Callable[[], None]) -> None:
        """Replays what is to stand at `count` offsets from `base_offset` on.

        Raises:
            ReplogError: That has failed; the state is as before.
        """
        try:
            replay()
        except Exception as bug:
            self._written.take_back(base_offset)
            raise InternalError(f"a change of {self._name}", bug) from bug
        self._written.move_to(base_offset + count)

    def _replay_records(
        self,
        records: Sequence[CoordinatorRecord],
        encoded: Sequence[EncodedRecord],
        base_offset: int,
        writer: TransactionWriter | None,
    ) -> None:
        if writer is not None:
            for offset, each in enumerate(encoded, base_offset):
                self._replay_of_transaction(TransactionalRecord(offset, each, writer))
            return
        for offset, (record, (key, value)) in enumerate(zip(records, encoded, strict=True), base_offset):
            if not self._machine.replay_encoded(key, value):
                self._machine.replay(record, offset)

    def _encoded(self, records: tuple[CoordinatorRecord, ...]) -> tuple[EncodedRecord, ...]:
        """Returns the bytes of records; those of a change that is too large are not all counted, which would take long.

        Raises:
            InvalidRequestError: One of them cannot be written.
            RecordTooLargeError: They have more bytes than one change may have.
        """
        encoded: list[EncodedRecord] = []
        size_bytes = 0
        for record in records:
            try:
                key, value = self._codec.encode(record)
            except ValueError as error:
                raise InvalidRequestError(f"what is to be written to {self._name} is no record: {error}") from None
            encoded.append((key, value))
            size_bytes += len(key) + len(value or b"")
            if size_bytes > self._config.max_batch_bytes:
                raise RecordTooLargeError(
                    f"one change of {self._name}, of {len(records)} records, has more bytes than the "
                    f"{self._config.max_batch_bytes} that it may have: ask for less at a time"
                )
        return tuple(encoded)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _handle_submit(self, message: Submit, moment: Moment) -> None:
        problem = self._refusal(message, moment)
        if problem is not None:
            self._effects.append(ReplyError(message.request_id, problem))
            return
        try:
            outcome = self._machine.handle(message.request_id, message.request, moment)
        except ReplogError as refused:
            outcome = Outcome(answers=(ReplyError(message.request_id, refused),))
        except InvariantViolationError:
            raise
        except Exception as bug:  # noqa: BLE001 - nothing has changed: the shard and its state are sound
            failed = InternalError(type(message.request).__name__, bug)
            outcome = Outcome(answers=(ReplyError(message.request_id, failed),))
        try:
            self._append(outcome, message.request_id)
        except InvariantViolationError:
            raise
        except Exception as cause:  # noqa: BLE001 - as above; others may have waited for what was to be written, too
            outcome = _failed(outcome, cause)
            self._timers.take_wanted()
        self._answer(outcome.answers, message, moment)

    def _refusal(self, message: Submit, moment: Moment) -> ReplogError | None:
        match self._state:
            case ShardState.IDLE:
                return NotCoordinatorError(f"this node does not lead {self._name}: ask for the coordinator again")
            case ShardState.FAILED:
                return CoordinatorNotAvailableError(f"{self._name} could not be read; the log of its broker says why")
            case ShardState.LOADING:
                return CoordinatorLoadInProgressError(f"{self._name} is being read; ask again a little later")
            case ShardState.ACTIVE:
                pass
        if message.deadline_ms is not None and moment.now_ms >= message.deadline_ms:
            return RequestTimedOutError("the request waited too long to be handled")
        if len(self._parked) >= self._config.max_parked_requests:
            return CoordinatorLoadInProgressError(f"{len(self._parked)} requests wait for {self._name} to commit")
        return None

    def _answer(self, answers: tuple[Answer, ...], request: Submit | None, moment: Moment) -> None:
        """Sends answers at once when all they were made of has committed; else when the last change does.

        So it begins the timers that wait for it.
        """
        next_offset, wanted = self._written.next_offset_or_raise(), self._timers.take_wanted()
        if next_offset <= self._committed_offset:
            self._effects += answers
            for timer in wanted:
                self._timers.begin(timer, moment.now_ms)
            return
        self._wanted_timers += [(next_offset, timer) for timer in wanted]
        for each in answers:
            is_own = request is not None and each.request_id == request.request_id
            deadline_ms = request.deadline_ms if request is not None and is_own else None
            if deadline_ms is None:
                deadline_ms = moment.now_ms + self._config.commit_timeout_ms
            self._parked.park(each.request_id, next_offset, each, deadline_ms)

    # ---- time -------------------------------------------------------------------------------------------------------

    def _expire(self, moment: Moment) -> None:
        problem = "the change was not committed in time; it may still be"
        expired = self._parked.expire(moment.now_ms)
        self._effects += [ReplyError(each.request_id, RequestTimedOutError(problem)) for each in expired]
        if expired:
            self._machine.were_lost(tuple(each.request_id for each in expired), moment)

    def _handle_pause(self, message: Paused | Resumed, moment: Moment) -> None:
        if isinstance(message, Paused):
            self._paused_since_ms = message.since_ms
            error = CoordinatorNotAvailableError(f"{self._name} may not serve for now; ask again a little later")
            self._effects += [ReplyError(request_id, error) for request_id in self._machine.pause()]
        elif self._paused_since_ms is not None:
            self._timers.postpone(moment.now_ms - self._paused_since_ms)
            self._paused_since_ms = None

    def _run_timers(self, moment: Moment) -> None:
        for _ in range(TIMERS_PER_STEP):
            key = self._timers.take_due(moment.now_ms)
            if key is None:
                return
            self._run_timer(key, moment)

    def _handle_done(self, message: Done, moment: Moment) -> None:
        lead = self._lead
        if lead is None or self._state is not ShardState.ACTIVE or message.epoch != lead.epoch:
            return  # wanted by a leadership that has ended
        self._machine.take_done(message.key, message.result, moment)
        if message.error is not None:
            self._note_failure(message.key, message.error, moment)

    def _note_failure(self, key: TimerKey, cause: Exception, moment: Moment) -> None:
        """Counts what a timer has failed with, which is tried again."""
        self._timer_failures += 1
        self._timer_failure = str(cause) if isinstance(cause, ReplogError) else f"a bug: {cause!r}"
        self._timers.set_if_none(key, moment.now_ms + TIMER_RETRY_MS)

    def _run_timer(self, key: TimerKey, moment: Moment) -> None:
        outcome = Outcome()
        try:
            outcome = self._machine.handle_timer(key, moment)
            self._append(outcome)
        except InvariantViolationError:
            raise
        except Exception as cause:  # noqa: BLE001 - counted, shown by `status`, and tried again
            self._note_failure(key, cause, moment)
            self._timers.take_wanted()
            self._answer(_failed(outcome, cause).answers, None, moment)
            return
        if self._lead is not None:
            epoch = self._lead.epoch
            self._effects += [DoBeside(epoch, each.key, each.work) for each in outcome.beside]
        next_offset = self._written.next_offset_or_raise()
        if next_offset > self._committed_offset:  # also where nothing was to be done: that may be taken back, too
            self._unsure_timers.note(key, next_offset)
        self._answer(outcome.answers, None, moment)


def _failed(outcome: Outcome, cause: Exception) -> Outcome:
    """Returns the answers to the same requests when the records of an outcome cannot be appended."""
    error = cause if isinstance(cause, ReplogError) else InternalError("a change", cause)
    return Outcome(answers=tuple(ReplyError(each.request_id, error) for each in outcome.answers))
