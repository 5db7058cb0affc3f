"""The main job from the command line: its last line, and that nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.spark_classes import options_for

pytestmark = pytest.mark.cluster

COMMAND = [sys.executable, "-m", "examples.demo", "--fast"]
PATIENCE_S = 240.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo and its children put files, with a space in its name."""
    for name, value in options_for(os.environ).items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "t m p"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # ended meanwhile
        if str(folder) in line:
            found.append(line)
    return found


def assert_nothing_is_left(folder: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while processes_of(folder) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert processes_of(folder) == []
    assert [path.name for path in folder.parent.rglob("*")] == [folder.name]


@pytest.mark.spark
def test_every_record_comes_back_and_nothing_is_left(temporary: Path) -> None:
    pytest.importorskip("pyspark")
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        lines = [line.rstrip() for line in demo.stdout]
    text = "\n".join(lines)
    assert demo.wait(PATIENCE_S) == 0, text
    assert lines[-1] == (
        "33,678 acknowledged, 33,678 read by the consumer, 33,678 read by Spark, 33,678 counted by a Spark stream, "
        "0 lost, 0 duplicated; results equal"
    )
    for expected in ("kill -9 node", "new leader node", "started again", "is in every ISR again", "longest pause"):
        assert expected in text
    assert re.search(r"Spark stream: 33,678 records in [2-9] batches give 34 groups", text)
    assert "Spark: starting a session: " in text, "a step of several seconds says how it goes"
    assert_nothing_is_left(temporary)


@pytest.mark.parametrize(
    ("line", "number", "status"),
    [
        ("kill -9 node", signal.SIGTERM, 143),  # brokers, one of them just killed, under a load
        ("Python consumer:", signal.SIGINT, 130),  # brokers, and Spark with a Java that is about to start
    ],
)
def test_an_interrupted_demo_leaves_nothing(temporary: Path, line: str, number: signal.Signals, status: int) -> None:
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        while line not in (shown := demo.stdout.readline()):
            assert shown, "it ended early"
        demo.send_signal(number)
        rest = demo.stdout.read()
        assert demo.wait(PATIENCE_S) == status, rest
    assert "Traceback" not in rest
    assert_nothing_is_left(temporary)
