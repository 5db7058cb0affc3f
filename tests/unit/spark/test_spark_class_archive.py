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


def test_each_copy_of_the_same_spark_has_the_same_archive(
    tmp_path: Path, java: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive for a path in one copy of the repository was made anew in each of them, or never where each is tested once."""
    found = []
    for number, text in enumerate(("classes", "classes", "more classes")):
        jars = tmp_path / f"copy-{number}" / "jars"
        jars.mkdir(parents=True)
        (jars / "spark.jar").write_text(text)
        monkeypatch.setattr(spark_classes, "_installed", lambda spark=jars.parent: spark)
        found.append(spark_classes._identity(java))
    assert found[0] == found[1] != found[2]


def test_a_spark_that_is_chosen_goes_without(monkeypatch: pytest.MonkeyPatch, java: dict[str, str]) -> None:
    monkeypatch.setattr(spark_classes, "archive_for", lambda *_: Path("/cache/seen.jsa"))
    assert spark_classes.options_for({**java, "SPARK_HOME": "/opt/spark"}) == {}
    assert spark_classes.options_for(java)["SPARK_HOME"] == "/cache/seen"


def test_without_java_there_is_none(tmp_path: Path) -> None:
    assert spark_classes.archive_for({"JAVA_HOME": str(tmp_path)}, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
