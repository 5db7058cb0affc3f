"""One stream to one broker, kept up: open it when there is work, talk, and after a loss try again.

The producer's sender and the consumer's fetcher are both this, with different messages.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from msgspec import Struct

from replog.client.backoff import Backoff
from replog.client.cluster.view import ClusterView
from replog.client.protocol.seam import Connection, RestingStream
from replog.errors import ReplogError
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError, Stream
from replog.waiting.task_ends import end_tasks, until_one_ends

Out = TypeVar("Out")
In = TypeVar("In")

REPLY_SLOW_S = 1.0
"""A reply that takes longer makes the client ask another broker who leads: the one asked may have died silently."""

_log = logging.getLogger(__name__)


class Unanswered(Struct, frozen=True):
    """The times of a request without an answer, in seconds of the loop.

    Attributes:
        sent_s: When it was sent.
        overdue_s: From when on the broker is taken for lost.
        held_back_s: How much longer than usual the broker may hold its answer back, as the request says itself.
    """

    sent_s: float
    overdue_s: float
    held_back_s: float = 0.0


class BrokerSession(ABC, Generic[Out, In]):
    """The life of one stream.  Subclasses say what to send and what to do with what comes.

    Three tasks while the stream is up: the session itself, a writer and a reader.  None is left after `stop`.

    Args:
        view: What gives connections and hellos, and is asked to refresh after a loss.
        broker_id: The id of the broker, for the names of tasks.
        address: The address of the broker; a session never moves to another.
    """

    def __init__(self, view: ClusterView, broker_id: int, address: str) -> None:
        self.broker_id = broker_id
        self.address = address
        self._view = view
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._wake_timer: asyncio.TimerHandle | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._broken: asyncio.Future[None] | None = None
        self._resting: RestingStream | None = None
        self._task: asyncio.Task[None] | None = None

    # ---- for owners ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"replog-{type(self).__name__}-{self.broker_id}")

    async def stop(self) -> None:
        """Ends the session; replies that are still under way are not waited for."""
        await end_tasks(self._task)
        for timer in (self._wake_timer, self._watchdog):
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Tells the session that there may be something to send."""
        self._wake.set()

    def wake_at(self, when_s: float) -> None:
        """Wakes the session at `when_s` of the loop's time, or at an earlier time that is set already."""
        timer = self._wake_timer
        if timer is not None and not timer.cancelled():
            if self._loop.time() < timer.when() <= when_s:
                return
            timer.cancel()
        self._wake_timer = self._loop.call_at(when_s, self._wake.set)

    # ---- for subclasses --------------------------------------------------------------------------------------------

    @abstractmethod
    async def _open(self, connection: Connection, hello: Hello) -> Stream[Out, In]: ...

    @abstractmethod
    def _has_work(self) -> bool:
        """Whether it is worth opening a stream."""

    @abstractmethod
    def _next_message(self) -> Out | None:
        """Returns what to send now, None to wait for `wake`."""

    @abstractmethod
    def _handle_sent(self, message: Out) -> None:
        """Takes note that the transport has taken `message`."""

    @abstractmethod
    def _handle_received(self, message: In) -> None: ...

    @abstractmethod
    def _handle_lost(self, error: ReplogError) -> None:
        """Takes in that the stream could not be opened or has ended; nothing that was sent on it will be answered."""

    @abstractmethod
    def _oldest_request(self) -> Unanswered | None:
        """Returns the times of the oldest request without an answer; None where each has its own."""

    # ---- the life of the stream ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        connection = self._view.data_connection(self.address)
        backoff = Backoff(self._view.rng)
        try:
            while True:
                while not self._has_work():
                    self._wake.clear()
                    await self._wake.wait()
                error = await self._talk(connection, backoff)
                self._handle_lost(error)
                self._view.request_refresh()
                await asyncio.sleep(backoff.next_s_after(error))
        finally:
            self._handle_lost(ConnectionLostError(f"the stream to {self.address} was closed by this client"))
            await connection.close()

    async def _talk(self, connection: Connection, backoff: Backoff) -> ReplogError:
        """Opens the stream and serves it until it ends; returns why."""
        try:
            stream = await self._open(connection, self._view.hello())
        except ReplogError as error:
            return error.with_traceback(None)
        backoff.reset()
        self._broken = self._loop.create_future()
        self._resting = stream if isinstance(stream, RestingStream) else None
        try:
            await until_one_ends(self._broken, self._read(stream), self._write(stream))
        except ReplogError as error:
            return error.with_traceback(None)  # kept for texts; the frames that it passed would be kept with it
        except Exception as error:  # noqa: BLE001 -- the session goes on, whatever it was
            _log.error("a bug ended the stream to %s", self.address, exc_info=error)
            return ReplogError(f"internal error: {error!r}")
        finally:
            self._broken = self._resting = None
            await stream.close()
        return ConnectionLostError(f"the stream to {self.address} ended")

    async def _write(self, stream: Stream[Out, In]) -> None:
        while True:
            self._wake.clear()
            message = self._next_message()
            if message is None:
                await self._wake.wait()
                continue
            self._watch_replies()
            await stream.send(message)
            self._handle_sent(message)

    async def _read(self, stream: Stream[Out, In]) -> None:
        while True:
            self._handle_received(await stream.receive())
            self._wake.set()

    # ---- overdue replies -------------------------------------------------------------------------------------------

    def _watch_replies(self) -> None:
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(REPLY_SLOW_S, self._look_at_replies)

    def _look_at_replies(self) -> None:
        """Asks for newer metadata if the oldest reply is slow, and breaks the stream if it is overdue.

        Runs at least once a second while something is unanswered.  The time in which the broker is known to take nothing up, since
        this client is over its quota, counts for neither: what was sent before that was known waits as well.
        """
        self._watchdog = None
        oldest = self._oldest_request()
        if oldest is None:
            return
        now_s = self._loop.time()
        rested_s = 0.0 if self._resting is None else max(0.0, self._resting.rests_until_s - oldest.sent_s)
        overdue_s = oldest.overdue_s + rested_s
        if now_s >= overdue_s and self._broken is not None and not self._broken.done():
            silence_ms = int((now_s - oldest.sent_s) * 1000)
            self._broken.set_exception(ConnectionLostError(f"{self.address} did not answer within {silence_ms} ms"))
            return
        if now_s - oldest.sent_s >= REPLY_SLOW_S + oldest.held_back_s + rested_s:
            self._view.request_refresh()
        self._watchdog = self._loop.call_at(
            min(now_s + REPLY_SLOW_S, max(overdue_s, now_s + 0.01)), self._look_at_replies
        )
