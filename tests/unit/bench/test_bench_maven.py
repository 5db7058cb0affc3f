"""Jars and classes of Java peers in the cache: complete or not there, with the reason, by a Maven and a compiler that are shell scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.systems import maven
from bench.systems.maven import PeerUnavailableError, class_path

MVN = 'for last; do :; done; folder="${last#-DoutputDirectory=}"; mkdir -p "$folder"; : > "$folder/a.jar"'
JAVAC = 'while [ "$1" != -d ]; do shift; done; mkdir -p "$2"; : > "$2/Peer.class"; echo once >> "$COMPILED"'


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for programs in front of the PATH, and an empty cache."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COMPILED", str(tmp_path / "compiled"))
    forget()
    yield programs
    forget()


def forget() -> None:
    maven.jars.cache_clear()
    class_path.cache_clear()


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_classes_are_compiled_once_and_stand_before_the_jars(tools: Path, tmp_path: Path) -> None:
    program(tools, "mvn", MVN)
    program(tools, "javac", JAVAC)
    first = class_path("kafka", "peer")
    forget()
    assert class_path("kafka", "peer") == first
    classes, jar = map(Path, first.split(":"))
    assert (classes / "Peer.class").is_file()
    assert jar.name == "a.jar"
    assert jar.is_file()
    assert (tmp_path / "compiled").read_text() == "once\n"


@pytest.mark.parametrize(
    ("maven_script", "compiler_script", "says"),
    [
        ("echo no network; exit 1", JAVAC, "mvn cannot make kafka-pom.xml: no network"),
        (MVN, "echo 'cannot find symbol' >&2; exit 1", "javac cannot make peer: cannot find symbol"),
    ],
)
def test_a_tool_that_fails_leaves_nothing_and_says_why(
    maven_script: str, compiler_script: str, says: str, tools: Path, tmp_path: Path
) -> None:
    program(tools, "mvn", maven_script)
    program(tools, "javac", compiler_script)
    with pytest.raises(PeerUnavailableError, match=says):
        class_path("kafka", "peer")
    assert not [
        path for path in tmp_path.glob("cache/replog-bench/*") if "classes" in path.name or "making" in path.name
    ]
