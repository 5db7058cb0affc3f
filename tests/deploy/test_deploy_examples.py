"""The pipeline of `examples/` that kills its own stream, as a user runs it: three Spark sessions, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.spark.test_spark_examples import flights, run

__all__ = ["flights"]


@pytest.mark.spark
@pytest.mark.cluster
def test_a_stream_that_is_killed_gives_the_windows_of_the_batch_query(tmp_path: Path, flights: Any) -> None:
    told = run("delay_windows", 4000, tmp_path)
    assert told["batches_before_the_crash"] >= 2
    table = flights(4000)
    weeks = pd.to_datetime(table["time_hour"], utc=True).dt.floor("7D")
    assert told["windows"] == len(table.groupby([table["origin"], weeks]))
