"""What the progress of a query says of a stream: how far each partition is behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from replog.errors import ConfigError
from replog.spark.stream.offset import from_json


class _Progress(Protocol):
    """What is used of Spark's `StreamingQueryProgress`."""

    @property
    def json(self) -> str: ...


Progress: TypeAlias = _Progress | Mapping[str, Any] | str


def lag(progress: Progress) -> dict[str, dict[int, int]]:
    """Returns how many offsets each partition is behind its high watermark: topic -> partition -> offsets.

    A partition that no batch has named yet counts from offset 0.  Where several sources read a partition the one
    that is most behind counts; sources of other formats are passed over.

    Args:
        progress: What a `StreamingQueryListener`, `query.lastProgress` or `query.recentProgress` gives.
    """
    found: dict[str, dict[int, int]] = {}
    for source in _as_mapping(progress).get("sources", ()):
        for (topic, partition), offsets_count in _behind(source).items():
            members = found.setdefault(topic, {})
            members[partition] = max(members.get(partition, 0), offsets_count)
    return found


def _as_mapping(progress: Progress) -> Mapping[str, Any]:
    if isinstance(progress, Mapping):
        return progress
    text = progress if isinstance(progress, str) else progress.json
    parsed: Mapping[str, Any] = json.loads(text)
    return parsed


def _behind(source: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    try:
        latest, end = (from_json(_parsed(source.get(name))) for name in ("latestOffset", "endOffset"))
    except (ConfigError, ValueError):
        return {}
    return {
        partition: max(0, place.offset - (end.end[partition].offset if partition in end.end else 0))
        for partition, place in latest.end.items()
    }


def _parsed(offset: Any) -> Any:
    """Returns the offset, which is text in some forms of a progress."""
    return json.loads(offset) if isinstance(offset, str) else offset
