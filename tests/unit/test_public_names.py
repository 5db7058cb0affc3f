"""Names that users import: all in few places, and loaded when they are asked for."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

import replog
from replog import errors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED = sorted({name for page in PAGES for name in re.findall(r"`(\w+Error)\b", page.read_text(encoding="utf-8"))})
NO_ERRORS = {"ReplyError": "an effect of the controller"}


@pytest.mark.parametrize("name", NAMED)
def test_an_error_that_a_page_names_is_imported_from_one_place(name: str) -> None:
    if name not in NO_ERRORS and not hasattr(builtins, name):
        assert issubclass(getattr(errors, name), errors.ReplogError)


def test_the_package_tells_its_names_and_has_them() -> None:
    assert set(replog.__all__) < set(dir(replog))
    for name in dir(replog):
        assert getattr(replog, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'producer'"):
        _ = replog.producer


def test_modules_are_there_without_an_import_of_their_own() -> None:
    code = "import replog; print(replog.client.SyncProducer.__name__, replog.errors.NoOffsetError.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "SyncProducer NoOffsetError\n"


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "replog", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(replog.__version__)
