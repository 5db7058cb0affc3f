"""An archive of the classes that Spark loads, for all of Spark's JVMs that tests start (class-data sharing).

Nearly half of what a session of a minute costs is finding classes in jars, reading and verifying them.  The archive holds those
of one short session as they are in memory.  A JVM that it does not fit says nothing and takes the jars.

It fits these jars at this path only, and is worth what it costs from the second run that has it on.  So the first run of a copy of the
repository, which may be the only one, makes none::

    spark-classes/<digest of Java and jars>.seen    the run that was here last
                  <the same digest>.jsa             the archive, from the second run on
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.kafka.kafka_install import only_one_process

OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable that Spark takes options for the Java of a driver from."""

MAKE_TIMEOUT_S = 600

SHORT_SESSION = """
import sys
from pyspark.sql import SparkSession

folder = sys.argv[1] + "/rows"
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
numbers = session.range(1000).selectExpr("id % 7 as key", "cast(id as string) as value")
numbers.write.parquet(folder)
session.read.parquet(folder).groupBy("key").count().orderBy("key").collect()
java = session.sparkContext._gateway.proc
session.stop()
java.stdin.close()
java.wait()  # it writes the archive at its end
"""


def options_for(environment: Mapping[str, str], config: pytest.Config) -> dict[str, str]:
    """Returns the variable that has Spark use the archive; none where there is no archive, or no cache to keep it in.

    Args:
        environment: The variables that Spark is started with.
        config: The configuration of pytest, whose cache belongs to this copy of the repository.
    """
    cache: pytest.Cache | None = getattr(config, "cache", None)
    archive = archive_for(environment, cache.mkdir("spark-classes")) if cache is not None else None
    return {OPTIONS: f'"-XX:SharedArchiveFile={archive}"'} if archive is not None else {}


def archive_for(environment: Mapping[str, str], folder: Path) -> Path | None:
    """Returns the archive for Spark with these variables; None where there is none.

    Args:
        environment: The variables that Spark is started with.
        folder: Where archives of this copy of the repository are kept.
    """
    identity = _identity(environment)
    if identity is None:
        return None
    archive, seen = folder / f"{identity}.jsa", folder / f"{identity}.seen"
    if not archive.exists():
        with only_one_process(folder / "lock"):
            if not archive.exists() and seen.exists() and seen.read_text() != run_id():
                _make(archive, environment)
            seen.write_text(run_id())
    return archive if archive.exists() else None


def run_id() -> str:
    """Returns what all processes of this run of tests have in common."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


def _identity(environment: Mapping[str, str]) -> str | None:
    """Returns a digest of what an archive is for: this Java, and these jars."""
    found = find_spec("pyspark")
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH", ""))
    if java is None or found is None or found.origin is None:
        return None
    program, jars = Path(java).resolve(), Path(found.origin).parent / "jars"
    made_for = f"{program} {program.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}"
    return hashlib.sha256(made_for.encode()).hexdigest()[:12]


def _make(archive: Path, environment: Mapping[str, str]) -> None:
    """Has a session do a little of each thing; a JVM that cannot write down its classes goes without."""
    for older in archive.parent.glob("*.jsa"):
        older.unlink()
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="making-") as beside:
        made = Path(beside) / "made.jsa"
        variables = {**environment, OPTIONS: f'"-XX:ArchiveClassesAtExit={made}" -Xlog:disable'}
        command = [sys.executable, "-c", SHORT_SESSION, beside]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=variables, cwd=beside, capture_output=True, check=False, timeout=MAKE_TIMEOUT_S)
        if made.exists():
            made.rename(archive)
