"""`python -m bench guard`: turns, what fails, exit status, and an end that leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from guard_kit import commit, make_repository, write_product

from bench import cli, harness
from bench.guard import command, trees, turns, worker
from bench.guard.lines import LINES, Line, Setting
from bench.guard.table import judge
from bench.guard.trees import Tree
from bench.guard.turns import Plan, Samples
from bench.model import WrongResultError
from bench.systems.replog_brokers import ReplogBrokers

DEADLINE_S = 60.0
BASE, CANDIDATE = Tree("base", Path("/base")), Tree("candidate", Path("/candidate"))

Told = Callable[[str, str], dict[str, Any]]
"""What a process of a tree (by its folder's name) tells of a line."""


def answer_with(monkeypatch: pytest.MonkeyPatch, told: Told) -> list[tuple[str, list[str]]]:
    """Has no process started; returns those that would have been: the tree, and the lines."""
    started: list[tuple[str, list[str]]] = []

    def run(*arguments: str, cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        names = list(arguments[3 : arguments.index("--output")])
        started.append((cwd.name, names))
        found = [{"line": name} | told(cwd.name, name) for name in names]
        text = "".join(json.dumps(each) + "\n" for each in found if "dies" not in each)
        Path(arguments[arguments.index("--output") + 1]).write_text(text, encoding="utf-8")
        return subprocess.CompletedProcess(arguments, 0 if len(text) else 139, "", "Traceback\nSegmentation fault\n")

    monkeypatch.setattr(turns, "run_whole", run)
    return started


def fine(_tree: str, _name: str) -> dict[str, Any]:
    return {"values": {"figure": [100.0, "1/s"], "cpu": [2.0, "s/GB"]}}


def measure(tmp_path: Path, *names: str, rounds: int = 3) -> dict[str, Samples]:
    plan = Plan(names, rounds, 1.0, tmp_path)
    steps: list[str] = []
    found = turns.run(plan, BASE, CANDIDATE, steps.append)
    assert len(steps) == plan.steps_count()
    assert list(tmp_path.iterdir()) == []
    return found


def test_trees_take_turns_and_none_is_always_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = answer_with(monkeypatch, fine)
    found = measure(tmp_path, "import")
    assert [tree for tree, _ in started] == ["base", "candidate", "candidate", "base", "base", "candidate"]
    assert found["import"].figure == ([100.0] * 3, [100.0] * 3)
    assert found["import"].units == ("1/s", "s/GB")


def test_lines_at_brokers_share_a_process_and_others_have_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = answer_with(monkeypatch, fine)
    measure(tmp_path, "send", "import", "acknowledge", "codec-decode", rounds=1)
    assert [names for tree, names in started if tree == "base"] == [
        ["import"],
        ["codec-decode"],
        ["send", "acknowledge"],
    ]


def test_a_line_that_fails_in_one_tree_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(tree: str, name: str) -> dict[str, Any]:
        return {"error": "ImportError: no name"} if (tree, name) == ("base", "send") else fine(tree, name)

    started = answer_with(monkeypatch, told)
    found = measure(tmp_path, "send", "acknowledge")
    assert found["send"].failures == {"base": "ImportError: no name"}
    assert [names for _, names in started] == [["send", "acknowledge"], *[["acknowledge"]] * 5]
    judged = [judge(name, samples) for name, samples in found.items()]
    assert [line.verdict for line in judged] == ["cannot run", "cannot tell"]
    assert command.exit_status(judged, "candidate") == 0


def test_a_process_that_ends_early_says_how_and_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = answer_with(monkeypatch, lambda tree, name: {"dies": True} if tree == "candidate" else fine(tree, name))
    found = measure(tmp_path, "import")
    assert found["import"].failures == {"candidate": "the process ended with exit code 139: Segmentation fault"}
    assert len(started) == 2


def status_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: Told) -> int:
    answer_with(monkeypatch, told)
    found = measure(tmp_path, "import", "send", rounds=8)
    return command.exit_status([judge(name, samples) for name, samples in found.items()], "candidate")


@pytest.mark.parametrize(
    ("told", "status"),
    [
        (fine, 0),
        (lambda tree, name: fine(tree, name) if tree == "base" else {"error": "broken"}, 125),
        (lambda tree, name: fine(tree, name) if (tree, name) != ("candidate", "send") else {"error": "broken"}, 1),
        (lambda tree, name: fine(tree, name) if (tree, name) != ("base", "send") else {"error": "broken"}, 0),
        (
            lambda tree, name: {
                "values": {
                    "figure": [100.0, "1/s"],
                    "cpu": [2.0 if (tree, name) != ("candidate", "send") else 3.0, "s"],
                }
            },
            1,
        ),
    ],
    ids=["the same", "nothing compared", "a line is lost", "a line is new", "one costs more"],
)
def test_exit_status(told: Told, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status_of(monkeypatch, tmp_path, told) == status


@pytest.mark.parametrize("line", LINES.values(), ids=lambda line: line.name)
def test_a_line_is_one_case_of_a_scenario(line: Line) -> None:
    scenario = line.make(Setting(0.001, ReplogBrokers))
    assert line.system in [system.name for system in scenario.systems()]
    assert len(harness.cases_with(scenario, tuple(line.only.items()))) == 1


def test_a_line_that_raises_is_told_and_the_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(line: Line, *_: object) -> dict[str, Any]:
        if line.name == "codec-encode":
            raise ExceptionGroup("several tasks", [ExceptionGroup("one", [WrongResultError("a record is lost")])])
        return {"figure": [1.0, "1/s"], "cpu": [1.0, "s"]}

    monkeypatch.setattr(worker, "measure", measure)
    monkeypatch.setattr(worker, "_tune_memory", lambda: None)
    output = tmp_path / "found.jsonl"
    worker.main(["codec-encode", "codec-decode", "--output", str(output), "--directory", str(tmp_path)])
    assert [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()] == [
        {"line": "codec-encode", "error": "WrongResultError: a record is lost"},
        {"line": "codec-decode", "values": {"figure": [1.0, "1/s"], "cpu": [1.0, "s"]}},
    ]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_repository(tmp_path / "a folder" / "repository")
    monkeypatch.setattr(trees, "ROOT", root)
    monkeypatch.setenv("REPLOG_PURE", "1")
    (tmp_path / "measured here").mkdir()
    return root


def guard(tmp_path: Path, *arguments: str) -> int:
    directory = tmp_path / "measured here"
    status = cli.main(["guard", "--directory", str(directory), "--only", "import", *arguments])
    assert list(directory.iterdir()) == []
    return status


def test_a_working_tree_that_is_slower_is_worse(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_product(repository, speed=0.5)
    assert guard(tmp_path, "HEAD", "--rounds", "8", "--json", str(tmp_path / "out.json")) == 1
    header, _, rate, cpu, *_ = capsys.readouterr().out.splitlines()
    assert header.split("|")[1].strip() == "line"
    assert [cell.strip() for cell in rate.split("|")][-4:] == ["0.500", "0.50 to 0.50", "worse", ""]
    assert [cell.strip() for cell in cpu.split("|")][-4:-2] == ["2.000", "2.00 to 2.00"]
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["lines"][0]["verdict"] == "worse"
    assert document["lines"][0]["figures"][0]["candidate"] == [0.5] * 8
    assert document["lines"][0]["figures"][0]["ratio"] == pytest.approx({"middle": 0.5, "low": 0.5, "high": 0.5})


def test_two_commits_are_compared_whatever_the_working_tree_is(repository: Path, tmp_path: Path) -> None:
    write_product(repository, speed=2)
    commit(repository)
    write_product(repository, speed=0.001)
    assert guard(tmp_path, "HEAD~", "HEAD", "--rounds", "8") == 1, "took_ms is a time: twice as much is worse"
    assert guard(tmp_path, "HEAD", "HEAD", "--rounds", "8") == 0


def test_a_line_that_no_tree_can_run_is_told_for_a_bisection_to_go_on(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_product(repository, lacks=("import",))
    assert guard(tmp_path, "HEAD", "--rounds", "1") == 125
    assert "import cannot run in" in capsys.readouterr().out


def test_a_commit_that_is_not_there_ends_a_bisection(repository: Path, tmp_path: Path) -> None:
    assert guard(tmp_path, "no-such") == 128


def test_a_tree_that_cannot_be_built_is_left_out_by_a_bisection(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "pyproject.toml").write_text("[broken", encoding="utf-8")
    monkeypatch.delenv("REPLOG_PURE")
    assert guard(tmp_path, "HEAD") == 125


SCRIPT = """
import sys
from pathlib import Path
from bench import cli
from bench.guard import trees

trees.ROOT = Path(sys.argv[1])
sys.exit(cli.main(["guard", "HEAD", "--only", "import", "--directory", sys.argv[2]]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_process_and_no_file(repository: Path, tmp_path: Path, number: signal.Signals) -> None:
    hangs, directory = tmp_path / "hangs", tmp_path / "measured here"
    write_product(repository, hangs=str(hangs))
    commit(repository)
    arguments = [sys.executable, "-c", SCRIPT, str(repository), str(directory)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        pids = wait_for_text(hangs, process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == "interrupted"
    assert list(directory.iterdir()) == []
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))


def wait_for_text(file: Path, process: subprocess.Popen[str]) -> list[int]:
    wait_until(lambda: process.poll() is not None or (file.exists() and len(file.read_text().split()) == 2))
    assert process.poll() is None
    return [int(pid) for pid in file.read_text(encoding="utf-8").split()]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
