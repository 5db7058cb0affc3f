"""Where Spark would not find the data source, it is registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyspark_replog import DefaultSource
from replog.spark.discovery import register_where_needed


class Session:
    """As much of a SparkSession as is used."""

    def __init__(self) -> None:
        self.registered: list[Any] = []

    @property
    def dataSource(self) -> Session:  # noqa: N802 -- Spark's name
        return self

    def register(self, source: Any) -> None:
        self.registered.append(source)


@pytest.mark.parametrize(("folder", "expected"), [("plain", []), ("with space", [DefaultSource])])
def test_a_path_with_a_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, expected: list[object]
) -> None:
    python = tmp_path / folder / "python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(python))
    session = Session()
    assert register_where_needed(session) is bool(expected)  # type: ignore[arg-type] -- the part that is used
    assert session.registered == expected
