"""When the archive of Spark's classes is made: it costs more than one run gains."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.spark import spark_classes


@pytest.fixture
def java(tmp_path: Path) -> dict[str, str]:
    """Variables with a Java of our own, which is never started."""
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(tmp_path / "home")}


def test_the_second_run_in_a_folder_makes_it(
    tmp_path: Path, java: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    made = []

    def make(archive: Path, _environment: Mapping[str, str]) -> None:
        made.append(archive)
        archive.touch()

    monkeypatch.setattr(spark_classes, "_make", make)
    assert [spark_classes.archive_for(java, tmp_path) for _ in range(2)] == [None, None]
    monkeypatch.setattr(spark_classes, "run_id", lambda: "the next run")
    second, third = (spark_classes.archive_for(java, tmp_path) for _ in range(2))
    assert made == [second]
    assert third == second
    os.utime(tmp_path / "home" / "bin" / "java", (1, 1))  # another Java is installed
    assert spark_classes.archive_for(java, tmp_path) is None


def test_without_java_there_is_none(tmp_path: Path) -> None:
    assert spark_classes.archive_for({"JAVA_HOME": str(tmp_path)}, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
