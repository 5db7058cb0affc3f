"""What a manager makes of a request: records for the log and the answer that leaves once they have committed."""

from __future__ import annotations

from msgspec import Struct

from replog.controller.requests import ControllerResponse
from replog.metadata.records import MetadataRecord


class Result(Struct, frozen=True):
    """What one request leads to.

    Attributes:
        records: The records of one change, all of it or nothing, in order; empty when nothing changes.
        response: The answer.
        wakes: The names of periodic tasks that should look soon at what has changed.
    """

    records: tuple[MetadataRecord, ...]
    response: ControllerResponse
    wakes: tuple[str, ...] = ()
