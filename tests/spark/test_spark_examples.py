"""The pipelines of `examples/` as a user runs them: in a process of their own, with a cluster of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS_MAX = 300


def run(name: str, rows: int, output: Path) -> dict[str, Any]:
    """Runs an example; returns what it says at its end."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--rows", str(rows), "--output", str(output)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=output)
    assert ran.returncode == 0, ran.stderr[-4000:]
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert_a_picture(Path(told["picture"]))
    return told


def assert_a_picture(file: Path) -> None:
    with Image.open(file) as picture:
        assert picture.width > 1000
        colours = picture.convert("RGB").getcolors(picture.width * picture.height)
    assert colours is not None
    assert len(colours) > 50


@pytest.fixture(scope="module")
def flights(spark_environment: Path) -> Any:
    """The function of the examples that gives a number of flights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        import flights as module
    return module.flights


@pytest.mark.spark
@pytest.mark.cluster
def test_a_snapshot_becomes_aggregates_and_a_parquet_file(tmp_path: Path, flights: Any) -> None:
    told = run("delays_by_hour", 5000, tmp_path)
    assert told["read"] == told["flights"] == 5000
    table = pd.read_parquet(told["table"]).set_index(["origin", "month", "hour"]).sort_index()
    groups = flights(5000).groupby(["origin", "month", "hour"])["dep_delay"]
    assert table["flights"].tolist() == groups.size().tolist()
    assert table["cancelled"].tolist() == (groups.size() - groups.count()).tolist()
    pd.testing.assert_series_equal(table["mean_delay"], groups.mean(), check_names=False, check_index_type=False)


@pytest.mark.spark
@pytest.mark.cluster
def test_a_compacted_topic_gives_the_latest_state_of_each_key(tmp_path: Path, flights: Any) -> None:
    told = run("latest_planes", 40_000, tmp_path)
    assert told["read"] < told["changes"], "the brokers had compacted nothing"
    known = flights(40_000).dropna(subset="tailnum")
    last = known.groupby("tailnum").last()
    in_service = last[last["time_hour"] >= "2013-07-01"]
    table = pd.read_parquet(told["table"]).set_index("tailnum").sort_index()
    assert table["dest"].to_dict() == in_service["dest"].to_dict()
    assert table["carrier"].to_dict() == in_service["carrier"].to_dict()
