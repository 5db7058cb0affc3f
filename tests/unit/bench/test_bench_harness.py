"""The measuring harness, with systems that cost nothing: turns, warm-up, medians, and clean stops."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from bench import environment, harness, report
from bench.meter import Meter, timed_rounds
from bench.model import (
    Measured,
    Metric,
    NotOfferedError,
    Params,
    Row,
    Scenario,
    System,
    Trace,
    WrongResultError,
    throughput,
)
from bench.registry import scenarios

SPEED = Metric("speed", "1/s")
SOMETIMES = Metric("sometimes", "ms")


class FakeSystem(System):
    def __init__(self, name: str, missing: str | None = None) -> None:
        self.name = name
        self.reason = missing
        self.directory: Path | None = None
        self.events: list[str] = []

    def missing(self) -> str | None:
        return self.reason

    def start(self, directory: Path) -> None:
        self.directory = directory
        (directory / "data").write_bytes(b"x")
        self.events.append("start")

    def stop(self) -> None:
        self.events.append("stop")

    def durability(self) -> str:
        return "nothing is kept"


class FakeScenario(Scenario[FakeSystem]):
    """The n-th measurement finds n, from 0: so what the warm-up found shows."""

    name = "fake"
    question = "Does the harness keep its promises?"

    def __init__(self, *systems: FakeSystem, fail: bool = False) -> None:
        self._systems = systems
        self._fail = fail
        self.order: list[str] = []

    def systems(self) -> Sequence[FakeSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"size_bytes": 1}, {"size_bytes": 2}]

    def measure(self, system: FakeSystem, params: Params, meter: Meter) -> Measured:
        self.order.append(f"{system.name}{params['size_bytes']}")
        if self._fail:
            raise WrongResultError("lost a record")
        turn = self.order.count(self.order[-1]) - 1
        return {SPEED: float(turn * turn)} | ({SOMETIMES: 5.0} if turn != 2 else {})


def test_systems_take_turns_after_a_warm_up(tmp_path: Path) -> None:
    scenario = FakeScenario(FakeSystem("a"), FakeSystem("b"))
    steps: list[str] = []
    harness.run(scenario, repeat=2, directory=tmp_path, on_step=steps.append)
    assert scenario.order == ["a1", "b1"] * 3 + ["a2", "b2"] * 3
    assert len(steps) == harness.steps_count(scenario, 2)
    assert steps[0] == "a size_bytes=1"


def test_rows_hold_median_and_spread_without_the_warm_up(tmp_path: Path) -> None:
    result = harness.run(FakeScenario(FakeSystem("a")), repeat=3, directory=tmp_path)
    assert result.rows[0] == Row("fake", "a", "speed", "1/s", {"size_bytes": 1}, median=4, low=1, high=9, n=3)


def test_a_metric_that_is_not_found_every_time_says_so_in_n(tmp_path: Path) -> None:
    result = harness.run(FakeScenario(FakeSystem("a")), repeat=3, directory=tmp_path)
    assert [(row.metric, row.n) for row in result.rows[:2]] == [("speed", 3), ("sometimes", 2)]


def test_only_the_cases_with_the_wanted_parameters_are_measured(tmp_path: Path) -> None:
    scenario = FakeScenario(FakeSystem("a"))
    result = harness.run(scenario, repeat=1, directory=tmp_path, only=[("size_bytes", "2")])
    assert scenario.order == ["a2", "a2"]
    assert [row.params for row in result.rows] == [{"size_bytes": 2}] * 2
    assert harness.steps_count(scenario, 1, only=[("size_bytes", "2")]) == 2
    assert harness.cases_with(scenario, [("sizes", "2")]) == []
    either = [("size_bytes", "2"), ("size_bytes", "1")]
    assert harness.cases_with(scenario, either) == harness.cases_with(scenario, [])


class Picky(FakeScenario):
    """System b has no second size."""

    def measure(self, system: FakeSystem, params: Params, meter: Meter) -> Measured:
        if (system.name, params["size_bytes"]) == ("b", 2):
            raise NotOfferedError("b knows one size")
        return super().measure(system, params, meter)

    def traces(self) -> Sequence[Trace]:
        return [Trace("fake", "a", {"size_bytes": 1}, -1.0, 0.5, [3, 0, 1])]


def test_a_system_without_a_case_is_left_out_of_it_and_named(tmp_path: Path) -> None:
    scenario = Picky(FakeSystem("a"), FakeSystem("b"))
    result = harness.run(scenario, repeat=2, directory=tmp_path)
    assert result.missing == {"b (size_bytes=2)": "b knows one size"}
    assert [(row.system, row.params["size_bytes"]) for row in result.rows if row.metric == "speed"] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
    ]


def test_what_an_acknowledgement_means_and_what_happened_when_are_told(tmp_path: Path) -> None:
    scenario = Picky(FakeSystem("a"), FakeSystem("b"))
    result = harness.run(scenario, repeat=1, directory=tmp_path)
    assert result.durability == {"a": "nothing is kept", "b": "nothing is kept"}
    report.write_json(tmp_path / "out.json", result, {})
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert found["durability"] == result.durability
    assert [Trace(**trace) for trace in found["traces"]] == scenario.traces()


def test_a_missing_system_is_left_out_and_named(tmp_path: Path) -> None:
    peer = FakeSystem("peer", missing="no nats-server on the path")
    result = harness.run(FakeScenario(FakeSystem("a"), peer), repeat=1, directory=tmp_path)
    assert result.missing == {"peer": "no nats-server on the path"}
    assert {row.system for row in result.rows} == {"a"}
    assert peer.events == []


@pytest.mark.parametrize("fail", [False, True])
def test_systems_are_stopped_and_their_files_removed(fail: bool, tmp_path: Path) -> None:
    systems = [FakeSystem("a"), FakeSystem("b")]
    scenario = FakeScenario(*systems, fail=fail)
    if fail:
        with pytest.raises(WrongResultError):
            harness.run(scenario, repeat=1, directory=tmp_path)
    else:
        harness.run(scenario, repeat=1, directory=tmp_path)
    assert [system.events for system in systems] == [["start", "stop"]] * 2
    assert list(tmp_path.iterdir()) == []


def test_table_and_json_hold_the_same_rows(tmp_path: Path) -> None:
    scenario = FakeScenario(FakeSystem("a"), FakeSystem("peer", missing="not there"))
    result = harness.run(scenario, repeat=3, directory=tmp_path)
    facts = environment.describe(tmp_path)
    with (tmp_path / "out.txt").open("w", encoding="utf-8") as file:
        report.print_tables(Console(file=file, width=100), scenario, result, facts)
    text = (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert "size_bytes=2" in text
    assert "left out: peer: not there" in text
    assert "acknowledged by a: nothing is kept" in text
    assert f"commit {facts['commit']}" in text

    report.write_json(tmp_path / "out.json", result, facts)
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["rows"][0] == {
        "scenario": "fake",
        "system": "a",
        "metric": "speed",
        "unit": "1/s",
        "params": {"size_bytes": 1},
        "median": 4.0,
        "low": 1.0,
        "high": 9.0,
        "n": 3,
    }
    assert document["environment"]["python"] == facts["python"]
    assert document["missing"] == {"peer": "not there"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (1_234_567.8, "1,234,568"),
        (123.4, "123"),
        (12.345, "12.3"),
        (0.01234, "0.0123"),
        (0.000012, "1.20e-05"),
    ],
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert report.show_number(value) == shown


def test_the_meter_counts_wall_and_cpu_time_of_other_processes_too() -> None:
    meter = Meter([os.getpid(), 2**22 + 1])  # ourselves as another process: counted twice; and one that is not there
    ends_s = time.process_time() + 0.1
    with meter.timed() as timing:
        while time.process_time() < ends_s:
            sum(range(1000))
    assert timing.cpu_s > 0.15
    assert timing.wall_s > 0


def test_the_cpu_time_of_clients_is_not_that_of_brokers() -> None:
    both, clients_only = Meter([os.getpid()]), Meter(client_ids=[os.getpid()])
    ends_s = time.process_time() + 0.1
    with both.timed() as of_broker, clients_only.timed() as of_client:
        while time.process_time() < ends_s:
            sum(range(1000))
    assert of_broker.brokers_cpu_s > 0.05
    assert of_client.brokers_cpu_s == 0
    assert of_client.cpu_s > 0.15


def test_rounds_go_on_until_the_time_is_over() -> None:
    timing, rounds = timed_rounds(Meter(), lambda: None, at_least_s=0.05)
    assert rounds > 1
    assert timing.wall_s >= 0.05


def test_one_round_is_the_least() -> None:
    assert timed_rounds(Meter(), lambda: None, at_least_s=0)[1] == 1


def test_throughput() -> None:
    with Meter().timed() as timing:
        pass
    timing.wall_s, timing.cpu_s = 2.0, 1.0
    measured = throughput(timing, records=1000, data_bytes=500_000_000)
    assert {metric.name: value for metric, value in measured.items()} == {
        "records_per_s": 500.0,
        "mb_per_s": 250.0,
        "cpu_s_per_gb": 2.0,
    }


def test_every_scenario_is_found_and_complete() -> None:
    found = scenarios()
    assert {"codec", "log-append", "log-scan"} <= set(found)
    for scenario in found.values():
        assert scenario.question.endswith("?")
        assert scenario.cases()
        ours = scenario.systems()[0].name
        # `controller`, `coordinator-load`, `peer-tls`
        of_two_of_ours = {"pipelined", "transactional ids", "grpc"}
        assert ours.startswith("replog") or ours in of_two_of_ours, "ours stands first"
