"""What Spark writes while it runs is where pytest removes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_spark_writes_nothing_into_the_system_s_temporary_folder(spark: Any, java_temporary_folder: Path) -> None:
    assert spark.range(3).count() == 3
    assert spark.sparkContext._jvm.java.lang.System.getProperty("java.io.tmpdir") == str(java_temporary_folder)
    kinds = {path.name.partition("-")[0] for path in java_temporary_folder.iterdir()}
    assert {"artifacts", "blockmgr", "spark"} <= kinds
