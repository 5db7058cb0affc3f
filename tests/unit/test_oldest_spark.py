"""tools/oldest_spark.py runs with the PySpark that pyproject.toml begins with."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def oldest_spark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replog_tools_oldest_spark", ROOT / "tools/oldest_spark.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("requirement", "version"), [("pyspark>=4.2,<5", "4.2.0"), ("pyspark>=4.3.1", "4.3.1")])
def test_the_lower_bound_is_the_version(oldest_spark: ModuleType, requirement: str, version: str) -> None:
    assert oldest_spark.oldest_version([requirement, "pyarrow>=18"]) == version
