"""What a run says about where its time went: numbers of several processes, and tests over their budget."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import short_lived_java
from tests.report_bytes import BYTES
from tests.run_costs import FORK, WORKER_OUTPUT, Costs, Processes
from tests.run_report import Budgets, RunReport

ROOT = Path(__file__).parents[2]
BURN = "import time\nwhile time.process_time() < 0.2: pass\n"


@pytest.fixture(scope="module")
def processes() -> Processes:
    """One for all tests here: what hears of processes hears of them for good."""
    return Processes()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> RunReport:
    """A report of which nothing is known yet, with a budget of a second for a test of "unit" and of 9 for all."""
    budgets = Budgets(
        {"unit": 1.0}, {"unit": 9.0}, {"tests/unit/test_a.py::test_b": "why", "tests/unit/test_c.py": "why"}
    )
    monkeypatch.setattr(Budgets, "read", lambda: budgets)
    return RunReport(None)


def lines(report: RunReport) -> list[str]:
    printed: list[str] = []
    reporter: Any = SimpleNamespace(section=printed.append, write_line=printed.append)
    report.pytest_terminal_summary(reporter)
    return printed


def ran(report: RunReport, nodeid: str, cpu_s: float, when: Any = "call") -> None:
    phase = pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, when, duration=2 * cpu_s, cpu_s=cpu_s)
    report.pytest_runtest_logreport(phase)


def worker(name: str, cpu_s: float, last_test_at: float) -> Any:
    costs = {
        "fixtures": {"kafka (tests/kafka)": [1, 2.0]},
        "processes": {"java": 1, "sh": 2},
        "java_count": 3,
        "collected_cpu_s": 4.0,
        "cpu_s": cpu_s,
        "idle_s": 0.5,
        "last_test_at": last_test_at,
    }
    return SimpleNamespace(gateway=SimpleNamespace(id=name), workeroutput={WORKER_OUTPUT: costs})


def test_a_short_run_says_nothing(told: RunReport) -> None:
    ran(told, "tests/unit/test_a.py::test_a", 0.9)
    assert lines(told) == []


def test_numbers_of_all_processes_are_added_up(told: RunReport) -> None:
    for when in ("setup", "call", "teardown"):
        ran(told, "tests/unit/test_a.py::test_a[1]", 0.5, when)
    ran(told, "tests/kafka/test_k.py::test_k", 7.0)
    told.pytest_testnodedown(worker("gw0", 8.0, 100.0))
    told.pytest_testnodedown(worker("gw1", 9.0, 110.0))
    told.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw2")))  # it died
    found = lines(told)
    assert [line.split() for line in found[3:5]] == [
        ["kafka", "1", "7.0", "0.0", "7.0", "0.0", "14.0"],
        ["unit", "1", "1.5", "0.5", "0.5", "0.5", "3.0"],
    ]
    assert [line.split()[-1] for line in found[6:8]] == [
        "tests/kafka/test_k.py::test_k",
        "tests/unit/test_a.py::test_a[1]",
    ]
    assert "      4.0  kafka (tests/kafka), 2 times" in found
    assert "processes started by tests: 6 (4 sh, 2 java); JVMs below them: 6" in found
    assert found[-2:] == [
        "gw0: 8.0 of CPU, 4.0 of it to start and collect; 10.5 without a test to run",
        "gw1: 9.0 of CPU, 4.0 of it to start and collect; 0.5 without a test to run",
    ]


def test_a_test_that_its_process_died_of_is_no_error_of_the_report(told: RunReport) -> None:
    """Example: the run ended there with an internal error, and said nothing of all other tests."""
    ran(told, "tests/unit/test_a.py::test_a", 0.5, "???")
    assert lines(told) == []


def test_tests_over_their_budget_are_named_unless_they_have_a_reason(told: RunReport) -> None:
    for name in ("test_a.py::test_b[1]", "test_a.py::test_c", "test_c.py::test_d"):
        ran(told, f"tests/unit/{name}", 2.0)
    ran(told, "tests/unit/test_a.py::test_e", 2.0, "setup")
    ran(told, "tests/kafka/test_k.py::test_k", 200.0)
    assert lines(told)[1:] == [
        "over the budget of a test, and budgets.toml has no reason why",
        "      2.0  tests/unit/test_a.py::test_c",
    ]
    ran(told, "tests/unit/test_c.py::test_f", 2.0)
    assert lines(told)[-1] == "tests/unit cost 10 s of CPU, its budget is 9 s"


def test_processes_that_live_and_those_that_have_ended_count(processes: Processes) -> None:
    """Note: the last number of children is what the kernel has added up when they were waited for."""
    before_s = processes.cpu_s()
    with subprocess.Popen([sys.executable, "-c", BURN + "print(flush=True)\ninput()"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert processes.cpu_s() - before_s >= 0.15
        child.communicate(b"\n")
    assert processes.cpu_s() - before_s >= 0.2
    assert processes.started[Path(sys.executable).name] == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_each_way_to_start_a_process_counts(processes: Processes) -> None:
    before = processes.started.copy()
    subprocess.run(["/bin/sh", "-c", ":"], check=True)
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert processes.started - before == {"sh": 1, "true": 1, FORK: 1}


def test_a_fixture_is_not_charged_for_those_that_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    readings_s = iter([1.0, 2.0, 5.0, 5.5, 6.0])
    monkeypatch.setattr(processes, "cpu_s", lambda: next(readings_s))
    costs = Costs(processes)
    outer: Any = costs.pytest_fixture_setup(SimpleNamespace(argname="outer", baseid="tests/unit"))
    inner: Any = costs.pytest_fixture_setup(SimpleNamespace(argname="inner", baseid=""))
    for setup in (outer, inner):
        next(setup)
    for setup in (inner, outer):
        with pytest.raises(StopIteration):
            setup.send(None)
    assert costs.found()["fixtures"] == {"inner (of a plugin)": [1, 3.0], "outer (tests/unit)": [1, 1.5]}


def test_each_jvm_counts(tmp_path: Path) -> None:
    assert f"{tmp_path}/{short_lived_java.MARK}%p" in short_lived_java.java_options(tmp_path)
    for process_id in (1, 2):
        (tmp_path / f"{short_lived_java.MARK}{process_id}").touch()
    assert short_lived_java.started_count(tmp_path) == 2


@pytest.mark.parametrize("longrepr", [None, ("test_a.py", 3, "no Java"), "E  assert 1 == 2"])
def test_a_report_travels_as_bytes_and_arrives_as_it_was(pytestconfig: pytest.Config, longrepr: Any) -> None:
    sent = pytest.TestReport(
        "test_a.py::test", ("test_a.py", 3, "test"), {"test": 1}, "skipped", longrepr, "call",
        sections=[("log", "said")], duration=0.5, user_properties=[("served", "[1]")], cpu_s=0.25,
    )  # fmt: skip
    data = pytestconfig.hook.pytest_report_to_serializable(config=pytestconfig, report=sent)
    assert list(data) == [BYTES]
    arrived = pytestconfig.hook.pytest_report_from_serializable(config=pytestconfig, data=data | {"worker_id": "gw0"})
    assert vars(arrived) == {**vars(sent), "$report_type": "TestReport", "worker_id": "gw0"}
