"""Drives the quorum's state machine: its timers, its log, its disk, its peers.

One task steps the core and performs the effects in order.  Persisting the election state is a barrier: nothing after
it in the same step runs before the file is on disk.  The log's fsync is not a barrier; `Flushed` comes as a message.

Committed batches are read back from the log, decoded once, and handed to the listener in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Protocol, assert_never

from replog.broker.clock import Clock
from replog.broker.flusher import LogFlusher
from replog.broker.peer_link import PeerLink
from replog.broker.streams import read_and_write
from replog.controller.messages import CommittedRecords
from replog.errors import (
    CorruptCheckpointError,
    CorruptRecordError,
    DiskFullError,
    InvariantViolationError,
    MalformedFrameError,
    StorageError,
)
from replog.log import Log, is_disk_full
from replog.metadata.records import MetadataRecord
from replog.records import BatchHeader, decode_batch, encode_batch, encode_leader_change, scan
from replog.rpc.messages import Hello
from replog.rpc.metadata_records import decode_metadata_record, encode_metadata_record
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import Stream, Transport
from replog_checkpoints import CorruptCheckpointError as DamagedFileError
from replog_checkpoints import FileSystem, QuorumState, read_quorum_state, write_quorum_state
from replog_quorum import Quorum, QuorumConfig, QuorumStatus
from replog_quorum.messages import (
    AppendBatches,
    Appended,
    AppendLeaderChange,
    BecameLeader,
    Effect,
    ElectionState,
    EpochEnd,
    Flushed,
    HighWatermarkAdvanced,
    LeaderChanged,
    LostLeadership,
    Message,
    PersistElectionState,
    Received,
    Request,
    Resign,
    Response,
    Send,
    SendFailed,
    SendFetchedData,
    Shutdown,
    Tick,
    Truncated,
    TruncateTo,
)

FETCH_MAX_BYTES = 8 << 20
"""Most of the metadata log one fetch answer carries (kafka-reference 2)."""

COMMITTED_READ_BYTES = 1 << 20
MAX_WAITING_RESPONSES = 256
MAX_OPEN_REQUESTS = 4096

_log = logging.getLogger(__name__)


class QuorumListener(Protocol):
    """Who learns of commits and of leadership; called on the loop, must not block."""

    def on_committed(self, batch: CommittedRecords) -> None: ...

    def on_caught_up(self, high_watermark: int) -> None:
        """All committed batches known so far have been handed over."""
        ...

    def on_became_leader(self, epoch: int, next_offset: int) -> None:
        """This node leads, and everything older than its epoch has been handed over as committed."""
        ...

    def on_lost_leadership(self, epoch: int) -> None: ...

    def on_leader_changed(self, leader_id: int | None, epoch: int) -> None: ...


@dataclass(frozen=True, slots=True)
class MetadataLogView:
    """The core's read-only view of the metadata log."""

    log: Log

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self.log.flushed_offset

    @property
    def last_epoch(self) -> int:
        return self.log.last_epoch or 0

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        end = self.log.end_offset_for_epoch(epoch)
        if end is None:  # kafka-reference 5.4: an epoch this log does not know resolves to its end
            return EpochEnd(self.last_epoch, self.log.log_end_offset)
        return EpochEnd(end.epoch, end.end_offset)


class _InboundStream:
    """Answers to one node that asks us: a bounded queue and the task that writes it."""

    def __init__(self, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        self._stream = stream
        self._queue: asyncio.Queue[Response] = asyncio.Queue(MAX_WAITING_RESPONSES)

    def offer(self, response: Response) -> None:
        if not self._queue.full():  # a peer that does not read its answers gets none; it will ask again
            self._queue.put_nowait(response)

    async def write(self) -> None:
        while True:
            await self._stream.send(await self._queue.get())


class QuorumDriver:
    """One node's part in the metadata quorum.

    Args:
        node_id: this node.
        voters: voter id -> address; this node may or may not be among them.
        log: the metadata log; this driver is its only owner.
        state_path: the quorum-state file.
        make_room: gives the reserve of a full disk back, for one more try; whether there was one.
        on_failure: told about a bug or a failed disk; the node stops.
    """

    def __init__(
        self,
        *,
        node_id: int,
        voters: Mapping[int, str],
        log: Log,
        fs: FileSystem,
        state_path: str,
        config: QuorumConfig,
        transport: Transport,
        hello: Callable[[], Hello],
        clock: Clock,
        rng: Random,
        executor: ThreadPoolExecutor,
        flusher: LogFlusher,
        make_room: Callable[[], bool],
        listener: QuorumListener,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._log = log
        self._fs = fs
        self._state_path = state_path
        self._clock = clock
        self._executor = executor
        self._flusher = flusher
        self._make_room = make_room
        self._listener = listener
        self._on_failure = on_failure
        self._voters = tuple(sorted(voters))
        log.flush()  # what a crash left only in the page cache must be on disk before this voter vouches for it
        self._core = Quorum(
            node_id=node_id,
            voters=self._voters,
            log=MetadataLogView(log),
            election_state=self._read_state(),
            config=config,
            rng=rng,
            now_ms=clock.now_ms(),
        )
        self._links = {
            peer_id: PeerLink(
                peer_id=peer_id,
                address=address,
                transport=transport,
                hello=hello,
                request_timeout_s=config.request_timeout_ms / 1000,
                on_response=partial(self._received, peer_id),
                on_failed=partial(self._failed, peer_id),
                on_failure=on_failure,
            )
            for peer_id, address in voters.items()
            if peer_id != node_id
        }
        self._inbound: dict[tuple[int, int], _InboundStream] = {}
        self._inbox: deque[Message] = deque()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._applied = log.log_start_offset
        self._high_watermark = -1
        self._claim: tuple[int, int] | None = None
        self._leader_epoch: int | None = None

    # ---- what the rest of the node uses --------------------------------------------------------------------------

    def start(self) -> None:
        for link in self._links.values():
            link.start()
        self._task = asyncio.create_task(self._run(), name="quorum-driver")

    async def stop(self) -> None:
        """Hands leadership over if this node has it, then stops."""
        self._post(Shutdown())
        await asyncio.sleep(0.05 if self._links else 0)  # one chance for the farewell to leave
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for link in self._links.values():
            await link.stop()

    def status(self) -> QuorumStatus:
        return self._core.status()

    def holds_lease(self) -> bool:
        """Whether this node leads and no other node can have been elected yet (see `Quorum.holds_lease`)."""
        return self._core.holds_lease(self._clock.now_ms())

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    def append(self, records: Sequence[MetadataRecord], *, epoch: int, base_offset: int) -> None:
        """Appends one atomic batch as leader of `epoch`; its commit comes as `on_committed`.

        Raises:
            InvariantViolationError: this node does not lead `epoch`, or the batch would not land at `base_offset`.
        """
        if self._leader_epoch != epoch:
            raise InvariantViolationError(f"append in epoch {epoch}, but this node leads {self._leader_epoch}")
        if self._log.log_end_offset != base_offset:
            raise InvariantViolationError(
                f"records for offset {base_offset}, the log ends at {self._log.log_end_offset}"
            )
        now = self._clock.wall_ms()
        batch = encode_batch([(now, None, encode_metadata_record(record), ()) for record in records])
        self._append_as_leader(batch, epoch)

    def resign(self, epoch: int) -> None:
        self._post(Resign(epoch))

    async def handle_stream(self, hello: Hello, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        """Serves requests of another node until its stream ends."""
        inbound = _InboundStream(stream)
        try:
            await read_and_write(self._read_requests(hello, stream, inbound), inbound.write())
        finally:
            self._inbound = {key: value for key, value in self._inbound.items() if value is not inbound}

    async def _read_requests(
        self, hello: Hello, stream: Stream[QuorumFrame, QuorumFrame], inbound: _InboundStream
    ) -> None:
        while True:
            message = await stream.receive()
            if not isinstance(message, Request):
                raise MalformedFrameError(f"node {hello.node_id} sent {type(message).__name__} as a request")
            if len(self._inbound) >= MAX_OPEN_REQUESTS:
                self._inbound.pop(next(iter(self._inbound)))
            self._inbound[hello.node_id, message.correlation_id] = inbound
            self._post(Received(hello.node_id, message))

    # ---- the loop -------------------------------------------------------------------------------------------------

    def _post(self, message: Message) -> None:
        self._inbox.append(message)
        self._wakeup.set()

    def _received(self, peer_id: int, response: Response) -> None:
        self._post(Received(peer_id, response))

    def _failed(self, peer_id: int, correlation_id: int) -> None:
        self._post(SendFailed(peer_id, correlation_id))

    async def _run(self) -> None:
        try:
            await self._perform_all(self._core.start(self._clock.now_ms()))
            while True:
                await self._wait()
                while self._inbox:
                    await self._perform_all(self._core.step(self._inbox.popleft(), self._clock.now_ms()))
                deadline = self._core.next_deadline_ms()
                if deadline is not None and deadline <= self._clock.now_ms():
                    await self._perform_all(self._core.step(Tick(), self._clock.now_ms()))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever it is, a voter must not go on with half a step done
            self._on_failure(error)

    async def _wait(self) -> None:
        if self._inbox:
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
                await self._persist(effect.state)
                await self._perform_all(effect.then)
            case Send():
                self._send(effect.destination, effect.message)
            case SendFetchedData():
                self._send_fetched(effect)
            case AppendLeaderChange():
                self._append_leader_change(effect)
            case AppendBatches():
                self._append_as_follower(effect)
            case TruncateTo():
                self._truncate(effect.end_offset)
            case HighWatermarkAdvanced():
                self._advance(effect.high_watermark)
            case BecameLeader() | LostLeadership() | LeaderChanged():
                self._leadership(effect)
            case _ as unreachable:
                assert_never(unreachable)

    # ---- disk -----------------------------------------------------------------------------------------------------

    def _read_state(self) -> ElectionState | None:
        try:
            state = read_quorum_state(self._fs, self._state_path)
        except DamagedFileError as error:
            reason = f"{error.reason}. Nothing was changed: restore the file. Without it this voter could vote twice"
            raise CorruptCheckpointError(error.path, error.line, reason) from error
        if state is None:
            return None
        return ElectionState(epoch=state.leader_epoch, leader_id=state.leader_id, voted_id=state.voted_id)

    async def _persist(self, state: ElectionState) -> None:
        on_disk = QuorumState(
            leader_id=state.leader_id,
            leader_epoch=state.epoch,
            voted_id=state.voted_id,
            voted_directory_id=None,
            current_voters=self._voters,
            data_version=0,
        )
        loop = asyncio.get_running_loop()
        write = partial(write_quorum_state, self._fs, self._state_path, on_disk)
        try:
            await loop.run_in_executor(self._executor, write)
        except OSError as error:
            if not (is_disk_full(error) and self._make_room()):
                raise
            await loop.run_in_executor(self._executor, write)

    def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        self._leader_epoch = effect.leader_epoch
        self._with_room(lambda: self._log.assign_epoch_start(effect.leader_epoch))
        batch = encode_leader_change(
            base_offset=self._log.log_end_offset,
            leader_epoch=effect.leader_epoch,
            timestamp_ms=self._clock.wall_ms(),
            leader_id=effect.leader_id,
            voters=effect.voters,
            granting_voters=effect.granting_voters,
        )
        self._append_as_leader(batch, effect.leader_epoch)

    def _append_as_leader(self, batch: bytes, epoch: int) -> None:
        self._with_room(lambda: self._log.append_as_leader(batch, leader_epoch=epoch, now_ms=self._clock.wall_ms()))
        self._appended()

    def _with_room(self, write: Callable[[], object]) -> None:
        """A quorum cannot leave a write out: on a full disk it takes the reserve, and without one the node stops."""
        try:
            write()
        except DiskFullError as error:
            if not self._make_room():
                raise StorageError(str(error)) from error
            try:
                write()
            except DiskFullError as again:
                raise StorageError(str(again)) from again

    def _append_as_follower(self, effect: AppendBatches) -> None:
        try:
            self._with_room(
                lambda: self._log.append_as_follower(
                    effect.batches, now_ms=self._clock.wall_ms(), leader_epoch=effect.leader_epoch
                )
            )
        except CorruptRecordError as error:
            if error.path:  # a file of ours, not what came over the network
                raise
            _log.warning("what the quorum's leader sent is damaged and is fetched again: %s", error)
        self._appended()

    def _appended(self) -> None:
        self._post(Appended(self._log.log_end_offset))
        self._flusher.request(self._log, lambda offset: self._post(Flushed(offset)))

    def _truncate(self, end_offset: int) -> None:
        if end_offset < self._applied:
            raise InvariantViolationError(
                f"the metadata log was asked to cut at {end_offset}, but {self._applied} is committed and applied"
            )
        _log.info("metadata log truncated to %d (was %d)", end_offset, self._log.log_end_offset)
        self._log.truncate_to(end_offset)
        self._post(Truncated(self._log.log_end_offset))

    # ---- peers ------------------------------------------------------------------------------------------------------

    def _send(self, destination: int, message: Request | Response) -> None:
        if isinstance(message, Request):
            link = self._links.get(destination)
            if link is not None:
                link.send(message)
            return
        inbound = self._inbound.pop((destination, message.correlation_id), None)
        if inbound is not None:
            inbound.offer(message)

    def _send_fetched(self, effect: SendFetchedData) -> None:
        batches = self._log.read(
            effect.fetch_offset,
            max_bytes=FETCH_MAX_BYTES,
            end_offset=self._log.log_end_offset,
            min_one_batch=True,
        )
        self._send(effect.destination, replace(effect.response, batches=batches))

    # ---- commits and leadership ---------------------------------------------------------------------------------------

    def _advance(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        while self._applied < high_watermark:
            data = self._log.read(
                self._applied, max_bytes=COMMITTED_READ_BYTES, end_offset=high_watermark, min_one_batch=True
            )
            if not data:
                raise InvariantViolationError(f"committed metadata at {self._applied} is missing from the log")
            for header in scan(data):
                self._listener.on_committed(_committed(data, header))
                self._applied = header.last_offset + 1
                self._maybe_claim()
        self._listener.on_caught_up(high_watermark)

    def _maybe_claim(self) -> None:
        """The controller takes over once it has seen everything older than its own epoch (kafka-reference 5.5)."""
        if self._claim is not None and self._applied > self._claim[1]:
            epoch, _ = self._claim
            self._claim = None
            self._listener.on_became_leader(epoch, self._log.log_end_offset)

    def _leadership(self, effect: BecameLeader | LostLeadership | LeaderChanged) -> None:
        match effect:
            case BecameLeader():
                _log.info(
                    "leads the metadata quorum in epoch %d from offset %d", effect.epoch, effect.epoch_start_offset
                )
                self._claim = (effect.epoch, effect.epoch_start_offset)
            case LostLeadership():
                _log.info("no longer leads the metadata quorum (epoch %d)", effect.epoch)
                self._leader_epoch = None
                claimed = self._claim is None
                self._claim = None
                if claimed:
                    self._listener.on_lost_leadership(effect.epoch)
            case LeaderChanged():
                self._listener.on_leader_changed(effect.leader_id, effect.epoch)
            case _ as unreachable:
                assert_never(unreachable)


def _committed(data: bytes, header: BatchHeader) -> CommittedRecords:
    records: tuple[MetadataRecord, ...] = ()
    if not header.is_control:
        decoded = decode_batch(data, header.position)
        records = tuple(decode_metadata_record(record.value, offset=record.offset) for record in decoded)
    return CommittedRecords(header.base_offset, header.last_offset + 1, header.partition_leader_epoch, records)
