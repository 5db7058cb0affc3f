"""Ctrl-C ends every command soon and without a traceback, also one whose brokers accept connections and say nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest
from cli_kit import Replog

from replog.cli.common import run
from replog.cli.terminal import interrupts

WAITING = [
    "status",
    "status --watch",
    "topics list",
    "topics create t",
    "topics describe",
    "topics delete t",
    "topics delete-records t-0=1",
    "topics alter t --partitions 3",
    "topics elect-leaders",
    "topics reassign --generate",
    "brokers list",
    "brokers drain 1",
    "brokers unregister 1",
    "configs get",
    "configs describe --node 1",
    "configs set num.partitions=2",
    "quorum describe",
    "quorum add-voter 1",
    "quorum remove-voter 1",
    "log-dirs describe",
    "log-dirs move t 0 --broker 1 --to /d",
    "partition describe t-0",
    "produce t",
    "consume t",
    "consume t --follow",
]


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """Accepts connections and never answers; with the first one that is not hung up at once, somebody presses Ctrl-C."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []

        def serve() -> None:
            was_pressed = False
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:
                    return  # the test is over
                if not was_pressed and accepted[-1].recv(1):
                    was_pressed = True  # a second one would end the process at once
                    os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in accepted:
            connection.close()


@pytest.mark.parametrize("line", WAITING)
def test_ctrl_c_ends_a_command_that_waits_for_brokers(
    replog: Replog, silent_broker: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "end_now", lambda: None)  # the machine may be slow; what never ends does not pass
    done = replog(*line.split(), "--bootstrap-servers", silent_broker)
    assert (done.status, done.err) == (interrupts.INTERRUPTED, "")


def test_work_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    ended = threading.Event()
    monkeypatch.setattr(interrupts, "end_now", ended.set)

    async def stubborn() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            await asyncio.to_thread(ended.wait)

    with pytest.raises(KeyboardInterrupt):
        run(stubborn(), grace_s=0.01)
    assert ended.is_set()
    assert signal.getsignal(signal.SIGINT) is before
