"""An archive of the classes that Spark loads, for all of Spark's JVMs that tests start (class-data sharing).

Nearly half of what a session of a minute costs is finding classes in jars, reading and verifying them.  The archive holds those
of one short session as they are in memory.  A JVM that it does not fit says nothing and takes the jars.

It fits jars at one path only, as they were when it was made, so that one made for a copy of the repository would fit none of the next
copies.  All of them start the same Spark: hard links to its files, or copies of them, in the cache folder of the tests, where the
archive is, too.  It is worth what it costs from the second run that has it on.  So the first run on a machine, which may be the only
one, makes none::

    ~/.cache/replog-tests/spark-classes/<digest of Java and jars>.seen           the run that was here last
                                        <the same digest>.jsa                    the archive, from the second run on
                                        <the same digest>/bin/*, jars/*.jar      the Spark that it fits
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

from tests.kafka.kafka_install import cache_folder, only_one_process

OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable that Spark takes options for the Java of a driver from."""

HOME = "SPARK_HOME"
"""The variable that names the folder with Spark's jars and the scripts that start it."""

HOME_FOLDERS = ("bin", "jars")

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


def options_for(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that have Spark use the archive; none where there is no archive.

    Args:
        environment: The variables that Spark is started with; if they name a Spark of their own, that goes without.
    """
    archive = archive_for(environment, cache_folder() / "spark-classes") if HOME not in environment else None
    if archive is None:
        return {}
    return {HOME: str(home_of(archive)), OPTIONS: f'"-XX:SharedArchiveFile={archive}"'}


def archive_for(environment: Mapping[str, str], folder: Path) -> Path | None:
    """Returns the archive for Spark with these variables; None where there is none.

    Args:
        environment: The variables that Spark is started with.
        folder: Where archives are kept.
    """
    identity = _identity(environment)
    if identity is None:
        return None
    folder.mkdir(exist_ok=True)
    archive, seen = folder / f"{identity}.jsa", folder / f"{identity}.seen"
    if not archive.exists():
        with only_one_process(folder / "lock"):
            if not archive.exists() and seen.exists() and seen.read_text() != run_id():
                _make(archive, environment)
            seen.write_text(run_id())
    return archive if archive.exists() else None


def home_of(archive: Path) -> Path:
    """Returns the folder of the Spark that an archive is made for."""
    return archive.with_suffix("")


def run_id() -> str:
    """Returns what all processes of this run of tests have in common."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


def _identity(environment: Mapping[str, str]) -> str | None:
    """Returns a digest of what an archive is for: this Java, and Spark with these jars, wherever it is installed."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH", ""))
    spark = _installed()
    if java is None or spark is None:
        return None
    program = Path(java).resolve()
    jars = sorted((path.name, path.stat().st_size) for path in (spark / "jars").iterdir())
    return hashlib.sha256(f"{program} {program.stat().st_mtime_ns} {jars}".encode()).hexdigest()[:12]


def _installed() -> Path | None:
    """Returns where Spark is installed beside this Python, if it is."""
    found = find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def _make(archive: Path, environment: Mapping[str, str]) -> None:
    """Has a session do a little of each thing; a JVM that cannot write down its classes goes without."""
    spark, home = _installed(), home_of(archive)
    assert spark is not None
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="making-") as beside:
        made = Path(beside) / "made.jsa"
        if not home.exists():
            copied = Path(beside) / "spark"
            for name in HOME_FOLDERS:
                shutil.copytree(spark / name, copied / name, copy_function=_link)
            copied.rename(home)
        options = f'"-XX:ArchiveClassesAtExit={made}" -Xlog:disable'
        variables = {**environment, HOME: str(home), OPTIONS: options}
        command = [sys.executable, "-c", SHORT_SESSION, beside]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=variables, cwd=beside, capture_output=True, check=False, timeout=MAKE_TIMEOUT_S)
        if made.exists():
            made.rename(archive)


def _link(source: str, target: str) -> None:
    """Links a file, which is never written to, or copies it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
