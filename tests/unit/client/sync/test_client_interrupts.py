"""Ctrl-C in the sync clients: one KeyboardInterrupt for each signal, at the caller, and nothing else anywhere."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster

from replog.client import SyncAdmin, SyncProducer

SCRIPT = Path(__file__).parents[1] / "interrupted_clients.py"
INTERRUPTS_OF_EACH_USE = 100


@pytest.mark.parametrize("seed", range(2))
def test_signals_at_any_moment(seed: int) -> None:
    path = ":".join(path for path in (str(SCRIPT.parent), *sys.path) if path)
    command = [sys.executable, "-W", "always", str(SCRIPT), str(seed), str(INTERRUPTS_OF_EACH_USE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={"PYTHONPATH": path})
    assert (done.stderr, done.returncode) == ("", 0)
    assert int(done.stdout) >= 4 * INTERRUPTS_OF_EACH_USE


@pytest.mark.parametrize("has_company", [False, True])
def test_a_close_that_waits_and_is_interrupted_leaves_nothing(has_company: bool) -> None:
    """Also where the loop's thread goes on for another client."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    theirs: Any = cluster.transport()
    ours: Any = cluster.transport()
    with contextlib.ExitStack() as company:
        if has_company:
            company.enter_context(SyncAdmin(cluster.bootstrap, transport=theirs))
        producer = SyncProducer(cluster.bootstrap, transport=ours)
        cluster.nodes[1].hold_replies = True
        delivery = producer.send("t", b"x")
        interrupter = threading.Thread(target=interrupt_flush, args=(producer,))
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        interrupter.join()
        assert not ours.open_connections
        assert delivery.done(), "it failed: nobody can tell any more whether it is in the log"
        producer.close()


def interrupt_flush(producer: SyncProducer) -> None:
    """Presses Ctrl-C once the main thread waits for acknowledgements."""
    while not producer._client._accumulator.is_flushing:
        threading.Event().wait(0.001)
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)
