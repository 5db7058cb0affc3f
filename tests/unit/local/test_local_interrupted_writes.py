"""Ctrl-C in an append, a roll or a flush: what was acknowledged stays, and the log goes on in every thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from interrupt_kit import RAIN_OF_SIGNALS
from local_kit import child_environment, open_simulated, wait_until

from replog.local.group_flush import GroupFlush
from replog.local.write_behind import Watchers
from replog.log import FlushJob, Log
from replog.log.append_group import AppendGroup
from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import SegmentList
from replog.testing import SimulatedFileSystem

pytestmark = pytest.mark.exhaustive

STEPS: list[tuple[type, str]] = [
    (LogSegment, "write"),
    (LogSegment, "note_batch"),
    (LogSegment, "write_indexes"),
    (LogSegment, "create"),
    (LogSegment, "drop_indexes"),
    (SegmentList, "append"),
    (AppendGroup, "note_written"),
    (Log, "prepare_flush"),
    (Log, "complete_flush"),
    (FlushJob, "run"),
    (GroupFlush, "_run"),
    (GroupFlush, "_complete"),
    (Watchers, "tell_threads"),
]


def interrupt_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, *, is_after: bool) -> list[str]:
    """The next call of a method ends in KeyboardInterrupt; returns what gets an entry when that has happened."""
    original: Any = getattr(owner, name)
    happened: list[str] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if happened:
            return original(*args, **kwargs)
        if is_after:
            original(*args, **kwargs)
        happened.append(name)
        raise KeyboardInterrupt

    replacement = interrupted if not hasattr(original, "__self__") else staticmethod(interrupted)
    monkeypatch.setattr(owner, name, replacement)
    return happened


@pytest.mark.parametrize("flush", ["always", "os"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "name"), STEPS, ids=[f"{owner.__name__}.{name}" for owner, name in STEPS])
def test_an_interrupt_beside_any_step(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, flush: str, *, is_after: bool
) -> None:
    fs = SimulatedFileSystem()
    settings: dict[str, Any] = {"segment_bytes": 1024, "max_batch_bytes": 512, "flush": flush}
    log = open_simulated(fs, **settings)
    written = {log.append(b"%d" % number * 240): b"%d" % number * 240 for number in range(3)}
    happened = interrupt_once(monkeypatch, owner, name, is_after=is_after)

    def write() -> None:
        for _ in range(2):  # the second one begins a segment
            written[log.append(b"i" * 200)] = b"i" * 200
        log.flush()

    with pytest.raises(KeyboardInterrupt):
        write()
    assert happened
    small: list[int] = []
    other = threading.Thread(target=lambda: small.append(log.append(b"s")), daemon=True)
    other.start()
    other.join(20)
    assert small, "an append in another thread waits for ever"
    written |= {small[0]: b"s", log.append(b"l" * 300): b"l" * 300}
    log.flush()
    fs.kill()
    log._is_closed = True
    monkeypatch.undo()
    for _ in range(2):
        with open_simulated(fs, **settings) as again:
            found = {record.offset: record.value for record in again}
            assert list(found) == list(range(again.log_end_offset))
            assert written.items() <= found.items()


def test_who_waits_for_an_interrupted_flush_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_simulated(SimulatedFileSystem())
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(log.append(b"other")), daemon=True)

    def interrupted(_: FlushJob) -> None:
        monkeypatch.undo()
        thread.start()
        wait_until(lambda: log.log_end_offset == 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(FlushJob, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.append(b"mine")
    thread.join(20)
    assert others == [1]
    assert log.high_watermark == 2
    log.close()


def test_a_close_that_was_interrupted_can_be_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = SimulatedFileSystem()
    log = open_simulated(fs)
    log.append(b"x")
    happened = interrupt_once(monkeypatch, GroupFlush, "when_idle", is_after=False)
    with pytest.raises(KeyboardInterrupt):
        log.close()
    assert happened
    log.close()
    with open_simulated(fs) as again:
        assert again.log_end_offset == 1


RAIN = (
    RAIN_OF_SIGNALS
    + """
def append():
    number = 0
    try:
        while not over.is_set():
            value = b"other %d" % number
            acknowledged[log.append(value)] = value
            number += 1
    except BaseException as error:
        failures.append(error)

def append_once(value):
    global armed
    try:
        armed = True
        offset = log.append(value)
        armed = False
        acknowledged[offset] = value
    except Interrupted:  # more of them may come on the way here
        armed = False
        return 1
    return 0

settings = {"segment_bytes": 4096, "max_batch_bytes": 1024, "flush": sys.argv[2], "dirty_window_bytes": int(sys.argv[3])}
log = replog.open_log(sys.argv[1], **settings)
acknowledged = {}
threads = start(append, append)
number = 0
while caught < 100 and not failures:
    number += 1
    try:
        caught += append_once(b"mine %d" % number)
    except Interrupted:
        armed = False
        caught += 1
end(threads)
acknowledged[log.append(b"last")] = b"last"
log.close()
with replog.open_log(sys.argv[1], **settings) as log:
    found = {record.offset: record.value for record in log}
assert list(found) == list(range(len(found)))
assert acknowledged.items() <= found.items()
"""
)


@pytest.mark.parametrize(("flush", "window_bytes"), [("always", 0), ("os", 0), ("os", 8192)])
def test_a_rain_of_signals_on_appends(tmp_path: Path, flush: str, window_bytes: int) -> None:
    command = [sys.executable, "-W", "always", "-c", RAIN, str(tmp_path / "log"), flush, str(window_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=child_environment())
    assert (done.stderr, done.returncode) == ("", 0)
