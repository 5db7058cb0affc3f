"""Runs record tests on both codecs: the compiled one and its pure-Python twin."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest

from replog.records import _codec_py, batch

try:
    compiled: ModuleType | None = importlib.import_module("replog.records._codec")
except ImportError:
    compiled = None

NOT_BUILT = "the extension is not built: python setup.py build_ext --inplace"
needs_compiled = pytest.mark.skipif(compiled is None, reason=NOT_BUILT)

IMPLEMENTATIONS = [
    pytest.param(_codec_py, id="python"),
    pytest.param(compiled, id="cython", marks=needs_compiled),
]


def use(monkeypatch: pytest.MonkeyPatch, implementation: Any) -> None:
    """Makes the public functions of `replog.records` work on this codec until the test ends."""
    monkeypatch.setattr(batch, "_codec", implementation)
    monkeypatch.setattr(batch, "BatchBuilder", implementation.BatchBuilder)
