"""The scenarios of `bench` that go through Spark, small, on replog: they run, check what came out, and leave nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import harness
from bench.model import Scenario, WrongResultError
from bench.scenarios.spark_scan import SparkScanScenario
from bench.scenarios.spark_sink import SparkSinkScenario
from bench.scenarios.spark_stream import SparkStreamScenario
from bench.systems.spark_systems import PARTITIONS, SparkOnReplog

pytestmark = [pytest.mark.spark, pytest.mark.campaign]

SMALL_BYTES = 100_000
RATES = {"rows_per_s", "mb_per_s"} | {
    f"{group}_{what}_s_per_gb" for group in ("brokers", "workers", "jvm") for what in ("cpu", "system")
}
SCENARIOS = {
    "spark-scan": (lambda: SparkScanScenario(SMALL_BYTES, [1000]), ["replog", "replog-tcp"], RATES),
    "spark-stream": (
        lambda: SparkStreamScenario(SMALL_BYTES, [1000], [2], counted_batches=2),
        ["replog"],
        RATES | {"empty_batch_s"},
    ),
    "spark-sink": (lambda: SparkSinkScenario(SMALL_BYTES, [1000]), ["replog"], RATES),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", SCENARIOS)
def test_small_run(name: str, tmp_path: Path) -> None:
    make, systems, metrics = SCENARIOS[name]
    scenario: Scenario[Any] = make()
    result = harness.run(scenario, repeat=1, directory=tmp_path, chosen=systems)
    assert scenario.name == name
    assert {row.system for row in result.rows} == set(systems)
    assert {row.metric for row in result.rows} == metrics
    assert all(row.median > 0 for row in result.rows if not row.metric.endswith("_s_per_gb"))
    assert list(tmp_path.iterdir()) == []


class Forgetful(SparkOnReplog):
    """Leaves out what is in partition 0."""

    def write(self, rows: Any, topic: str) -> None:
        super().write(rows.where("partition > 0"), topic)

    def read_stream(self, topic: str, **options: str) -> Any:
        return super().read_stream(topic, **options).where("partition > 0")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "scenario",
    [
        SparkSinkScenario(SMALL_BYTES, [1000], [Forgetful()]),
        SparkStreamScenario(SMALL_BYTES, [1000], [1], systems=[Forgetful()]),
    ],
    ids=lambda each: each.name,
)
def test_rows_that_are_missing_are_refused(scenario: Scenario[Any], tmp_path: Path) -> None:
    count = SMALL_BYTES // 1000 // PARTITIONS * (PARTITIONS - 1)
    with pytest.raises(WrongResultError, match=rf"\b{count}\b"):
        harness.run(scenario, repeat=1, directory=tmp_path)
