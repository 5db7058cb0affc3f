"""Drives the controller's state machine: requests in, records to the quorum, answers out.

The controller lives on every voter: it replays what commits (standby) and answers requests while its node leads the
quorum.  Requests of one node's clients and brokers arrive here through `submit`, wherever they came from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from msgspec.structs import replace

from replog.access.principal import ClientIdentity, Envelope
from replog.access.rights import Denial, Rights
from replog.broker.clock import Clock
from replog.broker.controller.broker_watcher import BrokerWatcher
from replog.broker.driver import Driver
from replog.broker.loop_lag import LoopLag
from replog.broker.quorum.committed_log import LoadedSnapshot
from replog.broker.quorum.driver import QuorumDriver
from replog.controller.controller import Controller, ControllerStatus
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
)
from replog.controller.request_parts import divided
from replog.controller.requests import ControllerRequest, ControllerResponse, Heartbeat
from replog.errors import (
    BrokerClosedError,
    InternalError,
    InvariantViolationError,
    NotControllerError,
    PolicyViolationError,
    ReplogError,
    ThrottledError,
)
from replog.metadata.records import AbortTransactionRecord
from replog.protocol.audit import Audit
from replog.rpc.messages import Hello
from replog.rpc.transport import PeerTransport
from replog_quorum import AccumulatorFullError, AppendTooLargeError

MAX_OPEN_REQUESTS = 20_000

_log = logging.getLogger(__name__)


class ControllerDriver:
    """One node's controller, active or standby.

    Args:
        core: The state machine; nobody else steps it.
        clock: The clock of the node.
        transport: The way to the brokers that are looked after.
        hello: The function that makes the first message of every stream of this node.
        loop_lag: The lag of this node's event loop.
        on_failure: The function that is told about a bug; the node stops then.

    Attributes:
        denials_count: How often it refused what a client asked for.
    """

    def __init__(
        self,
        core: Controller,
        clock: Clock,
        transport: PeerTransport,
        hello: Callable[[], Hello],
        loop_lag: LoopLag,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._clock = clock
        self._audit = Audit()
        self.denials_count = 0
        self._quorum: QuorumDriver | None = None
        self._futures: dict[int, asyncio.Future[ControllerResponse]] = {}
        self._next_request_id = 0
        self._watcher = BrokerWatcher(
            transport, hello, loop_lag, lambda gone: self._driver.submit(lambda: self._tell_gone(gone)), on_failure
        )
        self._driver = Driver(
            "controller-driver",
            clock,
            tick=lambda: self._step(Tick()),
            next_deadline_ms=core.next_deadline_ms,
            on_failure=on_failure,
        )

    def start(self, quorum: QuorumDriver) -> None:
        self._quorum = quorum
        self._driver.start()

    async def stop(self) -> None:
        await self._watcher.stop()
        await self._driver.stop()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(BrokerClosedError("the controller is stopping"))
        self._futures.clear()

    def status(self) -> ControllerStatus:
        return self._core.status()

    def committed_state_hash(self) -> str:
        """Returns the hash of the committed state (see `Controller.committed_state_hash`)."""
        return self._core.committed_state_hash()

    def rights(self, client: ClientIdentity, api: str) -> Rights:
        """Returns what a client may have changed by others than the controller (see `Controller.rights`)."""
        return self._core.rights(client, api, self._denied)

    async def submit(self, request: ControllerRequest, *, timeout_ms: int) -> ControllerResponse:
        """Hands a request to the controller, and returns its answer once the request's records are committed.

        A large request is handed over in parts, one after the other (`replog.controller.request_parts`).

        Raises:
            NotControllerError: This node is not the active controller, or stopped being it before the commit; or it
                may have been replaced without knowing, and the request is one whose answer needs no commit.
            RequestTimedOutError: The records were not committed in time; they may still take effect.
            ThrottledError: Too many requests are open.
        """
        if not isinstance(request, Envelope):
            return await self._submit(request, timeout_ms)
        parts = divided(request.change, self._core.elections_needed)
        if parts is None:
            return await self._submit(request, timeout_ms)
        until_ms = self._clock.now_ms() + timeout_ms
        outcomes: list[ControllerResponse | ReplogError] = []
        for part in parts.requests:
            try:
                outcomes.append(await self._submit(replace(request, change=part), until_ms - self._clock.now_ms()))
            except ReplogError as error:
                if not outcomes:
                    raise
                outcomes.append(error)
                break
        return parts.answer(outcomes)

    async def _submit(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        if len(self._futures) >= MAX_OPEN_REQUESTS:
            raise ThrottledError(f"the controller has {MAX_OPEN_REQUESTS} open requests; try again later")
        if isinstance(request, Heartbeat) and not self._leading().holds_lease():
            # most heartbeats change nothing, so no commit would show that somebody else leads; and an answer is a
            # broker's permission to serve
            raise NotControllerError("a majority of the voters has not been heard; another node may lead by now")
        self._next_request_id += 1
        request_id = self._next_request_id
        future: asyncio.Future[ControllerResponse] = asyncio.get_running_loop().create_future()
        self._futures[request_id] = future
        deadline_ms = self._clock.now_ms() + timeout_ms
        self._driver.submit(lambda: self._step(Submit(request_id, request, deadline_ms)))
        try:
            return await future
        finally:
            self._futures.pop(request_id, None)
            del future  # what it raises has passed here: it must not be found from there

    # ---- called by the quorum, on the loop: order matters more than batching, so they step the core at once -----------

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self._step(LoadSnapshot(snapshot.snapshot_id.end_offset, tuple(snapshot.replay())))

    def on_committed(self, batch: CommittedRecords) -> None:
        self._step(batch)

    def on_control_records(self, next_offset: int) -> None:
        self._step(Skip(next_offset))

    def on_became_leader(self, epoch: int, next_offset: int) -> None:
        _log.info("active controller in epoch %d", epoch)
        self._step(Claim(epoch, next_offset))

    def on_lost_leadership(self, epoch: int) -> None:
        _log.info("no longer the active controller (epoch %d)", epoch)
        self._step(Renounce())

    def _tell_gone(self, gone: BrokerGone) -> None:
        _log.warning("broker %d (epoch %d) is gone: %s", gone.broker_id, gone.broker_epoch, gone.reason)
        self._step(gone)

    # ---- effects --------------------------------------------------------------------------------------------------------

    def _step(self, message: Message) -> None:
        self._perform(self._core.step(message, self._clock.now_ms()))
        self._driver.wake()

    def _perform(self, effects: Sequence[Effect]) -> None:
        refused: AppendRefused | None = None
        for effect in effects:
            match effect:
                case AppendRecords():
                    refused = refused or self._append(effect)  # what follows would not land where it must
                case Reply():
                    self._answer(effect.request_id, effect.response)
                case ReplyError():
                    self._answer(effect.request_id, effect.error)
                case ResignLeadership():
                    _log.error("the controller gives up epoch %d: %s", effect.epoch, effect.reason)
                    self._leading().resign(effect.epoch)
                case WatchBrokers():
                    self._watcher.watch(effect.brokers)
                case Denial():
                    self._denied(effect)
                case ChangeFailed():
                    _log.error("the controller made nothing of %s: a bug", effect.name, exc_info=effect.bug)
                case _ as unreachable:
                    assert_never(unreachable)

        if refused is not None:
            self._step(refused)

    def _denied(self, denial: Denial) -> None:
        self.denials_count += 1
        self._audit.denied(denial)

    def _append(self, effect: AppendRecords) -> AppendRefused | None:
        """Appends records; returns what the controller is told if the log does not take them, else None.

        Raises:
            InvariantViolationError: The log does not even take the end of a transaction that has begun.
        """
        try:
            self._leading().append(effect.records, epoch=effect.epoch, base_offset=effect.base_offset)
        except (AppendTooLargeError, AccumulatorFullError) as error:
            _log.error("the metadata log refuses %d records: %s", len(effect.records), error)
            if isinstance(effect.records[0], AbortTransactionRecord):
                raise InvariantViolationError(f"the metadata log takes nothing: {error}") from error
            return AppendRefused(effect.base_offset, _refusal(error))
        return None

    def _answer(self, request_id: int, outcome: ControllerResponse | Exception) -> None:
        future = self._futures.get(request_id)
        if future is None or future.done():
            return
        if isinstance(outcome, Exception):
            if isinstance(outcome, InternalError):
                _log.error("a request met a bug of ours", exc_info=outcome)
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _leading(self) -> QuorumDriver:
        if self._quorum is None:
            raise InvariantViolationError("the controller acts before its quorum is there")
        return self._quorum


def _refusal(error: AppendTooLargeError | AccumulatorFullError) -> ReplogError:
    if isinstance(error, AppendTooLargeError):
        return PolicyViolationError(
            f"the change is too large for the metadata log: {error}; ask for less in one request"
        )
    return ThrottledError(f"the metadata log is busy: {error}")
