"""Each client without asyncio has the methods of the one with it: the same arguments, a docstring, and no coroutine."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from replog.client import Admin, Consumer, Producer, SyncAdmin, SyncConsumer, SyncProducer
from replog.tables import SyncTable, Table

PAIRS: tuple[tuple[type[Any], type[Any]], ...] = (
    (Admin, SyncAdmin),
    (Producer, SyncProducer),
    (Consumer, SyncConsumer),
    (Table, SyncTable),
)
LIVES_IN_THE_LOOP = {"handle_fork"}
OUTCOMES = {
    "Delivery": "SyncDelivery",
    "BulkDelivery": "SyncBulkDelivery",
    "Transaction": "SyncTransaction",
    "AsyncGenerator[TableChange]": "Iterator[TableChange]",
}


def methods_of(cls: type[Any]) -> dict[str, inspect.Signature]:
    """Returns the signatures of what users call."""
    names = [name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")]
    return {name: inspect.signature(getattr(cls, name)) for name in {*names, "__init__"} - LIVES_IN_THE_LOOP}


def differences(asynchronous: type[Any], synchronous: type[Any]) -> Iterator[str]:
    """Yields how the methods of a synchronous client differ from those of the other."""
    theirs = methods_of(synchronous)
    for name, signature in sorted(methods_of(asynchronous).items()):
        if name not in theirs:
            yield f"{name}: is not there"
            continue
        returned = OUTCOMES.get(signature.return_annotation, signature.return_annotation)
        if theirs[name].parameters != signature.parameters or theirs[name].return_annotation != returned:
            yield f"{name}: is {theirs[name]}, not {signature}"
        if name != "__init__" and not getattr(synchronous, name).__doc__:
            yield f"{name}: has no docstring"
    yield from (
        f"{name}: is a coroutine" for name in sorted(theirs) if inspect.iscoroutinefunction(getattr(synchronous, name))
    )


def violations() -> Iterator[str]:
    """Yields each method that a synchronous client lacks or has in another form."""
    for asynchronous, synchronous in PAIRS:
        yield from (f"{synchronous.__name__}.{wrong}" for wrong in differences(asynchronous, synchronous))
