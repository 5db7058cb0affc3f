"""Drives the quorum's state machine: its timers, its log, its disk, its peers.

One task steps the core and performs the effects in order.  Persisting the election state and installing a snapshot are
barriers: nothing after them in the same step runs before they are on disk.  The log's fsync is not a barrier; `Flushed`
comes as a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import PurePosixPath
from random import Random
from typing import Protocol, assert_never
from uuid import UUID

from msgspec import Struct

from replog.broker.clock import Clock
from replog.broker.disk.flusher import LogFlusher
from replog.broker.quorum.committed_log import CommitListener, CommittedLog
from replog.broker.quorum.gathered_appends import GatheredAppends, QuorumTimes
from replog.broker.quorum.metadata_log import MetadataLog
from replog.broker.quorum.peer_link import PeerLink
from replog.broker.quorum.peers import InboundRequests, QuorumPeers
from replog.broker.quorum.state_file import QuorumStateFile
from replog.broker.quorum.storage import QuorumStorage
from replog.broker.quorum.voter_records import knows_no_other_voter, lost_vote
from replog.errors import (
    BrokerClosedError,
    ErrorCode,
    NotControllerError,
    ReplogError,
    ThrottledError,
)
from replog.errors.from_code import error_from_code
from replog.metadata.records import MetadataRecord
from replog.rpc.messages import Hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import PeerTransport, Stream
from replog.waiting.task_ends import end_tasks
from replog_quorum import Quorum, QuorumConfig, QuorumStatus, VoterSet
from replog_quorum.messages import (
    AddVoter,
    AppendBatches,
    AppendLeaderChange,
    AppendVoters,
    BecameLeader,
    ChangeVoters,
    Effect,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LostLeadership,
    Message,
    OpenSnapshot,
    PeerLearned,
    PersistElectionState,
    QuorumError,
    Received,
    RemoveVoter,
    Request,
    Resign,
    Response,
    Send,
    SendFailed,
    SendFetchedData,
    SendSnapshotChunk,
    Shutdown,
    Tick,
    TruncateTo,
    VoterChangeAnswered,
    VoterSetChanged,
    WriteSnapshotChunk,
)

HAND_OVER_PAUSE_S = 0.001
"""Between two pieces of the committed log: a node that catches up must still answer when another one asks for its vote, and
an answer takes several turns of the loop."""

MAX_VOTER_CHANGES = 64
"""That wait for an answer."""

_log = logging.getLogger(__name__)


class QuorumListener(CommitListener, Protocol):
    """Who learns of commits and of leadership; called on the loop, must not block."""

    def on_became_leader(self, epoch: int, next_offset: int) -> None:
        """Learns that this node leads, and that everything older than its epoch has been handed over as committed."""
        ...

    def on_control_records(self, next_offset: int) -> None:
        """Learns that the quorum itself has appended; the next record of the active controller gets `next_offset`."""
        ...

    def on_lost_leadership(self, epoch: int) -> None: ...

    def on_leader_changed(self, leader_id: int | None, epoch: int) -> None: ...


class QuorumIdentity(Struct, frozen=True, kw_only=True):
    """Who this node is in the quorum.

    Attributes:
        node_id: The id of this node.
        directory_id: The id of the log directory that holds its metadata log.
        endpoint: The address where it listens, for voter records.
        voters: The voters as configured: where a new quorum begins, and where a leader is looked for.
        config: The timers of the quorum.
    """

    node_id: int
    directory_id: UUID
    endpoint: str
    voters: VoterSet
    config: QuorumConfig


class QuorumSurroundings(Struct, frozen=True, kw_only=True):
    """What the driver works with.

    Attributes:
        transport: The way to other nodes.
        hello: The function that makes the first message of every stream of this node.
        clock: The clock of the node.
        rng: The random generator for time-outs.
        executor: The threads for the disk.
        flusher: The flusher of all logs of the node.
        append_linger_ms: The time for which the controller's records are gathered before they are appended; 0 for one
            turn of the loop.
        on_failure: The function that is told about a bug or a failed disk; the node stops then.
    """

    transport: PeerTransport
    hello: Callable[[], Hello]
    clock: Clock
    rng: Random
    executor: Executor
    flusher: LogFlusher
    append_linger_ms: int
    on_failure: Callable[[BaseException], None]


class QuorumDriver:
    """One node's part in the metadata quorum.

    Args:
        identity: Who this node is in the quorum.
        log: The metadata log with its snapshots; this driver is its only owner.
        state_file: The file where the election state is kept.
        surroundings: The clock, network and threads to work with.
        listener: The part of the node that learns of commits and leadership.

    Attributes:
        times: How long elections and commits took.
        lost_vote: Why this node does not vote although the voter set names it; "" where that is not so.
    """

    def __init__(
        self,
        identity: QuorumIdentity,
        log: MetadataLog,
        state_file: QuorumStateFile,
        surroundings: QuorumSurroundings,
        listener: QuorumListener,
    ) -> None:
        self._identity = identity
        self._log = log
        self._state_file = state_file
        self._surroundings = surroundings
        self._clock = surroundings.clock
        self._listener = listener
        voters = log.voter_sets[-1][1] if log.voter_sets else identity.voters
        is_one_of_several = len(voters) > 1 and voters.contains(identity.node_id, identity.directory_id)
        self._core = Quorum(
            node_id=identity.node_id,
            directory_id=identity.directory_id,
            endpoint=identity.endpoint,
            voters=identity.voters,
            voter_history=log.voter_sets,
            log=log,
            election_state=state_file.read_beside(
                log.last_epoch,
                votes=is_one_of_several,
                is_alone=knows_no_other_voter(identity.node_id, (voters, identity.voters), state_file.read())
                and not state_file.names_others,
            ),
            config=identity.config,
            rng=surroundings.rng,
            now_ms=surroundings.clock.now_ms(),
        )
        self._names_others = len(voters) > 1 if log.voter_sets else None
        configured = {voter.voter_id: voter.endpoint for voter in identity.voters.voters}
        self._peers = QuorumPeers(identity.node_id, configured, self._make_link)
        self._inbound = InboundRequests(lambda node_id, request: self._post(Received(node_id, request)))
        self._committed = CommittedLog(log, listener)
        self.times = QuorumTimes()
        self.lost_vote = ""
        self._appends = GatheredAppends(
            log,
            self._committed,
            self.times,
            surroundings.clock,
            linger_ms=surroundings.append_linger_ms,
            on_appended=lambda: self._storage.appended(),  # noqa: PLW0108 -- made after this
            on_failure=surroundings.on_failure,
        )
        self._storage = QuorumStorage(
            log,
            self._committed,
            self._appends,
            surroundings.flusher,
            post=self._post,
            on_control_records=listener.on_control_records,
            note_others=partial(state_file.note_others, names_others=True),
            in_thread=self._in_thread,
        )
        self._voter_changes: dict[int, asyncio.Future[None]] = {}
        self._next_request_id = 0
        self._inbox: deque[Message] = deque()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._claim: tuple[int, int] | None = None

    # ---- what the rest of the node uses --------------------------------------------------------------------------

    def start(self) -> None:
        """Hands over the newest snapshot, then takes part."""
        latest = self._log.snapshots.latest
        if latest is not None:
            self._committed.load(latest)
        self._peers.start()
        self._task = asyncio.create_task(self._run(), name="quorum-driver")

    async def stop(self) -> None:
        """Hands leadership over if this node has it, then stops."""
        self._post(Shutdown())
        await asyncio.sleep(0.05 if len(self._peers) else 0)  # one chance for the farewell to leave
        await end_tasks(self._task)
        self._appends.close()
        await self._peers.stop()
        self._fail_voter_changes(BrokerClosedError("the node is stopping"))
        self._log.snapshots.close()

    def status(self) -> QuorumStatus:
        """Returns what this node believes now."""
        return self._core.status()

    def holds_lease(self) -> bool:
        """Whether this node leads and no other node can have been elected yet (see `Quorum.holds_lease`)."""
        return self._core.holds_lease(self._clock.now_ms())

    @property
    def log(self) -> MetadataLog:
        """The metadata log."""
        return self._log

    @property
    def committed(self) -> CommittedLog:
        """The committed part of the metadata log, as far as it has been handed over."""
        return self._committed

    def address_of(self, node_id: int) -> str | None:
        """Returns where a node of the quorum listens, as far as this one knows; None where nobody has said it."""
        return self._peers.address_of(node_id)

    def append(self, records: Sequence[MetadataRecord], *, epoch: int, base_offset: int) -> None:
        """Appends records as leader of `epoch`, all of them in one batch; their commit comes as `on_committed`.

        Raises:
            InvariantViolationError: This node does not lead `epoch`, or the records would not land at `base_offset`.
            ReplogQuorumError: The records do not fit into a batch, or too much waits to be appended.
        """
        self._appends.add(records, epoch=epoch, base_offset=base_offset)

    def resign(self, epoch: int) -> None:
        """Gives up leadership of `epoch`, if this node has it."""
        self._post(Resign(epoch))

    async def change_voters(self, change: AddVoter | RemoveVoter) -> None:
        """Adds or removes one voter; returns when the change is committed.

        Raises:
            ReplogError: The change was refused; the class says who must act, the message what is next.
        """
        if len(self._voter_changes) >= MAX_VOTER_CHANGES:
            raise ThrottledError(f"{MAX_VOTER_CHANGES} changes of voters wait already; try again later")
        self._next_request_id += 1
        request_id = self._next_request_id
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._voter_changes[request_id] = future
        self._post(ChangeVoters(request_id, change))
        try:
            await future
        finally:
            self._voter_changes.pop(request_id, None)

    async def handle_stream(self, hello: Hello, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        """Serves requests of another node until its stream ends."""
        await self._inbound.serve(hello, stream)

    # ---- the loop -------------------------------------------------------------------------------------------------

    def _post(self, message: Message) -> None:
        self._inbox.append(message)
        self._wakeup.set()

    async def _run(self) -> None:
        try:
            if self._names_others not in {None, self._state_file.names_others}:
                await self._in_thread(partial(self._state_file.note_others, names_others=bool(self._names_others)))
            await self._perform_all(self._core.start(self._clock.now_ms()))
            while True:
                await self._wait()
                while self._inbox:
                    await self._perform_all(self._core.step(self._inbox.popleft(), self._clock.now_ms()))
                deadline = self._core.next_deadline_ms()
                if deadline is not None and deadline <= self._clock.now_ms():
                    await self._perform_all(self._core.step(Tick(), self._clock.now_ms()))
                if self._committed.is_behind:
                    self._hand_over()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever it is, a voter must not go on with half a step done
            self._surroundings.on_failure(error)

    async def _wait(self) -> None:
        if self._inbox:
            await asyncio.sleep(0)  # others get their turn
            return
        if self._committed.is_behind:
            await asyncio.sleep(HAND_OVER_PAUSE_S)
            return
        self._wakeup.clear()
        deadline = self._core.next_deadline_ms()
        if deadline is None:
            await self._wakeup.wait()
            return
        try:
            async with asyncio.timeout(max(0, deadline - self._clock.now_ms()) / 1000):
                await self._wakeup.wait()
        except TimeoutError:
            return

    async def _perform_all(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            await self._perform(effect)

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case PersistElectionState():
                await self._in_thread(partial(self._state_file.write, effect.state))
                await self._perform_all(effect.then)
            case Send():
                self._send(effect.destination, effect.message)
            case SendFetchedData() | SendSnapshotChunk():
                self._send(effect.destination, self._storage.read(effect))
            case AppendLeaderChange() | AppendVoters() | AppendBatches() | TruncateTo():
                await self._storage.change(effect)
            case OpenSnapshot() | WriteSnapshotChunk():
                self._storage.download(effect, self._source())
            case InstallSnapshot():
                await self._storage.install(effect)
            case HighWatermarkAdvanced():
                self.times.committed(effect.high_watermark, self._clock.now_ms())
                self._committed.advance(effect.high_watermark)
                self._appends.committed(effect.high_watermark)
                self._maybe_claim()
            case BecameLeader() | LostLeadership() | LeaderChanged():
                self._leadership(effect)
            case VoterSetChanged():
                self._peers.set_voters(effect.voters)
                self._note_lost_vote(effect.voters)
            case PeerLearned():
                self._peers.learn(effect.node_id, effect.endpoint)
            case VoterChangeAnswered():
                self._answer_voter_change(effect)
            case _ as unreachable:
                assert_never(unreachable)

    def _source(self) -> tuple[int, int]:
        """Returns the leader and epoch that snapshots come from now."""
        status = self._core.status()
        return (-1 if status.leader_id is None else status.leader_id, status.epoch)

    async def _in_thread(self, run: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._surroundings.executor, run)

    # ---- peers ------------------------------------------------------------------------------------------------------

    def _make_link(self, peer_id: int, addresses: tuple[str, ...]) -> PeerLink:
        surroundings = self._surroundings
        return PeerLink(
            peer_id=peer_id,
            addresses=addresses,
            transport=surroundings.transport,
            hello=surroundings.hello,
            request_timeout_s=self._identity.config.request_timeout_ms / 1000,
            on_response=lambda response: self._post(Received(peer_id, response)),
            on_failed=lambda correlation_id, refused: self._post(SendFailed(peer_id, correlation_id, refused)),
            on_failure=surroundings.on_failure,
        )

    def _send(self, destination: int, message: Request | Response) -> None:
        if not isinstance(message, Request):
            self._inbound.answer(destination, message)
        elif not self._peers.send(destination, message):
            self._post(SendFailed(destination, message.correlation_id))

    def _note_lost_vote(self, voters: VoterSet) -> None:
        """Tells why this node does not vote, where the voter set names it; once, until that changes."""
        directory = str(PurePosixPath(self._log.log.directory).parent)
        reason = lost_vote(voters, self._identity.node_id, self._identity.directory_id, directory)
        if reason and reason != self.lost_vote:
            _log.warning("%s", reason)
        self.lost_vote = reason

    # ---- commits and leadership ---------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        self._committed.hand_over()
        self._maybe_claim()

    def _maybe_claim(self) -> None:
        """Lets the controller take over once it has seen everything older than its own epoch (docs/KAFKA.md 5.5)."""
        if self._claim is not None and self._committed.applied > self._claim[1]:
            epoch, _ = self._claim
            self._claim = None
            self._appends.open(epoch)
            self._listener.on_became_leader(epoch, self._log.log_end_offset)

    def _leadership(self, effect: BecameLeader | LostLeadership | LeaderChanged) -> None:
        match effect:
            case BecameLeader():
                epoch, offset = effect.epoch, effect.epoch_start_offset
                _log.info(
                    "leads the metadata quorum in epoch %d from offset %d", epoch, offset,
                    extra=self._election_parts(self._identity.node_id, epoch),
                )  # fmt: skip
                self._claim = (effect.epoch, effect.epoch_start_offset)
            case LostLeadership():
                _log.info("no longer leads the metadata quorum (epoch %d)", effect.epoch)
                self._appends.close()
                claimed = self._claim is None
                self._claim = None
                if claimed:
                    self._listener.on_lost_leadership(effect.epoch)
                self._fail_voter_changes(NotControllerError("this node no longer leads the metadata quorum"))
            case LeaderChanged():
                self.times.leader_changed(effect.leader_id, self._clock.now_ms())
                self._tell_leader(effect.leader_id, effect.epoch)
                self._listener.on_leader_changed(effect.leader_id, effect.epoch)
            case _ as unreachable:
                assert_never(unreachable)

    def _tell_leader(self, leader_id: int | None, epoch: int) -> None:
        """Writes to the log who leads, unless it is this node itself: that was told by `BecameLeader`."""
        if leader_id is None:
            _log.info("the metadata quorum has no leader (epoch %d)", epoch, extra=self._election_parts(-1, epoch))
        elif leader_id != self._identity.node_id:
            parts = self._election_parts(leader_id, epoch)
            _log.info("node %d leads the metadata quorum in epoch %d", leader_id, epoch, extra=parts)

    @staticmethod
    def _election_parts(leader_id: int, epoch: int) -> dict[str, object]:
        """Returns the parts of a line about an election, for log collectors (`log_output`)."""
        return {"event": "quorum_leader", "leader": leader_id, "leader_epoch": epoch}

    def _answer_voter_change(self, effect: VoterChangeAnswered) -> None:
        future = self._voter_changes.get(effect.request_id)
        if future is None or future.done():
            return
        if effect.error is QuorumError.NONE:
            future.set_result(None)
        else:
            future.set_exception(_voter_change_error(effect.error, effect.reason))

    def _fail_voter_changes(self, error: Exception) -> None:
        for future in self._voter_changes.values():
            if not future.done():
                future.set_exception(error)


def _voter_change_error(error: QuorumError, reason: str) -> ReplogError:
    """Makes the error that an operator is told: its class says who must act."""
    if error is QuorumError.NOT_LEADER_OR_FOLLOWER:
        return NotControllerError(reason)
    return error_from_code(ErrorCode(error), reason)
