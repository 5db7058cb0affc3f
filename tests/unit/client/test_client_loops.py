"""The loop of the sync clients as it ends, and what an application sees that has set up no logging."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from replog.client.sync import loop_thread
from replog.client.sync.loop_thread import LoopThread
from replog.errors import BrokerClosedError


@pytest.mark.parametrize("moment", ["while it winds down", "behind its last step"])
def test_a_call_that_comes_as_the_loop_ends_is_refused(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopThread, "_shared", None)  # another test may hold the process's own
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
