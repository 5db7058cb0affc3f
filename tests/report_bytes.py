"""Carries the reports of tests between processes (`pytest -n`) as bytes.

What carries messages between processes writes each value of a report in Python, sixty in each of three reports of a test: half a
millisecond a test, half as much again where they are read.  One value, the bytes of the whole, takes a twentieth of that.
"""

from __future__ import annotations

import marshal
from collections.abc import Generator
from typing import Any

import pytest

BYTES = "bytes"
"""The only key of a report on its way from here; pytest-xdist adds some of its own."""


class ReportBytes:
    """A plugin of all processes: reports become bytes where a test runs, and reports again where people look at them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        """Writes the fields that pytest, or another plugin, has made of a report."""
        fields = yield
        return None if fields is None else {BYTES: marshal.dumps(fields)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_from_serializable(self, data: dict[str, Any]) -> None:
        """Puts the fields back in the place of their bytes, for whoever makes a report of them."""
        if BYTES in data:
            data.update(marshal.loads(data.pop(BYTES)))  # of a process of this run, on the same Python
