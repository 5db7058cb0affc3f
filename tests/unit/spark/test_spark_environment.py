"""What is told before Spark, which tells less: a Python without pyarrow, and neighbours that hide all data sources."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from replog.errors import ConfigError
from replog.spark import environment
from replog.spark.script_folders import ScriptFolder
from replog.spark.source import ReplogDataSource


def test_a_python_without_pyarrow_is_told_where_spark_makes_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: Spark's next process would end at its own import, and Spark say that a worker exited unexpectedly."""
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        ReplogDataSource({"bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    assert f"{sys.executable}, which Spark runs Python data sources with, has no pyarrow" in str(caught.value)
    assert "-m pip install" in str(caught.value)


def test_prepare_names_the_neighbour_that_hides_all_data_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pyspark_broken_neighbour.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "pyspark_good_neighbour.py").write_text("")
    (tmp_path / "broken_stranger.py").write_text("raise RuntimeError('never imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(environment, "_session_is_running", lambda: False)
    monkeypatch.setattr(environment, "environment_for_spark", lambda before, _directory, **_: dict(before))
    try:
        with caplog.at_level(logging.WARNING):
            environment.prepare()
    finally:
        sys.modules.pop("pyspark_good_neighbour", None)
    (told,) = caplog.messages
    assert told.startswith("package pyspark_broken_neighbour fails on import (RuntimeError: no licence)")
    assert "spark.dataSource.register(DefaultSource)" in told


def test_prepare_tells_of_a_python_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a job that was started by one that has ended, whose script is gone, says more than DATA_SOURCE_NOT_FOUND."""
    monkeypatch.setattr(environment, "_session_is_running", lambda: False)
    monkeypatch.setattr(environment, "broken_neighbours", dict)
    monkeypatch.setattr(environment, "environment_for_spark", lambda before, _directory, **_: dict(before))
    monkeypatch.setenv(environment.WORKER_PYTHON, sys.executable)
    environment.prepare()
    assert caplog.messages == []
    monkeypatch.setenv(environment.WORKER_PYTHON, str(tmp_path / "python"))
    environment.prepare()
    (told,) = caplog.messages
    assert told.startswith(f"PYSPARK_PYTHON is {tmp_path / 'python'}, which cannot be run here")


PREPARE_AND_FORK = """
import os, sys
from pathlib import Path
from replog.spark import environment

def write(before, directory, **_):
    (directory / "python").write_text("")
    return {}

environment._session_is_running = lambda: False
environment.broken_neighbours = dict
environment.environment_for_spark = write
environment.prepare()
if os.fork() == 0:
    sys.exit()
os.wait()
print(len(list(Path(sys.argv[1]).glob("replog-spark-*/python"))), flush=True)
if "killed" in sys.argv:
    os.kill(os.getpid(), 9)
"""


def prepare_and_fork(*arguments: str | Path) -> str:
    """What a process prints that prepares, and whose fork ends before it."""
    done = subprocess.run(
        [sys.executable, "-c", PREPARE_AND_FORK, *arguments],
        env={"TMPDIR": str(arguments[0])},
        capture_output=True,
        text=True,
        check="killed" not in arguments,
    )
    return done.stdout


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path: Path) -> None:
    assert prepare_and_fork(tmp_path, "killed") == "1\n"
    (left,) = tmp_path.glob("replog-spark-*")
    held = ScriptFolder(tmp_path)
    assert not left.exists()
    assert prepare_and_fork(tmp_path) == "1\n"
    assert list(tmp_path.iterdir()) == [held.path], "its process lives"
    held.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_scripts_outlive_a_fork_and_not_their_process(tmp_path: Path) -> None:
    """Goal: a server that prepares, and then forks its workers, does not lose its Python when the first of them ends."""
    assert prepare_and_fork(tmp_path) == "1\n"
    assert list(tmp_path.iterdir()) == []
