"""Who replays which record: every manager names its own, and `ControllerState` puts them into one table.

A new kind of state (quotas, access control) is a manager with `record_handlers` and one line where the managers are made;
nothing that exists changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from replog.metadata.records import MetadataRecord

RecordHandler: TypeAlias = Callable[[Any], object]
"""Takes a record of the class it is registered for; what it returns is not looked at."""

R = TypeVar("R", bound=MetadataRecord)


def on_record(cls: type[R], handle: Callable[[R], object]) -> tuple[type, RecordHandler]:
    """Makes one row of the table; the type checker sees to it that handler and record belong together."""
    return cls, handle
