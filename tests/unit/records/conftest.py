"""Every test that asks for `implementation` runs on the compiled codec and on its pure-Python twin."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records_codecs import IMPLEMENTATIONS, use


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use(monkeypatch, request.param)
    return request.param
