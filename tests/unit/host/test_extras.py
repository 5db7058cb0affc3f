"""The command that an error names for a missing library."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from replog.host import extras
from replog.host.extras import install_command, required_by

DECLARED = [
    "grpcio<2,>=1.84",
    'typer<1,>=0.15; extra == "cli"',
    "pyspark>=4.2; extra == 'spark'",
    'replog[cli,spark]; extra == "demo"',
    'pandas>=2.2; python_version > "3" and extra == "demo"',
    'typer<1,>=0.15; extra == "bench"',
    'replog[bench, demo]; extra == "all"',
]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("cli", ["typer<1,>=0.15"]),
        ("demo", ["typer<1,>=0.15", "pyspark>=4.2", "pandas>=2.2"]),
        ("all", ["typer<1,>=0.15", "pyspark>=4.2", "pandas>=2.2"]),
        ("nonsense", []),
    ],
)
def test_an_extra_with_those_that_it_includes(extra: str, expected: list[str]) -> None:
    assert required_by(extra, DECLARED) == expected


def test_the_command_is_for_this_interpreter_and_names_no_project_of_ours() -> None:
    words = shlex.split(install_command("arrow"))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert [word.startswith("pyarrow>=") for word in words[4:]] == [True]


def test_every_extra_of_the_project_has_a_command() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in project["optional-dependencies"]:
        assert "replog" not in install_command(extra).removeprefix(sys.executable).removeprefix(
            shlex.quote(sys.executable)
        )


def test_without_metadata_the_extra_itself_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_declared", list)
    assert install_command("arrow").endswith("pip install 'replog[arrow]'")
