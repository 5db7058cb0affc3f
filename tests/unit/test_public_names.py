"""Names that users import: all in few places, and loaded when they are asked for."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import replog


def test_the_package_tells_its_names_and_has_them() -> None:
    assert set(replog.__all__) < set(dir(replog))
    for name in dir(replog):
        assert getattr(replog, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'producer'"):
        _ = replog.producer


@pytest.mark.parametrize("package", [replog.client, replog.cluster])
def test_a_package_that_loads_its_names_late_tells_all_of_them(package: ModuleType) -> None:
    assert dir(package) == sorted(package.__all__)
    assert all(getattr(package, name).__module__.startswith("replog.") for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Prodcer'"):
        _ = package.Prodcer


def test_modules_are_there_without_an_import_of_their_own() -> None:
    code = "import replog; print(replog.client.SyncProducer.__name__, replog.errors.NoOffsetError.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "SyncProducer NoOffsetError\n"


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "replog", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(replog.__version__)
