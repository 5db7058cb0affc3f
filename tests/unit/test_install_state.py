"""tools/install.py decides from one file whether `.venv` is still what is wanted."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "tools" / "install.py"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("replog_tools_install", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "STATE_FILE", tmp_path / "state.json")
    monkeypatch.delenv("REPLOG_PURE", raising=False)
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    return module


def test_nothing_changed(install: ModuleType) -> None:
    state = install.wanted_state(None, ["test"])
    install.write_state(state)
    assert install.read_state() == state
    assert install.wanted_state(state, ["test"]) == state


def test_extras_of_earlier_commands_stay(install: ModuleType) -> None:
    demo = install.wanted_state(None, ["demo"])
    both = install.wanted_state(demo, ["test"])
    assert both.extras == ["demo", "test"]
    assert install.wanted_state(both, ["demo"]) == both


def test_included_extras_are_there_too(install: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        """
        [project]
        [project.optional-dependencies]
        cli = ["rich"]
        test = ["replog[cli]", "pytest"]
        dev = ["replog[test,cli]"]
        """,
        encoding="utf-8",
    )
    dev = install.wanted_state(None, ["dev"])
    assert dev.extras == ["cli", "dev", "test"]
    assert install.wanted_state(dev, ["test"]) == dev


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "constraints.txt", "replog/records/_scan.pyx", "replog/spark/json_decoder/_compiled_texts.pxi"],
)
def test_changed_inputs_install_again(install: ModuleType, name: str, tmp_path: Path) -> None:
    before = install.wanted_state(None, ["test"])
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("[project]  # changed", encoding="utf-8")
    assert install.wanted_state(before, ["test"]) != before


def test_pure_is_another_install(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = install.wanted_state(None, ["test"])
    monkeypatch.setenv("REPLOG_PURE", "1")
    assert install.wanted_state(before, ["test"]) != before


def test_a_moved_folder_begins_anew(install: ModuleType) -> None:
    elsewhere = dataclasses.replace(install.wanted_state(None, ["demo"]), location="/elsewhere")
    assert install.wanted_state(elsewhere, ["test"]).extras == ["test"]


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"location": 1'])
def test_a_state_that_cannot_be_read_is_none(install: ModuleType, content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "state.json").write_text(content, encoding="utf-8")
    assert install.read_state() is None
