"""What a simulation leaves behind is told of in the test that has left it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _garbage_of_its_own() -> Iterator[None]:
    """Looks for garbage while the test is the current one.

    A coroutine that is ended by the garbage collector, and an error in its `finally`, fail whichever test runs then.
    """
    yield
    gc.collect()
