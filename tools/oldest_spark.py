"""Runs tests of the Spark data source with the oldest PySpark that pyproject.toml allows: ``python tools/oldest_spark.py``.

The newest is what `make test` runs with (constraints.txt).  The environment `.venv-oldest-spark` is made once, which fetches
some 450 MB, and kept; remove it to have it made anew.  Further arguments are pytest's, in the place of the tests that it chooses.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv-oldest-spark"
PYTHON = str(VENV / "bin" / "python")

SMOKE = tuple(f"tests/spark/test_spark_{name}.py" for name in ("batch", "sql", "sink", "stream"))
"""What every entry of Spark into the data source is met in."""

TESTED_WITH = ("pytest", "pytest-asyncio", "pytest-xdist", "psutil", "pyarrow")


def main(arguments: list[str]) -> int:
    """Returns the exit code of pytest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = oldest_version(project["optional-dependencies"]["spark"])
    try:
        if installed_version() != version:
            make_environment(version, project["dependencies"])
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"error: `{' '.join(error.cmd)}` failed (exit code {error.returncode}); see above\n")
        return 1
    sys.stdout.write(f"PySpark {version}\n")
    sys.stdout.flush()
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or SMOKE)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def oldest_version(requirements: list[str]) -> str:
    """Returns the lower bound of PySpark with three numbers, as releases have.

    Args:
        requirements: The requirements of the extra `spark`.
    """
    (bound,) = (found[1] for line in requirements if (found := re.match(r"pyspark>=([\d.]+)", line)))
    return ".".join([*bound.split("."), "0", "0"][:3])


def installed_version() -> str:
    """Returns the version of PySpark in the environment; "" where there is none."""
    found = sorted(VENV.glob("lib/python*/site-packages/pyspark-*.dist-info"))
    return found[0].name.removeprefix("pyspark-").removesuffix(".dist-info") if found else ""


def make_environment(version: str, dependencies: list[str]) -> None:
    """Makes the environment; PySpark's own metadata come last, so that half of an install is continued."""
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as constraints:
        constraints.write("\n".join(line for line in lines if not line.startswith("pyspark==")))
        constraints.flush()
        install = [PYTHON, "-m", "pip", "install", "-q", "-c", constraints.name]
        subprocess.run([*install, *dependencies, *TESTED_WITH], check=True)
        subprocess.run([*install, f"pyspark=={version}"], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
