"""Which codec is loaded, and that both exist where a compiler does."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys

import pytest

from replog import records as r
from replog.records import _codec_py, _select
from tests.records_codecs import compiled, needs_compiled

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
SHOW = "from replog import records as r; print(r.IMPLEMENTATION, r.BatchBuilder.__module__)"


def loaded(pure: str) -> list[str]:
    environment = {**os.environ, "REPLOG_PURE": pure, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    return out.stdout.split()


def test_the_switch_forces_the_twin() -> None:
    assert loaded("1") == ["python", "replog.records._codec_py"]


@needs_compiled
def test_the_compiled_codec_is_the_default() -> None:
    assert loaded("0") == ["cython", "replog.records._codec"]


@pytest.mark.skipif(os.environ.get("REPLOG_PURE") == "1", reason="REPLOG_PURE=1 asks for the twins")
@pytest.mark.skipif(COMPILER is None, reason="no C compiler here: the twins are all there is")
@pytest.mark.parametrize("name", ["_codec", "_scan", "_compaction"])
def test_where_a_compiler_is_the_compiled_modules_load(name: str) -> None:
    """The fallback is silent on purpose where nothing can be built; here it would hide a slow or broken build."""
    try:
        importlib.import_module(f"replog.records.{name}")
    except ImportError as error:
        pytest.fail(
            f"{name} does not load although there is {COMPILER}: {error}. Run: python setup.py build_ext --inplace"
        )


@pytest.mark.skipif(os.environ.get("REPLOG_PURE") == "1", reason="REPLOG_PURE=1 asks for the twins")
@pytest.mark.skipif(COMPILER is None, reason="no C compiler here: the twins are all there is")
def test_where_a_compiler_is_the_compiled_modules_are_used() -> None:
    used = {module.__name__ for module in (_select.codec, _select.scanner, _select.compactor)}
    assert used == {"replog.records._codec", "replog.records._scan", "replog.records._compaction"}


def test_this_process_says_what_it_uses() -> None:
    pure = compiled is None or os.environ.get("REPLOG_PURE") == "1"
    assert ("python" if pure else "cython") == r.IMPLEMENTATION


@needs_compiled
@pytest.mark.parametrize(
    "name",
    [
        "Appender",
        "BatchBuilder",
        "ByteMeter",
        "IMPLEMENTATION",
        "OpenBatches",
        "RecordPlace",
        "RowSource",
        "StickyPartition",
        "check_records",
        "decode_batch",
        "decode_columns",
        "decode_records",
        "extend_rows",
        "find_record",
        "group_rows",
        "murmur2",
        "survey_records",
    ],
)
def test_both_offer_the_same_names(name: str) -> None:
    assert hasattr(_codec_py, name)
    assert hasattr(compiled, name)


@needs_compiled
@pytest.mark.parametrize("name", ["append", "extend", "build", "size_bytes", "records_count"])
def test_both_builders_offer_the_same_names(name: str) -> None:
    assert hasattr(_codec_py.BatchBuilder, name)
    assert compiled is not None
    assert hasattr(compiled.BatchBuilder, name)
