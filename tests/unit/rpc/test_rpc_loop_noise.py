"""What gRPC's queue says of a loop that has ended is kept out of the log, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from replog.rpc.grpc import transport as grpc_transport
from replog.rpc.grpc.loop_noise import is_late_completion


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
