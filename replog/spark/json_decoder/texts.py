"""Texts in json that stand for something else: dates, times and decimals.  Both decoders ask these functions."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException, InvalidOperation

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]((?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?)(?:\.([0-9]{1,9}))?"
    r"(Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
    re.ASCII,
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_EXACT = Context(prec=38, rounding=ROUND_HALF_UP, Emin=-999_999_999, Emax=999_999_999, traps=[InvalidOperation])


def days_of(text: str) -> int | None:
    """Returns the days since 1970 of a date such as "2024-02-29"; None: it is no such date."""
    if _DATE.fullmatch(text) is None:
        return None
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def microseconds_of(text: str) -> int | None:
    """Returns the microseconds since 1970 of a time such as "2024-02-29T12:00:00.5+01:00".

    Seconds, and a fraction of up to nine digits, may be left out; digits behind the sixth are cut off.  The zone may not: what
    a time without one means depends on who reads it.

    Returns:
        The microseconds; None: it is no such time, or its zone leads out of the years 1 to 9999.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    if fraction is not None and len(clock) == 5:
        return None
    try:
        instant = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone == 'Z' else zone}")
        since = instant.astimezone(UTC) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + int(f"{fraction or '0':0<6.6}")


def unscaled_of(text: str, precision: int, scale: int) -> int | None:
    """Returns a decimal number as so many units of its last digit; rounds half up, as Spark does.

    Args:
        text: The number, as json writes numbers.
        precision: The digits that it may have, at most 38.
        scale: How many of them are behind the point.

    Returns:
        The units; None: it is no number, or has more digits.
    """
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        rounded = Decimal(text).quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except DecimalException:
        return None
    unscaled = int(rounded.scaleb(scale, context=_EXACT))
    return unscaled if -(10**precision) < unscaled < 10**precision else None
