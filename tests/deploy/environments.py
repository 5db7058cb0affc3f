"""Python environments as the recipes of docs/SPARK.md make them, without a network: packages are copied from where the tests run."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.spark.conftest import REPOSITORY

NEEDED = ("grpcio", "protobuf", "crc32c", "sortedcontainers", "typing_extensions")
"""What replog needs; what it needs for Spark besides is pyarrow.  PySpark itself is not in: workers have Spark's."""

OUR_PACKAGES = (
    "replog", "pyspark_replog", "timeline/replog_timeline", "quorum/replog_quorum", "checkpoints/replog_checkpoints",
)  # fmt: skip

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "tests", "include", "*.pyx", "*.a")


def make_environment(folder: Path, *, replog: bool = True, pyarrow: bool = True) -> Path:
    """Makes a virtual environment as `pip install "replog[spark]"` would, and returns its Python.

    Args:
        folder: The folder, absent.
        replog: Whether replog is in it.
        pyarrow: Whether pyarrow is.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in [*NEEDED, *(["pyarrow"] if pyarrow else [])]:
        copy_distribution(name, packages)
    if replog:
        for name in OUR_PACKAGES:
            shutil.copytree(REPOSITORY / name, packages / Path(name).name, ignore=_LEFT_OUT)
    return folder / "bin" / "python"


def other_python() -> str | None:
    """A Python of another minor version on this machine, on the PATH or of pyenv; None: there is none."""
    folders = [*map(Path, os.environ["PATH"].split(os.pathsep)), *Path.home().glob(".pyenv/versions/*/bin")]
    for candidate in (path for folder in folders for path in sorted(folder.glob("python3.1[1-9]"))):
        asked = [str(candidate), "-c", "import sys; print(sys.version_info[1])"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if told and int(told) != sys.version_info[1]:  # pyenv's stand-ins may name versions that are switched off
            return str(candidate)
    return None


def make_bare_environment(folder: Path, python: str) -> None:
    """Makes a virtual environment of another Python, without any package."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)


def copy_distribution(name: str, packages: Path) -> None:
    """Copies what a distribution has in site-packages."""
    distribution = importlib.metadata.distribution(name)
    tops = sorted({file.parts[0] for file in distribution.files or () if file.parts[0] not in {"..", "__pycache__"}})
    for top in tops:
        source = Path(str(distribution.locate_file(top)))
        if source.is_dir():
            shutil.copytree(source, packages / top, ignore=_LEFT_OUT, dirs_exist_ok=True)
        else:
            shutil.copy(source, packages / top)


def pack(environment: Path) -> Path:
    """Packs an environment as `tar czf environment.tar.gz -C environment .` does; returns the archive."""
    archive = environment.with_name(f"{environment.name}.tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(environment, ".")
    return archive
