"""Ctrl-C in a loop over a log: the next loop goes on with the record after the last one that was given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from interrupt_kit import RAIN_OF_SIGNALS

import replog
from replog.errors import CorruptRecordError
from replog.local import LocalLog
from replog.local.reading import ReadableLog

pytestmark = pytest.mark.exhaustive

SCRIPT = """
import os, random, signal, sys, threading
import replog

class Interrupted(KeyboardInterrupt):
    pass

count, is_armed, rng, over = 0, False, random.Random(4711), threading.Event()

def interrupt(number, frame):
    global count, is_armed
    if is_armed:
        is_armed, count = False, count + 1
        raise Interrupted

def send():
    while not over.wait(rng.uniform(0, 0.002)):
        if is_armed:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, interrupt)
log = replog.open_log(sys.argv[1], flush="os")
VALUE = b"x" * 2_000
log.append_many([VALUE] * 20_000)
threading.Thread(target=send, daemon=True).start()

def read(records, end_offset):
    global is_armed
    caught, expected = 0, 0
    next_record = records.__next__
    while expected < end_offset:
        try:
            is_armed = True
            record = next_record()
            is_armed = False
        except Interrupted:
            caught += 1
            if expected == log.high_watermark:
                log.append(VALUE)
            continue
        assert record.offset == expected, (record.offset, expected)
        expected += 1
        if expected == log.high_watermark:
            threading.Timer(0.003, log.append, (VALUE,)).start()
    return caught

caught = read(log.iterate(), 20_000) + read(log.tail(0), 20_050)
over.set()
assert caught == count > 0, (caught, count)
log.append(b"the log is as usable as before")
for thread in threading.enumerate():
    if isinstance(thread, threading.Timer):
        thread.join()
log.close()
"""


def test_signals_at_any_moment(tmp_path: Path) -> None:
    path = ":".join(path for path in sys.path if path)
    command = [sys.executable, "-W", "always", "-c", SCRIPT, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": path})
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_read_that_failed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append_many([b"0", b"1"])
        records = log.iterate()
        fetch = ReadableLog._fetch

        def interrupted(*_: object) -> bytes:
            monkeypatch.setattr(ReadableLog, "_fetch", fetch)
            raise KeyboardInterrupt

        monkeypatch.setattr(ReadableLog, "_fetch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(records)
        assert [record.value for record in records] == [b"0", b"1"]


def test_damage_is_told_each_time(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append(b"0" * 100)
    (file,) = (tmp_path / "log").glob("**/*.log")
    data = bytearray(file.read_bytes())
    with replog.open_log(tmp_path / "log") as log:
        records = log.iterate()
        data[-1] ^= 0xFF
        file.write_bytes(data)
        for _ in range(2):
            with pytest.raises(CorruptRecordError):
                next(records)


@pytest.mark.parametrize("by_next", [True, False], ids=["next", "for"])
def test_a_tail_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_next: bool) -> None:
    """While it waits, and while it reads; the last record that was given is not given again."""
    with replog.open_log(tmp_path / "log") as log:
        log.append(b"0")
        tail = log.tail(0)
        found = [next(tail).value]
        for owner, name in ((LocalLog, "wait_for"), (ReadableLog, "_fetch")):
            undone = getattr(owner, name)

            def interrupt(*_: object, owner: type = owner, undone: Any = undone, **__: object) -> None:
                monkeypatch.setattr(owner, undone.__name__, undone)
                log.append(b"%d" % log.log_end_offset)
                raise KeyboardInterrupt

            monkeypatch.setattr(owner, name, interrupt)
            if owner is ReadableLog:
                log.append(b"%d" % log.log_end_offset)
            with pytest.raises(KeyboardInterrupt):
                next(tail)
            while found[-1] != b"%d" % (log.log_end_offset - 1):
                found.append(next(tail if by_next else iter(tail)).value)
        assert found == [b"%d" % number for number in range(log.log_end_offset)]
        log.close()
        assert list(tail) == []


def test_a_tail_that_has_timed_out_has_ended(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append(b"0")
        tail = log.tail(0, timeout_s=0)
        assert [record.value for record in tail] == [b"0"]
        log.append(b"1")
        assert next(tail, None) is None


WAITER = (
    RAIN_OF_SIGNALS
    + """
def append():
    try:
        while not over.is_set():
            log.append(b"x")
    except BaseException as error:
        failures.append(error)

def wait_once():
    global armed
    try:
        armed = True
        log.wait_for(1 << 40, timeout_s=0.05)
        armed = False
    except Interrupted:  # more of them may come on the way here
        armed = False
        return 1
    return 0

log = replog.open_log(sys.argv[1], flush="os", maintenance_interval_ms=0)
threads = start(append)
for _ in range(300):
    try:
        caught += wait_once()
    except Interrupted:
        armed = False
        caught += 1
end(threads)
assert caught > 100, caught
end_offset = log.log_end_offset
last = threading.Thread(target=log.append, args=(b"last",))
last.start()
assert log.wait_for(end_offset)
last.join()
log.close()
"""
)


def test_a_rain_of_signals_neither_stalls_a_wait_nor_takes_the_lock_of_an_append(tmp_path: Path) -> None:
    path = ":".join(path for path in sys.path if path)
    command = [sys.executable, "-W", "always", "-c", WAITER, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": path})
    assert (done.stderr, done.returncode) == ("", 0)
