"""Tests that are marked `campaign` run where they are asked for, and where what they are made of has changed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.campaign import marks, proven
from tests.campaign.marks import CampaignMarks


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with two files of tests: one imports a neighbour and a module and runs a program, the other nothing."""
    (tmp_path / "tests" / "sim" / "java").mkdir(parents=True)
    (tmp_path / "bench").mkdir()
    for name, text in {
        "tests/sim/test_a.py": f"from near import x\nfrom tests.sim import far\nfrom bench.speed import y\n\npytestmark = pytest.{proven.MARK}\n",
        "tests/sim/test_b.py": "import os\n",
        "tests/sim/near.py": "from tests.sim.farther import (\n    y,\n)\n",
        "tests/sim/far.py": "",
        "bench/speed.py": "",
        "tests/sim/farther.py": "",
        "tests/sim/other.py": "",
        "tests/sim/conftest.py": "import shared\n",
        "tests/sim/shared.py": "",
        "tests/sim/java/Program.java": "",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *(f"{name}.py" for name in ("test_a", "near", "far", "farther", "conftest", "shared")),
        "java/Program.java",
        "../../bench/speed.py",
    ],
)
def test_a_file_is_proven_until_something_that_it_is_made_of_changes(root: Path, name: str) -> None:
    file, kept = "tests/sim/test_a.py", root / "proven.json"
    assert proven.campaign_files(root) == [file]
    assert not proven.is_proven(file, root, kept)
    proven.keep([file], root, kept)
    assert proven.is_proven(file, root, kept)
    (root / "tests/sim/other.py").write_text("changed = True\n")
    assert proven.is_proven(file, root, kept)
    with (root / "tests/sim" / name).open("a") as changed:
        changed.write("changed = True\n")
    assert not proven.is_proven(file, root, kept)


def test_a_file_that_is_gone_is_forgotten(root: Path) -> None:
    kept = root / "proven.json"
    proven.keep(["tests/sim/test_a.py", "tests/sim/test_b.py"], root, kept)
    (root / "tests/sim/test_b.py").unlink()
    proven.keep([], root, kept)
    assert "test_b" not in kept.read_text()
    assert proven.is_proven("tests/sim/test_a.py", root, kept)


MARKED, PLAIN = "tests/sim/test_a.py::test_it[a lock]", "tests/sim/test_b.py::test_it"


def left(monkeypatch: pytest.MonkeyPatch, *arguments: str, mark: str = "", is_proven: bool = True) -> list[str]:
    """Returns the tests that run of a marked one and a plain one."""
    monkeypatch.setattr(proven, "is_proven", lambda _: is_proven)
    items: Any = [
        SimpleNamespace(
            nodeid=nodeid,
            path=proven.ROOT / nodeid.partition("::")[0],
            get_closest_marker=lambda name, nodeid=nodeid: nodeid == MARKED and name == "campaign",
        )
        for nodeid in (MARKED, PLAIN)
    ]
    deselected: list[Any] = []

    def pytest_deselected(items: list[Any]) -> None:
        deselected.extend(items)

    config: Any = SimpleNamespace(
        option=SimpleNamespace(markexpr=mark),
        args=list(arguments),
        hook=SimpleNamespace(pytest_deselected=pytest_deselected),
    )
    CampaignMarks().pytest_collection_modifyitems(config, items)
    assert {item.nodeid for item in [*items, *deselected]} == {MARKED, PLAIN}
    return [item.nodeid for item in items]


def test_what_is_proven_runs_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert left(monkeypatch) == [PLAIN]
    assert left(monkeypatch, mark="kafka") == [PLAIN]
    assert left(monkeypatch, mark="campaign") == [MARKED, PLAIN]
    monkeypatch.chdir(proven.ROOT)
    assert left(monkeypatch, "tests", "tests/sim") == [PLAIN]
    assert left(monkeypatch, "tests/sim/test_a.py") == [MARKED, PLAIN]
    assert left(monkeypatch, "tests/sim/test_a.py::test_it") == [MARKED, PLAIN]
    assert left(monkeypatch, "tests/sim/test_a.py::test_other") == [PLAIN]
    monkeypatch.chdir(proven.ROOT / "tests")
    assert left(monkeypatch, "sim/test_a.py") == [MARKED, PLAIN]


def test_what_has_changed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert left(monkeypatch, is_proven=False) == [MARKED, PLAIN]


def test_the_header_says_what_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proven, "campaign_files", lambda: ["tests/sim/test_a.py", "tests/sim/test_b.py"])
    monkeypatch.setattr(proven, "is_proven", lambda file: file.endswith("a.py"))
    said = CampaignMarks().pytest_report_header()
    assert "of 1 files run in `make campaign` only; these have changed" in said
    assert said.endswith(" tests/sim/test_b.py")


def test_stale_seeds_are_told_at_the_end() -> None:
    written: list[str] = []
    reports = [SimpleNamespace(user_properties=[(marks.STALE, "make it anew"), ("other", "no")])]
    reporter: Any = SimpleNamespace(stats={"passed": reports}, section=written.append, write_line=written.append)
    CampaignMarks().pytest_terminal_summary(reporter)
    assert written == [marks.STALE, "make it anew"]
