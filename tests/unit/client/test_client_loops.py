"""Several event loops in one process: one after the other, and beside the thread of the sync clients."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from replog.client.sync import loop_thread
from replog.client.sync.loop_thread import LoopThread
from replog.errors import BrokerClosedError
from replog.rpc import grpc_transport
from replog.rpc.loop_noise import is_late_completion


class PollerCompletionQueue:
    """Named as gRPC's."""

    def __init__(self, complete: Callable[[], None]) -> None:
        self._complete = complete

    def _handle_events(self) -> None:
        self._complete()


def complete_in_a_closed_loop() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    loop.call_soon_threadsafe(print)


def fail() -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(("complete", "is_told"), [(complete_in_a_closed_loop, False), (fail, True)])
def test_only_completions_for_closed_loops_are_kept_out_of_the_log(
    complete: Callable[[], None], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert grpc_transport.MAX_MESSAGE_BYTES  # loading it sets the filter

    async def run() -> None:
        asyncio.get_running_loop().call_soon(PollerCompletionQueue(complete)._handle_events)
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(run())
    assert [is_late_completion(record) for record in caplog.records] == [False] * is_told


def test_nothing_is_printed_by_an_application_without_logging() -> None:
    code = "import logging, replog; logging.getLogger('replog.client').warning('told')"
    path = ":".join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONPATH": path}
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("moment", ["while it winds down", "behind its last step"])
def test_a_call_that_comes_as_the_loop_ends_is_refused(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = LoopThread.acquire("the only user")
    posted, errors = threading.Event(), list[BaseException]()
    post, wind_down, close = thread._soon, loop_thread._wind_down, thread._loop.close

    def call() -> None:
        try:
            thread.run(lambda: asyncio.sleep(0))
        except BrokerClosedError as error:
            errors.append(error)

    caller = threading.Thread(target=call, daemon=True)

    def note(step: Callable[[], None]) -> None:
        post(step)
        posted.set()

    def call_now() -> None:
        monkeypatch.setattr(thread, "_soon", note)
        caller.start()
        assert posted.wait(20)

    async def winding_down() -> None:
        call_now()
        await wind_down()

    def closing() -> None:
        call_now()
        close()

    if moment == "while it winds down":
        monkeypatch.setattr(loop_thread, "_wind_down", winding_down)
    else:
        monkeypatch.setattr(thread._loop, "close", closing)
    LoopThread.release("the only user")
    caller.join(20)
    assert ["closed" in str(error) for error in errors] == [True]
