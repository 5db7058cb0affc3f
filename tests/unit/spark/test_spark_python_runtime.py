"""Which Python Spark starts, and on which path that looks for modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from replog.errors import ConfigError
from replog.spark import environment, python_runtime
from replog.spark.environment import WORKER_PYTHON, environment_for_spark
from replog.spark.python_runtime import python_for_spark, unneeded_zips

PYTHON = os.path.realpath(sys.executable)
"""An interpreter whose path is one word, whatever this checkout is called."""

SHOW = "import json, os, sys; print(json.dumps([os.environ.get('PYTHONPATH'), sys.argv[1:]]))"


def start(python: str, path: str | None) -> tuple[str | None, list[str]]:
    """What a process started by `python` sees of its path and of its arguments."""
    given = {} if path is None else {"PYTHONPATH": path}
    done = subprocess.run([python, "-c", SHOW, "a b", "*"], env=given, capture_output=True, text=True, check=True)
    seen, arguments = json.loads(done.stdout)
    return seen, arguments


def test_a_python_with_a_plain_name_needs_no_script(tmp_path: Path) -> None:
    assert python_for_spark(PYTHON, tmp_path / "python") == PYTHON
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/s/pyspark.zip:/s/py4j.zip:/ours", "/ours"),
        ("/ours:/s/pyspark.zip:/an other/*:/s/pyspark.zip", "/ours:/an other/*"),
        ("/elsewhere/pyspark.zip", "/elsewhere/pyspark.zip"),
        ("/s/pyspark.zip", ""),
        (None, ""),
        (":/s/pyspark.zip::/ours:", ".:.:/ours:."),
        ("/s/pyspark.zip:", "."),
    ],
)
def test_zips_are_taken_from_the_path_and_nothing_else(path: str | None, seen: str, tmp_path: Path) -> None:
    zips = [Path("/s/pyspark.zip"), Path("/s/py4j.zip")]
    script = python_for_spark(sys.executable, tmp_path / "python", without=zips)
    assert start(script, path) == (seen, ["a b", "*"])


def test_names_with_spaces_and_quotes(tmp_path: Path) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    zips = [folder / "pyspark.zip"]
    script = python_for_spark(str(folder / "python"), tmp_path / "python", without=zips)
    assert start(script, f"{zips[0]}:/ours") == ("/ours", ["a b", "*"])
    plain = python_for_spark(str(folder / "python"), tmp_path / "plain")
    assert start(plain, f"{zips[0]}:/ours") == (f"{zips[0]}:/ours", ["a b", "*"])


@pytest.mark.parametrize("name", ["a b", "r&d", "(old)", "$HOME", "it's"])
def test_a_python_that_a_shell_takes_for_something_else_gets_a_script(name: str, tmp_path: Path) -> None:
    assert python_for_spark(f"/{name}/python", tmp_path / "python") == str(tmp_path / "python")


@pytest.mark.parametrize("name", ["a b", "r&d"])
def test_a_script_that_spark_could_not_find_takes_no_place(name: str, tmp_path: Path) -> None:
    script = tmp_path / name / "python"
    assert python_for_spark(PYTHON, script, without=[Path("/s/pyspark.zip")]) == PYTHON
    assert not script.exists()


def test_a_script_that_nobody_may_run_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a temporary folder that is mounted with `noexec` costs the faster start, not the session."""
    monkeypatch.setattr("os.access", lambda *_: False)
    assert python_for_spark(PYTHON, tmp_path / "python", without=[Path("/s/pyspark.zip")]) == PYTHON
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "r&d"])
def test_between_two_folders_with_such_names_the_script_is_in_memory(name: str, tmp_path: Path) -> None:
    """Example: a checkout in `my projects`, and a TMPDIR with a space."""
    folder = tmp_path / name
    folder.mkdir()
    python = folder / "python"
    python.symlink_to(sys.executable)
    script = python_for_spark(str(python), folder / "script", without=[Path("/s/pyspark.zip")])
    assert list(folder.iterdir()) == [python]
    assert start(script, "/s/pyspark.zip:/ours") == ("/ours", ["a b", "*"])


def test_where_no_script_can_be_started_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ConfigError, match=r"does not take /a b/python for one word.* Set TMPDIR"):
        python_for_spark("/a b/python", tmp_path / "python")
    assert list(tmp_path.iterdir()) == []


def test_the_zips_of_the_installed_pyspark_are_found() -> None:
    pytest.importorskip("pyspark")
    names = [each.name for each in unneeded_zips()]
    assert "pyspark.zip" in names
    assert any(name.startswith("py4j-") for name in names)


def test_without_an_installed_folder_the_zips_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_runtime, "find_spec", lambda _: None)
    assert list(unneeded_zips()) == []
    assert python_for_spark(PYTHON, tmp_path / "python", without=unneeded_zips()) == PYTHON


def test_what_others_have_set_stays_and_other_machines_get_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "with_java", lambda given, _: dict(given))
    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setattr(environment, "unneeded_zips", lambda: [Path("/s/pyspark.zip")])
    assert environment_for_spark({WORKER_PYTHON: "/mine"}, tmp_path, is_local=True)[WORKER_PYTHON] == "/mine"
    assert environment_for_spark({}, tmp_path)[WORKER_PYTHON] == PYTHON
    assert environment_for_spark({}, tmp_path, is_local=True)[WORKER_PYTHON] == str(tmp_path / "python")
