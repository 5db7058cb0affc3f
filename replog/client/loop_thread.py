"""An event loop for code without one: one thread for all sync clients of a process, and what these clients share.

One thread serves all of them, because gRPC's asyncio side wants one loop per process.  It starts with the first client
and ends with the last.  It does not survive a fork: start processes with "spawn" (see `replog.rpc.forks`).
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from replog.client.admin import Admin
from replog.client.consumer import Consumer
from replog.client.producer import Producer
from replog.errors import BrokerClosedError
from replog.rpc.forks import FORKED_TEXT, is_forked, raise_if_forked

T = TypeVar("T")
Client = TypeVar("Client", bound=Admin | Producer | Consumer)


class LoopThread:
    """An event loop in a daemon thread of its own.  `run` may be called from any other thread."""

    _shared: ClassVar[LoopThread | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._users_count = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="replog-loop", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> LoopThread:
        """Returns the process's loop thread, started if there is none; give it back by `release`.

        Raises:
            BrokerClosedError: this process was forked from one that had used gRPC.
        """
        raise_if_forked()
        with cls._lock:
            shared = cls._shared
            if shared is None:
                shared = cls._shared = cls()
            shared._users_count += 1
            return shared

    @classmethod
    def handle_fork(cls) -> None:
        """In a forked child there is no loop thread, and nobody who holds the lock."""
        cls._shared = None
        cls._lock = threading.Lock()

    @property
    def is_forked(self) -> bool:
        """This is a copy in a forked child; its thread stayed behind in the parent."""
        return self._pid != os.getpid()

    def release(self) -> None:
        """The last user's release ends the thread."""
        if self.is_forked:
            return
        with LoopThread._lock:
            self._users_count -= 1
            if self._users_count:
                return
            if LoopThread._shared is self:
                LoopThread._shared = None
        self.close()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs `coroutine` in the loop and waits for its outcome.

        Raises:
            TimeoutError: not within `timeout_s`; the coroutine is cancelled.
            BrokerClosedError: the thread has ended, or stayed behind in the process that this one was forked from.
        """
        if self.is_forked or self._loop.is_closed():
            coroutine.close()
            raise BrokerClosedError(FORKED_TEXT if self.is_forked else "this client was closed; make a new one")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stops the loop and waits for the thread.  Calling it again does nothing."""
        if self.is_forked or self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_wind_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


os.register_at_fork(after_in_child=LoopThread.handle_fork)


async def _wind_down() -> None:
    """Cancels what somebody left running in the loop, as `asyncio.run` does at its end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class SyncClient(Generic[Client]):
    """What the sync clients have in common: a client, the thread it lives in, and an end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread: LoopThread | None = None
        self._is_closed = False

    def _run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        if self._is_closed:
            coroutine.close()
            raise BrokerClosedError("this client was closed; make a new one")
        if self._thread is None:
            try:
                self._thread = LoopThread.acquire()
            except BaseException:
                coroutine.close()
                raise
        return self._thread.run(coroutine, timeout_s)

    def __enter__(self) -> Self:
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self._client.__aexit__(cls, error, traceback))

    def _end(self, closing: Coroutine[Any, Any, None]) -> None:
        """Closes by `closing`; of what a fork has copied there is nothing to close."""
        if self._is_closed or is_forked() or (self._thread is not None and self._thread.is_forked):
            closing.close()
            self._is_closed = True
            return
        try:
            self._run(closing)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._is_closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.release()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)  # None also after an `__init__` that failed
        if thread is not None and not thread.is_forked:
            text = f"a {type(self).__name__} was never closed; use `with` or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
