"""The controller: one single-threaded core that every controller node runs, active on the one that leads the quorum.

A request goes through five steps (docs/KAFKA.md 6.1): a manager makes records and an answer from
the newest state; the records are replayed at once; they are appended to the quorum as one batch (a transaction of several
where they are too many, with a step for each, and nothing else is made in between); the answer is parked; it leaves when the
change commits.  Answers made of uncommitted state wait too, so nobody ever sees what may still be taken back.

========================== =========================================================================================
message                    what happens
========================== =========================================================================================
Claim                      active once everything below `next_offset` has committed; sessions start afresh
Submit                     answered as above; waits in the queue while a claim or a large change does; else NotControllerError
CommittedRecords           active: answers up to it leave.  Standby: its records are replayed
Skip                       the quorum wrote something of its own: the next write offset moves
LoadSnapshot               standby: the state is that of the snapshot
BrokerGone                 active: a broker that does not run any more is fenced at once
AppendRefused              the state goes back to before those records; the requests that made them fail
Renounce                   every waiting request fails, the state goes back to the last committed offset
Tick                       a large change goes on, or the arrangement of access control lists, without which nobody is judged;
                           requests past their deadline fail; periodic tasks that are due run
========================== =========================================================================================

Everything goes through one `EventQueue`: the activation first, then requests in order, periodic tasks when they are due.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from replog.access.principal import ClientIdentity
from replog.access.rights import Denial, Rights
from replog.controller.config import ControllerConfig
from replog.controller.events.offset_control import DeferredReplies
from replog.controller.events.queue import EventQueue
from replog.controller.managers.replication import Made, only_changes
from replog.controller.managers.table import Managers
from replog.controller.messages import (
    AppendRecords,
    AppendRefused,
    BrokerGone,
    ChangeFailed,
    Claim,
    CommittedRecords,
    Effect,
    LoadSnapshot,
    Message,
    Renounce,
    Reply,
    ReplyError,
    ResignLeadership,
    Skip,
    Submit,
    Tick,
    WatchBrokers,
    WatchedBroker,
)
from replog.controller.periodic import RETRY_MS, PeriodicTask, PeriodicTasks
from replog.controller.requests import Heartbeat, LongResult, NamedPartition, name_of
from replog.controller.state.state import ControllerState
from replog.errors import (
    InternalError,
    InvariantViolationError,
    NotControllerError,
    ReplogError,
    RequestTimedOutError,
    ThrottledError,
)
from replog.metadata.config_keys import (
    FLUSH_POLICY,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    FlushPolicy,
)
from replog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    ElectionType,
    EndTransactionRecord,
    MetadataRecord,
    ResourceType,
)
from replog_timeline import SnapshotRegistry


class ControllerStatus(Struct, frozen=True):
    """What an operator wants to know; counts are of the newest state, uncommitted changes included.

    Attributes:
        epoch: The leader epoch of the current term; -1 when not active.
        committed_end_offset: The end of what a majority has.
        stable_end_offset: The end of what counts: less than committed only while a transaction of the metadata log is
            open.
        next_write_offset: The offset of the next record that this controller appends; -1 when not active.
        queued_requests: The number of requests that wait for this controller to become active.
        parked_requests: The number of answers that wait for a commit.
        elections: The leader elections that this node has replayed, by how the leader was chosen.
        drained_brokers: The brokers that shall be emptied, and how many replicas each still has.
    """

    is_active: bool
    epoch: int
    committed_end_offset: int
    stable_end_offset: int
    next_write_offset: int
    queued_requests: int
    parked_requests: int
    registered_brokers: tuple[int, ...]
    unfenced_brokers: tuple[int, ...]
    topics_count: int
    partitions_count: int
    leaderless_partitions_count: int
    imbalanced_partitions_count: int
    reassigning_partitions_count: int
    elections: Mapping[ElectionType, int]
    drained_brokers: Mapping[int, int]


__all__ = ["Controller", "ControllerStatus"]


class _LongChange(Struct):
    """A change whose records are made step by step.

    Attributes:
        name: The name of the round, or of the request, that it is of.
        unmade: What is not made yet; None for a thing that stays as it is.
        made: The records that are made, and go with the next ones.
    """

    name: str
    unmade: Iterator[MetadataRecord | None]
    made: tuple[MetadataRecord, ...] = ()


class _AwaitedChange(Struct, frozen=True):
    """A request that is answered when its change has been appended, and has committed."""

    message: Submit
    result: LongResult


class Controller:
    """Owns the state of the cluster on one node.  Driven by one task; owns no clock, no log, no connection.

    Invariants:
        - state changes only by replaying records, in log order, each exactly once;
        - an answer leaves when everything it was made of has committed, or not at all;
        - every Submit is answered exactly once.
    """

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        config: ControllerConfig,
        rng: random.Random,
        wall_ms: Callable[[], int],
    ) -> None:
        """Makes a controller that has seen nothing of the log.

        Args:
            node_id: The id of this node, for messages to people.
            cluster_id: The id of the cluster; nodes of another one are refused.
            config: The settings, the same on every controller.
            rng: The random generator that topic ids and replica placement come from.
            wall_ms: The function that returns milliseconds since 1970: delegation tokens hold by them.
        """
        self._node_id = node_id
        self._config = config
        self._state = ControllerState(SnapshotRegistry(), config)
        self._offsets = self._state.offsets
        self._managers = Managers(cluster_id, config, self._state, rng, wall_ms)
        self._periodic = PeriodicTasks(
            config,
            self._state.configs,
            self._managers.cluster,
            self._managers.elections,
            self._managers.drains,
            self._state.delegation_tokens,
            wall_ms,
        )
        self._tasks = {task.name: task for task in self._periodic.tasks}
        self._queue = EventQueue()
        self._deferred = DeferredReplies()
        self._claim: Claim | None = None
        self._effects: list[Effect] = []
        self._unappended: deque[tuple[MetadataRecord, ...]] = deque()  # of the change that is under way
        self._unmade: _LongChange | None = None
        self._awaited: _AwaitedChange | None = None  # the one that is under way, where somebody waits for its end
        self._step_records = 0  # appended in this step
        self._last_write_ms = 0
        self._brokers_seen = 0
        self._watched: tuple[WatchedBroker, ...] = ()

    # ---- the core's face --------------------------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> tuple[Effect, ...]:
        """Takes in one message, and returns what follows from it.

        Args:
            message: The message, which says what happened.
            now_ms: The time in monotonic milliseconds, never less than before.

        Returns:
            What the driver has to do, in order.

        Raises:
            InvariantViolationError: The log or the driver broke a rule; the node must stop.
        """
        self._effects = []
        self._step_records = 0
        match message:
            case Submit():
                self._handle_submit(message, now_ms)
            case CommittedRecords():
                self._handle_committed(message)
            case Tick():
                self._go_on()
                self._effects += self._deferred.expire(now_ms)
            case BrokerGone():
                self._note_gone(message)
            case AppendRefused():
                self._handle_refused(message, now_ms)
            case Skip():
                self._handle_skip(message)
            case Claim():
                self._handle_claim(message)
            case Renounce():
                self._handle_renounce(now_ms)
            case LoadSnapshot():
                self._handle_load_snapshot(message)
            case _ as unreachable:
                assert_never(unreachable)
        if len(self._queue) or type(message) is not Submit:
            self._run_due(now_ms)
        if self._brokers_seen != self._state.brokers.changes_count and self._is_active:
            self._brokers_seen = self._state.brokers.changes_count
            self._watch(self._managers.cluster.watched())
        return tuple(self._effects)

    def next_deadline_ms(self) -> int | None:
        """Returns when the next `Tick` is due, which may lie in the past; None where nothing happens by itself."""
        if self._must_go_on():
            return self._last_write_ms
        queued_ms, parked_ms = self._queue.next_deadline_ms(), self._deferred.next_deadline_ms()
        if queued_ms is None or parked_ms is None:
            return queued_ms if parked_ms is None else parked_ms
        return min(queued_ms, parked_ms)

    def status(self) -> ControllerStatus:
        """Returns what people and metrics are shown."""
        replication, offsets = self._state.replication, self._offsets
        brokers = self._state.brokers.all()
        return ControllerStatus(
            is_active=self._is_active,
            epoch=self._claim.epoch if self._claim is not None and self._is_active else -1,
            committed_end_offset=offsets.committed_end_offset,
            stable_end_offset=offsets.stable_end_offset,
            next_write_offset=-1 if offsets.next_write_offset is None else offsets.next_write_offset,
            queued_requests=len(self._queue),
            parked_requests=len(self._deferred),
            registered_brokers=tuple(broker.broker_id for broker in brokers),
            unfenced_brokers=tuple(broker.broker_id for broker in brokers if not broker.fenced),
            topics_count=len(replication.topics),
            partitions_count=len(replication.partitions),
            leaderless_partitions_count=len(replication.leaderless),
            imbalanced_partitions_count=len(replication.imbalanced),
            reassigning_partitions_count=len(replication.reassigning),
            elections={election_type: counter.get() for election_type, counter in replication.elections.items()},
            drained_brokers=self._managers.drains.remaining(),
        )

    def elections_needed(self, election_type: ElectionType) -> tuple[NamedPartition, ...]:
        """Returns the partitions that an election of all would elect leaders for, as many as one request elects; none on a standby."""
        return self._managers.elections.needed(election_type) if self._is_active else ()

    def rights(self, client: ClientIdentity, api: str, tell_denied: Callable[[Denial], None]) -> Rights:
        """Returns what a client may have changed, by the newest state: for changes that others make, such as those of voters.

        Args:
            client: The client.
            api: The name of what it asks for.
            tell_denied: The function that is told what it may not have.

        Raises:
            NotControllerError: This controller is not active, or has not arranged the access control lists since it is.
        """
        if not self._is_active or self._is_arranging:
            raise NotControllerError(f"node {self._node_id} is not the active controller (yet, or any more)")
        return self._managers.rights(client, api, tell_denied)

    def committed_state_hash(self) -> str:
        """Returns a hash, equal on every node with the same committed end offset; costs a walk over the state."""
        return self._state.state_hash(self._offsets.stable_end_offset)

    @property
    def _is_active(self) -> bool:
        return self._offsets.next_write_offset is not None

    def _must_go_on(self) -> bool:
        """Whether more is to be done at once than one step does."""
        if self.is_changing or self._is_arranging:
            return True
        return not self._queue.is_held and len(self._queue) > 0

    @property
    def is_changing(self) -> bool:
        """Whether a large change is under way, beside which nothing else is made."""
        return bool(self._unappended) or self._unmade is not None

    @property
    def _is_arranging(self) -> bool:
        """Whether the access control lists are being arranged, before which no request is handled."""
        return self._is_active and self._state.acls.in_force.is_far_behind

    # ---- terms ------------------------------------------------------------------------------------------------------

    def _handle_claim(self, message: Claim) -> None:
        if self._is_active or message.next_offset < self._offsets.committed_end_offset:
            raise InvariantViolationError(
                f"claim of epoch {message.epoch} at {message.next_offset}: committed is {self._offsets.committed_end_offset}, "
                f"active is {self._is_active}"
            )
        self._claim = message
        self._queue.is_held = True
        self._maybe_activate()

    def _maybe_activate(self) -> None:
        """Begins the term once the records of earlier terms have all been replayed."""
        if self._claim is None or self._is_active or self._offsets.committed_end_offset < self._claim.next_offset:
            return
        self._queue.prepend(self._activate)
        self._queue.is_held = False

    def _activate(self, now_ms: int) -> None:
        self._offsets.activate()
        if self._offsets.in_transaction:
            self._append((AbortTransactionRecord("its controller has lost its leadership"),), now_ms)
        self._append(self._bootstrap_records(), now_ms)
        self._managers.cluster.start_term(now_ms)
        self._last_write_ms = now_ms
        self._periodic.start_term(now_ms)
        for task in self._tasks.values():
            self._defer(task, now_ms + self._periodic.first_delay_ms(task))

    def _bootstrap_records(self) -> tuple[MetadataRecord, ...]:
        """Returns what a new log begins with: one batch, so it needs no transaction.

        The minimum ISR is a record, not only a setting of this node: leaders decide by it when a record is committed, the
        controller when a replica stays eligible, and both must mean the same number.  So it is with the others that
        elections depend on, where they are not the default.
        """
        if not self._state.features.needs_bootstrap:
            return ()
        config = self._config
        values = [(MIN_INSYNC_REPLICAS, str(config.min_insync_replicas))]
        if config.unclean_leader_election_enable:
            values.append((UNCLEAN_LEADER_ELECTION_ENABLE, "true"))
        if config.flush_policy is not FlushPolicy.AUTO:
            values.append((FLUSH_POLICY, config.flush_policy.value))
        return (
            *self._state.features.bootstrap_records(),
            *(ConfigRecord(ResourceType.BROKER, "", key.cluster_name, text) for key, text in values),
            *config.first_users,
        )

    def _handle_renounce(self, now_ms: int) -> None:
        self._claim = None
        waiting = self._queue.clear()
        self._queue.is_held = False
        if self._is_active:
            for offset, record in self._offsets.deactivate():
                self._state.replay(record, offset)
            self._managers.heartbeats.clear()
            self._managers.replication.forget_reports()
            self._effects += self._deferred.fail_all()
            self._forget_rest(NotControllerError("leadership was lost before the change was written"))
            self._watch(())
            self._brokers_seen = -1
        for event in waiting:
            event.run(now_ms)  # told that this is not the active controller

    # ---- the log ----------------------------------------------------------------------------------------------------

    def _handle_committed(self, message: CommittedRecords) -> None:
        base_offset, end_offset = message.base_offset, message.end_offset
        self._offsets.check_follows(base_offset, end_offset)
        if message.records and len(message.records) != end_offset - base_offset:
            raise InvariantViolationError(f"{len(message.records)} records at [{base_offset}, {end_offset})")
        if not self._is_active:
            for offset, record in enumerate(message.records, base_offset):
                self._state.replay(record, offset)
            self._offsets.commit(message)
            self._maybe_activate()
            return
        if self._claim is None or message.epoch != self._claim.epoch:
            raise InvariantViolationError(f"batch of epoch {message.epoch} committed during the term of {self._claim}")
        self._offsets.commit(message)
        self._effects += self._deferred.complete_up_to(self._offsets.stable_end_offset)

    def _handle_skip(self, message: Skip) -> None:
        if self._claim is None:
            raise InvariantViolationError(f"a skip to {message.next_offset} while another node leads")
        if self._is_active:
            self._offsets.skip_to(message.next_offset)
        else:
            self._claim = replace(self._claim, next_offset=message.next_offset)

    def _handle_load_snapshot(self, message: LoadSnapshot) -> None:
        if self._claim is not None or message.end_offset < self._offsets.committed_end_offset:
            raise InvariantViolationError(
                f"a snapshot of {message.end_offset}: committed is {self._offsets.committed_end_offset}, "
                f"leading is {self._claim is not None}"
            )
        self._offsets.begin_load()
        for offset, record in enumerate(message.records):
            self._state.replay(record, offset)
        self._offsets.end_load(message.end_offset)

    def _append(self, records: tuple[MetadataRecord, ...], now_ms: int) -> None:
        """Replays `records` and has them appended; of a large change as much as one step does, and nothing else is made until
        the rest has been, too."""
        if not records:
            return
        self._last_write_ms = now_ms
        self._unappended += self._offsets.batches(records)
        self._append_more()

    def _go_on(self) -> None:
        """Takes one step of what is under way: of a large change first, else of the arrangement of access control lists."""
        if self._is_arranging and not self.is_changing:
            self._state.acls.in_force.arrange_more()
        else:
            self._append_more()

    def _append_more(self) -> None:
        """Makes, replays and appends what one step does of the change that is under way; nothing where none is."""
        is_first = True
        while self.is_changing and (is_first or self._step_records < self._config.max_records_per_step):
            is_first = False
            if self._claim is None:
                raise InvariantViolationError("append without a claim")
            if not self._unappended:
                self._make_more()
            if self._unappended:
                self._append_batch(self._unappended.popleft(), self._claim.epoch)
        if self._awaited is not None and not self.is_changing:
            self._finish(self._awaited)

    def _append_batch(self, batch: tuple[MetadataRecord, ...], epoch: int) -> None:
        self._step_records += len(batch)
        replay, offset = self._state.replay, self._offsets.next_write_offset_or_raise()
        base_offset = offset
        for record in batch:
            replay(record, offset)
            offset += 1
        self._offsets.skip_to(offset)
        self._effects.append(AppendRecords(epoch, base_offset, batch))

    def _append_in_steps(self, name: str, records: Iterator[MetadataRecord | None], now_ms: int) -> None:
        """Appends a change whose records take too long to be made in one step: each step makes those that it appends.

        Args:
            name: The name of the round, or of the request, that it is of.
            records: The records; each is made of what it changes alone, so that those before it may have been replayed.
            now_ms: The time.
        """
        self._last_write_ms = now_ms
        self._unmade = _LongChange(name, chain(records, (EndTransactionRecord(),)), (BeginTransactionRecord(name),))
        self._append_more()

    def _make_more(self) -> None:
        """Makes the next records of a long change, and one more, to know whether there are any; where that fails, none ever counts."""
        change, self._unmade = self._unmade, None
        if change is None:
            return
        try:
            looked_at = tuple(islice(change.unmade, self._offsets.records_max - len(change.made)))
            following = tuple(islice(change.unmade, 1))
        except InvariantViolationError:
            raise
        except Exception as bug:  # noqa: BLE001 - told, and tried again
            self._effects.append(ChangeFailed(change.name, bug))
            self._unappended.append((*change.made, AbortTransactionRecord("the rest of it could not be made")))
            self._fail_awaited(InternalError(change.name, bug))
            return
        made = (*change.made, *only_changes(looked_at))
        self._step_records += sum(record is None for record in looked_at)  # which have taken as long
        is_begun = any(not isinstance(record, BeginTransactionRecord) for record in made)
        if following:
            left = only_changes(following)
            self._unmade = _LongChange(change.name, change.unmade, left if is_begun else (*made, *left))
        elif len(made) == 2 and isinstance(made[0], BeginTransactionRecord):
            return  # it changes nothing, and takes no room in the log
        if is_begun:
            self._unappended += self._offsets.split(made)

    def _finish(self, awaited: _AwaitedChange) -> None:
        """Answers a request whose change has been appended as a whole, once it has committed."""
        self._awaited = None
        response = awaited.result.finished(self._offsets.next_write_offset_or_raise())
        self._answer(Reply(awaited.message.request_id, response), awaited.message.deadline_ms)

    def _fail_awaited(self, error: ReplogError) -> None:
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            self._refuse(awaited.message, error)

    def _forget_rest(self, error: ReplogError) -> None:
        """Forgets what has not been appended of a large change; who waits for it is told the error."""
        self._unappended.clear()
        self._unmade = None
        self._fail_awaited(error)

    def _handle_refused(self, message: AppendRefused, now_ms: int) -> None:
        """Takes the state back to before the refused records, since the log is as it was.

        Of a transaction of which the log has a part, nothing counts.
        """
        self._forget_rest(message.error)
        kept_end_offset = self._offsets.take_back(message.base_offset)
        self._brokers_seen = -1
        self._effects += self._deferred.fail_beyond(kept_end_offset, message.error)
        if self._offsets.in_transaction:
            self._append((AbortTransactionRecord("the rest of it was refused"),), now_ms)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _handle_submit(self, message: Submit, now_ms: int) -> None:
        is_active = self._is_active
        if is_active and type(message.request) is Heartbeat:
            self._managers.cluster.note_contact(message.request, now_ms)
        if self._must_go_on() or (self._claim is not None and not is_active):
            self._await_turn(message)
            return
        due_ms = self._queue.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._run_due(now_ms)
            if self._must_go_on():
                self._await_turn(message)
                return
        self._handle_request(message, now_ms)

    def _await_turn(self, message: Submit) -> None:
        """Queues a request until this controller is active, and a change that is under way has been appended."""
        if len(self._queue) >= self._config.max_parked_requests:
            self._refuse(message, ThrottledError("too many requests wait for this controller; try again later"))
            return
        self._queue.append(
            lambda now_ms: self._handle_request(message, now_ms),
            message.deadline_ms,
            lambda _: self._refuse(message, RequestTimedOutError("the controller did not take the request up in time")),
        )

    def _handle_request(self, message: Submit, now_ms: int) -> None:
        if not self._is_active or self._claim is None:
            self._refuse(message, NotControllerError(f"node {self._node_id} is not the active controller"))
            return
        if now_ms >= message.deadline_ms:
            self._refuse(message, RequestTimedOutError("the request waited too long to be handled"))
            return
        if len(self._deferred) >= self._config.max_parked_requests:
            problem = f"{len(self._deferred)} requests wait for the metadata log to commit; try again later"
            self._refuse(message, ThrottledError(problem))
            return
        try:
            result = self._managers.handle(message.request, now_ms, self._effects.append)
        except ReplogError as refused:
            self._answer(ReplyError(message.request_id, refused), message.deadline_ms)
            return
        except InvariantViolationError:
            raise
        except Exception as bug:  # noqa: BLE001 - nothing has changed yet: this term ends, the node and its state are sound
            failed = InternalError(name_of(message.request), bug)
            self._refuse(message, failed)
            self._effects.append(ResignLeadership(self._claim.epoch, str(failed)))
            return
        if isinstance(result, LongResult):
            self._awaited = _AwaitedChange(message, result)
            self._append_in_steps(name_of(message.request), result.records, now_ms)
        else:
            self._append(result.records, now_ms)
            self._answer(Reply(message.request_id, result.response), message.deadline_ms)
        for name in result.wakes:
            self._defer(self._tasks[name], now_ms + 1)

    def _refuse(self, message: Submit, error: ReplogError) -> None:
        self._effects.append(ReplyError(message.request_id, error))

    def _answer(self, answer: Reply | ReplyError, deadline_ms: int) -> None:
        """Sends an answer at once when all it was made of has committed; else when the highest pending offset does."""
        if self._offsets.has_pending:
            end_offset = self._offsets.next_write_offset_or_raise()
            if self._unappended:
                end_offset += sum(map(len, self._unappended))
            self._deferred.park(end_offset, deadline_ms, answer)
        else:
            self._effects.append(answer)

    # ---- time -------------------------------------------------------------------------------------------------------

    def _run_due(self, now_ms: int) -> None:
        """Runs what is due, as much as one step does; the rest comes with the next `Tick`."""
        records_max = self._config.max_records_per_step
        while not self.is_changing and not self._is_arranging and self._step_records < records_max:
            if (run := self._queue.take_due(now_ms)) is None:
                return
            run(now_ms)

    def _defer(self, task: PeriodicTask, deadline_ms: int) -> None:
        self._queue.defer(task.name, deadline_ms, lambda now_ms: self._run_task(task, now_ms))

    def _run_task(self, task: PeriodicTask, now_ms: int) -> None:
        delay_ms = RETRY_MS

        def make() -> Made:
            nonlocal delay_ms
            made = task.make(now_ms, self._last_write_ms)
            delay_ms = made.delay_ms
            return made.records

        self._attempt(task.name, make, now_ms)
        self._defer(task, now_ms + delay_ms)

    def _watch(self, brokers: tuple[WatchedBroker, ...]) -> None:
        if brokers != self._watched:
            self._watched = brokers
            self._effects.append(WatchBrokers(brokers))

    def _note_gone(self, message: BrokerGone) -> None:
        if self._is_active:
            self._queue.append(lambda now_ms: self._handle_gone(message, now_ms))

    def _handle_gone(self, message: BrokerGone, now_ms: int) -> None:
        if self._is_active:
            self._attempt("gone", lambda: self._managers.cluster.changes_after_gone(message, now_ms), now_ms)

    def _attempt(self, name: str, make: Callable[[], Made], now_ms: int) -> None:
        """Appends what `make` makes; if it fails, nothing has changed, and the term goes on."""
        try:
            made = make()
        except InvariantViolationError:
            raise
        except Exception as bug:  # noqa: BLE001 - told, and tried again
            self._effects.append(ChangeFailed(name, bug))
            return
        if isinstance(made, Iterator):
            self._append_in_steps(name, made, now_ms)
        else:
            self._append(made, now_ms)
