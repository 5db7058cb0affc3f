"""Places in a partition by their names: a time, a time ago, or so many records from one of its ends."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from msgspec import Struct

from replog.client.arguments import shown
from replog.errors import InvalidRequestError

EXPECTED: Final = (
    '"earliest", "latest", "earliest+100", "latest-100", a time ago such as "-10m" (ms, s, m, h, d), or a datetime with a '
    "time zone"
)

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"-(\d{1,15})(ms|s|m|h|d)", re.ASCII)
_FROM_AN_END: Final = re.compile(r"(earliest|latest)(?:([+-])(\d{1,18}))?", re.ASCII)


class AtTime(Struct, frozen=True):
    """The first record at or after a time; the end where none is that late."""

    timestamp_ms: int


class FromEnd(Struct, frozen=True):
    """So many offsets from the beginning or the end, and never outside of the log."""

    is_latest: bool
    distance: int = 0


Place = AtTime | FromEnd


def parse_place(place: object, now_ms: int) -> Place:
    """Returns the place that is named.

    Args:
        place: The name, or a `datetime`.
        now_ms: The time of day, in milliseconds since 1970.

    Raises:
        InvalidRequestError: It names none.
    """
    if isinstance(place, datetime):
        return _at(place)
    found = _ago(place, now_ms) or _from_an_end(place) if isinstance(place, str) else None
    if found is None:
        raise InvalidRequestError(f"{shown(place)} is no place in a partition; say {EXPECTED}")
    return found


def _at(time: datetime) -> AtTime:
    if time.tzinfo is None:
        raise InvalidRequestError(f"{time!r} has no time zone; say which, for example with time.astimezone()")
    return AtTime(max(0, int(time.timestamp() * 1_000)))


def _ago(text: str, now_ms: int) -> AtTime | None:
    match = _AGO.fullmatch(text)
    return None if match is None else AtTime(max(0, now_ms - int(match[1]) * _UNITS_MS[match[2]]))


def _from_an_end(text: str) -> FromEnd | None:
    match = _FROM_AN_END.fullmatch(text)
    if match is None:
        return None
    is_latest, distance = match[1] == "latest", int(match[3] or 0)
    if match[2] is not None and (match[2] == "-") is not is_latest:
        return None  # there is nothing on that side
    return FromEnd(is_latest, -distance if is_latest else distance)
