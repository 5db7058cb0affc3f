"""What a manager makes of a request: records for the log and the answer that leaves once they have committed."""

from __future__ import annotations

from dataclasses import dataclass

from replog.controller.messages import ControllerResponse
from replog.metadata.records import MetadataRecord


@dataclass(frozen=True, slots=True)
class Result:
    """`records` is one atomic batch, in order; empty when nothing changes."""

    records: tuple[MetadataRecord, ...]
    response: ControllerResponse
