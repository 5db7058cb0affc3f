"""Makes sure that a session knows the format `replog`.

Spark looks for data sources by itself, but only where its shell finds the workers' Python (``PYSPARK_PYTHON``), and a
path with a space in it is cut in two there.  Then nothing is found and no reason is given; registering helps.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_where_needed(spark: SparkSession) -> bool:
    """Registers the data source with `spark` if Spark would not find it; returns whether it did.

    Call it after making the session; where Spark finds the format by itself it does nothing.
    """
    if _shell_finds(os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or "python3"):
        return False
    from pyspark_replog import DefaultSource

    spark.dataSource.register(DefaultSource)
    return True


def _shell_finds(python: str) -> bool:
    """Whether `command -v` finds `python` when it is written without quotes, as Spark does."""
    return len(python.split()) == 1 and shutil.which(python) is not None
