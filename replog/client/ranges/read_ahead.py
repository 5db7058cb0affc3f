"""Reading in a thread of its own: the next Arrow batch is made while its taker (Spark, DuckDB) still works on the last one.

Python's share of a scan is a quarter of the JVM's, so this helps where there are more cores than tasks; elsewhere it costs nothing
that could be measured.  Reading the file, checksums and the socket to the JVM leave the interpreter to the other thread.

One batch is ahead, no more: what a read holds is bounded by the batch that the taker has, the one that waits and the one in the making.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

from replog.errors import BrokerClosedError
from replog.host.forks import FORKED_TEXT

T = TypeVar("T")

AHEAD = 1
"""Items that are made before they are asked for."""


class Stop:
    """Tells a thread to end, also where it waits for something: whoever waits says here what wakes it.

    Attributes:
        is_set: Whether it is to end.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._wakers: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def set(self) -> None:
        """Wakes all that wait, and all that will.  What wakes them must not wait itself."""
        with self._lock:
            self.is_set = True
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Lets `wake` be called when it is time to end; at once where it is already."""
        with self._lock:
            self._wakers.append(wake)
            is_set = self.is_set
        if is_set:
            wake()
        try:
            yield
        finally:
            with self._lock:
                self._wakers.remove(wake)


class _End:
    """Stands behind the last item.

    Attributes:
        error: What ended it early; None: nothing did.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def read_ahead(make: Callable[[Stop], Generator[T, None, None]]) -> Generator[T, None, None]:
    """Yields what `make` yields, which runs in a thread of its own; the thread has ended when this has, however it ends.

    Only where the garbage collector ends it in another thread than the one that began it, nobody waits: `make` may wait for
    just that thread.

    Args:
        make: The generator function to run.  What it waits for longer than a moment has to be woken by the `Stop` that it is given.

    Raises:
        BrokerClosedError: This process was forked from the one that began it; the thread stayed behind.
        BaseException: Whatever `make` raises, behind what it has yielded.
    """
    owner, stop, room = threading.get_ident(), Stop(), threading.Semaphore(AHEAD)
    made: SimpleQueue[T | _End] = SimpleQueue()
    thread = threading.Thread(target=_run, args=(make, stop, room, made), name="replog-read-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := _next(made, thread), _End):
            room.release()
            yield item
            del item  # or it would be held while the next one is waited for
        if item.error is not None:
            raise item.error
    finally:
        item = _End()  # the error's traceback has this frame
        try:
            stop.set()
        finally:
            room.release()
            if threading.get_ident() == owner:
                thread.join()


def _next(made: SimpleQueue[T | _End], thread: threading.Thread) -> T | _End:
    if not thread.is_alive() and made.empty():  # it makes an end before its own, so it is not of this process
        raise BrokerClosedError(FORKED_TEXT)
    return made.get()


def _run(
    make: Callable[[Stop], Generator[T, None, None]],
    stop: Stop,
    room: threading.Semaphore,
    made: SimpleQueue[T | _End],
) -> None:
    """Makes one item for each place in `room`, until it is to stop."""
    end = _End()
    items = make(stop)
    try:
        while room.acquire() and not stop.is_set:
            made.put(next(items))
    except StopIteration:
        pass
    except BaseException as error:  # noqa: BLE001 -- it is raised in the taker's thread
        end = _End(error)
    try:
        items.close()
    except BaseException as error:  # noqa: BLE001 -- the same
        end = _End(end.error or error)
    made.put(end)
