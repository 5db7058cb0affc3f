"""Which files a process of a run imports before it collects: its share of them, and nothing that pytest would pass over."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.collecting import files_of_tests, import_share, share_of


def test_each_file_is_in_one_share() -> None:
    files = [Path(f"test_{number}.py") for number in range(7)]
    shares = [share_of(files, worker, 3) for worker in range(3)]
    assert sorted(path for share in shares for path in share) == files
    assert {len(share) for share in shares} == {2, 3}


def test_folders_that_are_passed_over_are_in_no_share_unless_they_are_named(tmp_path: Path) -> None:
    for name in "unit", "deploy":
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / "test_a.py").write_text("")
    config: Any = SimpleNamespace(
        getini={"norecursedirs": ["tests/deploy"]}.get, invocation_params=SimpleNamespace(dir=tmp_path), args=["tests"]
    )
    assert files_of_tests(config) == [tmp_path / "tests/unit/test_a.py"]
    config.args = ["tests/deploy", "tests/unit/test_a.py::test_it"]
    assert files_of_tests(config) == [tmp_path / "tests/deploy/test_a.py", tmp_path / "tests/unit/test_a.py"]


def test_a_share_is_imported_up_to_its_end_whatever_a_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    names = [f"test_collecting_{name}" for name in ("fails", "skips", "works")]
    for name, text in zip(names, ("1 / 0", "import pytest; pytest.importorskip('no_such')", ""), strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(request.config, "args", [str(tmp_path)])
    monkeypatch.setattr(request.config, "workerinput", {"workerid": "gw0", "workercount": 1}, raising=False)
    import_share(request.session)
    assert [name for name in names if sys.modules.pop(name, None)] == names[2:]
