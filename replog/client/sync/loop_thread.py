"""An event loop for code without one: one thread for all sync clients of a process, and what these clients share.

One thread serves all of them: a second one would only take turns with it.  It starts with the first client and ends with
the last.  A forked child has none of it, and starts one of its own with its first client (see `replog.host.forks`).

A caller may be interrupted (Ctrl-C) between any two instructions.  So its thread makes no coroutine, which would be dropped
without being awaited, and waits on nothing but bare locks: `Condition`, and with it `Event`, `concurrent.futures.Future` and
`Thread.start`, is Python code, and an interrupt within leaves it as RuntimeError.  Whatever an interrupted step has left
undone the next call does.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

from replog.client.settings import refuse_unknown
from replog.errors import BrokerClosedError, InvalidRequestError
from replog.host.forks import FORKED_TEXT

if TYPE_CHECKING:
    from replog.client.admin.admin import Admin
    from replog.client.consumer.consumer import Consumer
    from replog.client.producer.producer import Producer

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
Client = TypeVar("Client", bound="Admin | Producer[Any, Any] | Consumer[Any, Any]")

_CLOSED_TEXT = "this client was closed; make a new one"


class _Call(Generic[T]):
    """One call into the loop: made and waited for in a caller's thread, carried out in the loop's.

    Args:
        work: A coroutine function, called in the loop's thread.

    Attributes:
        is_over: Whether there is an outcome.
    """

    __slots__ = ("_error", "_is_given_up", "_result", "_task", "_under_way", "_work", "is_over")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None  # only touched in the loop's thread, where its last reference goes
        self._is_given_up = False
        self.is_over = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._under_way = threading.Lock()  # free once the outcome is known
        self._under_way.acquire()

    # ---- in the caller's thread

    def wait(self, timeout_s: float | None) -> T:
        """Waits for the outcome, which it gives once.  Raises TimeoutError after `timeout_s`."""
        limit_s = -1 if timeout_s is None else min(max(0, timeout_s), threading.TIMEOUT_MAX)
        if not self._under_way.acquire(timeout=limit_s):
            raise TimeoutError(f"no outcome within {timeout_s} s")
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback has this frame
        return self._result  # type: ignore[return-value]  # None only where T is

    # ---- in the loop's thread

    def begin(self) -> None:
        """Starts the work, unless nobody waits for it any more."""
        if not self._is_given_up:
            self._task = asyncio.get_running_loop().create_task(self._carry_out())
            self._task.add_done_callback(self._end)

    def give_up(self) -> None:
        """Cancels the work: nobody waits for it."""
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()

    def refuse(self) -> None:
        """Ends the call without its work: the loop has ended, or is about to."""
        if not self.is_over:
            self._error = BrokerClosedError(_CLOSED_TEXT)
            self._tell()

    async def _carry_out(self) -> T:
        return await self._work()

    def _end(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if task.cancelled():
            self._error = BrokerClosedError("the client was closed while this call was under way")
        elif (error := task.exception()) is not None:
            self._error = error
        else:
            self._result = task.result()
        self._tell()

    def _tell(self) -> None:
        self.is_over = True
        self._under_way.release()


class LoopThread:
    """An event loop in a daemon thread of its own.  `run` may be called from any other thread."""

    _shared: ClassVar[LoopThread | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop  # made in its thread, where no interrupt comes
        self._pid = os.getpid()
        self._ident = 0  # of the thread; 0: it has not begun
        self._users: set[object] = set()
        self._calls: set[_Call[Any]] = (
            set()
        )  # which somebody waits for; what the loop leaves of them is refused at its end
        self._is_over = asyncio.Event()
        self._is_ending = False
        self._failure: Exception | None = None  # why there is no loop
        self._begun = threading.Lock()  # taken, for good, by the thread that runs the loop
        self._ready = threading.Lock()  # free once there is a loop, or `_failure`
        self._ready.acquire()
        self._running = threading.Lock()  # free once that thread has ended
        self._running.acquire()

    @classmethod
    def acquire(cls, user: object) -> LoopThread:
        """Returns the process's loop thread, started if there is none; give it back by `release`.

        Args:
            user: An object that stands for whoever uses the thread; the same one may ask again.

        Raises:
            OSError, RuntimeError: No file could be opened for the loop, or no thread be started.
        """
        with cls._lock:
            shared = cls._shared
            if shared is None or shared.is_unusable:
                shared = cls._shared = cls()
            shared._users.add(user)
            shared._start()
            return shared

    @classmethod
    def running(cls) -> LoopThread | None:
        """Returns the process's loop thread; None where no client without async is open."""
        shared = cls._shared
        return shared if shared is not None and shared.has_loop else None

    @classmethod
    def handle_fork(cls) -> None:
        """Forgets, in a forked child, the loop thread, which is not there, and the lock, which nobody there holds."""
        cls._shared = None
        cls._lock = threading.Lock()

    @property
    def is_forked(self) -> bool:
        """Whether this is a copy in a forked child; its thread stayed behind in the parent."""
        return self._pid != os.getpid()

    @property
    def has_loop(self) -> bool:
        """Whether it has been started, and is not ending."""
        return self._begun.locked() and not self.is_unusable

    @property
    def is_unusable(self) -> bool:
        """Whether it is ending, or could not be started."""
        return self._is_ending or self._failure is not None

    @classmethod
    def release(cls, user: object) -> None:
        """Undoes `acquire`, also one that was interrupted; the last user's release ends the thread and waits for its end.

        Doing it again does nothing, or what an interrupted release has left undone.
        """
        with cls._lock:
            shared = cls._shared
            if shared is not None and shared.part_from(user):
                cls._shared = None

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """Carries out `work()` in the loop and waits for its outcome.

        Args:
            work: A coroutine function, called in the loop's thread.
            timeout_s: How long to wait, seconds; None: until there is an outcome.

        Raises:
            TimeoutError: There was no outcome within `timeout_s`; the work is cancelled.
            BrokerClosedError: The thread has ended, or stayed behind in the process that this one was forked from.
            InvalidRequestError: This is the loop's own thread, as in a listener, which would wait for itself.
        """
        self._require_loop()
        self.require_outside()
        call = _Call(work)
        try:
            self._calls.add(call)
            self._soon(partial(self._begin, call))
            return call.wait(timeout_s)
        finally:
            self._calls.discard(call)
            if not call.is_over:
                with contextlib.suppress(BrokerClosedError):
                    self._soon(call.give_up)

    def post(self, step: Callable[[], None]) -> None:
        """Lets the loop take a short step, in order; waits for nothing, so it may be called from the loop's thread as well.

        Raises:
            BrokerClosedError: See `run`.
        """
        self._require_loop()
        self._soon(step)

    def require_outside(self) -> None:
        """Refuses what waits for the loop in the loop's own thread.

        Raises:
            InvalidRequestError: This is that thread, as in a listener.
        """
        if threading.get_ident() == self._ident:
            raise InvalidRequestError(
                "a client without async was called in the thread of its event loop, as a listener is, and would wait for "
                "itself for ever; a listener of a SyncConsumer calls `await consumer.in_loop.commit()` and the like"
            )

    def _require_loop(self) -> None:
        if self.is_forked or self._loop.is_closed():
            raise BrokerClosedError(FORKED_TEXT if self.is_forked else _CLOSED_TEXT)

    def _begin(self, call: _Call[Any]) -> None:
        """Starts a call, unless nobody would be left to end it.  In the loop's thread."""
        if self._is_over.is_set():
            call.refuse()
        else:
            call.begin()

    def _soon(self, step: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError as error:  # closed between two looks
            raise BrokerClosedError(_CLOSED_TEXT) from error

    def part_from(self, user: object) -> bool:
        """Ends the thread if nobody else uses it; returns whether it has ended."""
        if self._users == {user}:
            self._close()
            return True
        self._users.discard(user)
        return False

    def _close(self) -> None:
        """Stops the loop and waits for the thread.  Calling it again does nothing."""
        self._is_ending = True
        if self._failure is not None:
            return
        self._start()  # which an interrupt may have left undone
        with contextlib.suppress(BrokerClosedError):
            self._soon(self._is_over.set)
        with self._running:
            pass

    def _start(self) -> None:
        """Starts the thread, unless it runs, and waits until there is a loop."""
        if not self._begun.locked():
            _thread.start_new_thread(self._launch, ())
        with self._ready:
            pass
        if self._failure is not None:
            raise self._failure

    def _launch(self) -> None:
        """Starts the loop's thread from another one than the caller's, since `Thread.start` waits on a `Condition`."""
        try:
            threading.Thread(target=self._serve, name="replog-loop", daemon=True).start()
        except RuntimeError as error:
            if self._begun.acquire(blocking=False):
                self._failure = error
                self._ready.release()

    def _serve(self) -> None:
        if not self._begun.acquire(blocking=False):
            return  # an interrupted start was repeated
        self._ident = threading.get_ident()
        try:
            self._loop = asyncio.new_event_loop()
        except OSError as error:
            self._failure = error
            return
        finally:
            self._ready.release()
        try:
            self._loop.run_until_complete(self._live())
        finally:
            self._loop.close()
            for call in tuple(self._calls):  # posted behind the loop's last step; from here on none can be
                call.refuse()
            self._running.release()

    async def _live(self) -> None:
        await self._is_over.wait()
        await _wind_down()


os.register_at_fork(after_in_child=LoopThread.handle_fork)


async def _wind_down() -> None:
    """Cancels what somebody left running in the loop, as `asyncio.run` does at its end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def made_like(
    client: Callable[P, Client],
) -> Callable[[Callable[[S, Client], None]], Callable[Concatenate[S, P], None]]:
    """Gives a class the constructor of a client: its own is called with a client that has been made with the arguments.

    Args:
        client: The class of the client.
    """
    constructor: Any = client.__init__
    known = {"bootstrap_servers", *constructor.__kwdefaults__}

    def decorate(initialize: Callable[[S, Client], None]) -> Callable[Concatenate[S, P], None]:
        def initialize_with(self: S, /, *args: P.args, **settings: P.kwargs) -> None:
            unknown = {name: settings[name] for name in settings if name not in known}
            refuse_unknown(type(self), unknown, args[1:])
            initialize(self, client(*args, **settings))

        update_wrapper(initialize_with, constructor)  # what it shows is the signature of the client
        return initialize_with

    return decorate


class SyncClient(Generic[Client]):
    """What the sync clients have in common: a client, the thread it lives in, and an end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread: LoopThread | None = None
        self._place = object()  # among the thread's users; the thread does not keep its clients
        self._is_closed = False
        self._is_released = False  # whether nothing of the client is left in the loop

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        self._raise_if_closed()
        if self._thread is None:
            self._thread = LoopThread.acquire(self._place)
        return self._thread.run(work, timeout_s)

    def __enter__(self) -> Self:
        try:
            self._run(self._client.__aenter__)
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(lambda: self._client.__aexit__(cls, error, traceback))

    def _end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Closes by `close`; of what a fork has copied there is nothing to close."""
        if self._thread is not None:
            self._thread.require_outside()  # before anything is given back: whoever called the loop goes on
        try:
            if not (self._is_closed or self._is_copy):
                self._run(lambda: self._closing(close))
        finally:
            self._let_go()

    async def _closing(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._prepare_end()
        await close()

    def _prepare_end(self) -> None:
        """Gives back, in the loop and before the client ends, what only the client without async knows of."""

    def _let_go(self) -> None:
        """Gives everything back; doing it again does what an interrupt has left undone.

        The loop's end would cancel a release that is under way, and one that was interrupted may not have begun.
        """
        self._is_closed = True
        if self._thread is not None and not (self._is_released or self._is_copy):
            self._thread.run(self._give_back)
            self._is_released = True
        LoopThread.release(self._place)
        self._thread = None

    async def _give_back(self) -> None:
        with contextlib.suppress(Exception):  # which `close` has told
            self._prepare_end()
            await self._client._ending.wait()  # noqa: SLF001 -- a client and its facade are one

    def _raise_if_closed(self) -> None:
        """Refuses what comes after the end.

        Raises:
            BrokerClosedError: The client was closed.
        """
        if self._is_closed:
            raise BrokerClosedError(_CLOSED_TEXT)

    def _raise_if_copy(self) -> None:
        """Refuses what a fork has copied.

        Raises:
            BrokerClosedError: The client is of the process that this one was forked from.
        """
        if self._is_copy:
            raise BrokerClosedError(FORKED_TEXT)

    @property
    def _is_copy(self) -> bool:
        """Whether this is a fork's copy, of which there is nothing to give back."""
        return self._thread is not None and self._thread.is_forked

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)  # None also after an `__init__` that failed
        if thread is not None and not thread.is_forked:
            text = f"a {type(self).__name__} was never closed; use `with` or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


def without_async(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Returns a method of a client without async that does what one of its client does, with the same arguments."""

    def call(self: SyncClient[Any], /, *args: P.args, **others: P.kwargs) -> T:
        return self._run(lambda: method(self._client, *args, **others))

    update_wrapper(call, method)
    return call
