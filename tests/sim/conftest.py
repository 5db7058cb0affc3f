"""What a simulation leaves behind is told of in the test that has left it; what its seeds no longer show, at the end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.campaign.marks import STALE


@pytest.fixture(autouse=True)
def _garbage_of_its_own() -> Iterator[None]:
    """Looks for garbage while the test is the current one.

    A coroutine that is ended by the garbage collector, and an error in its `finally`, fail whichever test runs then.
    """
    yield
    gc.collect()


@pytest.fixture
def tell_stale(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Returns what is told about seeds that do not show any more what they have shown: the run says it at its end."""
    return partial(record_property, STALE)
