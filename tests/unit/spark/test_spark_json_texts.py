"""Texts in json that stand for dates, times and decimals."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.spark.json_decoder.texts import days_of, microseconds_of, unscaled_of


@given(st.dates())
def test_every_date(day: date) -> None:
    assert days_of(day.isoformat()) == (day - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    "text", ["", "2024-2-1", "2023-02-29", "0000-01-01", "20240101", "2024-W01-1", "2024-01-01T", "２０２４-01-01"]
)
def test_no_dates(text: str) -> None:
    assert days_of(text) is None


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31)),  # noqa: DTZ001 - the zone is drawn below
    st.integers(-18 * 60, 18 * 60),
    st.sampled_from("T "),
)
def test_every_time(moment: datetime, minutes: int, between: str) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    assert microseconds_of(aware.isoformat(between)) == since // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:01Z", 60_000_000),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T00:00:00-00:30", 1_800_000_000),
    ],
)
def test_times_by_example(text: str, microseconds: int) -> None:
    assert microseconds_of(text) == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "", "1970-01-01T00:00:00", "1970-01-01", "1970-01-01T25:00:00Z", "1970-01-01T00:00.5Z", "1970-01-01T00:00:00z",
        "1970-01-01T00:00:00.Z", "1970-01-01T00:00:00.0123456789Z", "1970-01-01T00:00:00+0100", "1970-01-01T00:00:00+25:00",
        "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", " 1970-01-01T00:00:00Z",
    ],
)  # fmt: skip
def test_no_times(text: str) -> None:
    assert microseconds_of(text) is None


@pytest.mark.parametrize(
    ("text", "unscaled"),
    [
        ("0", 0), ("-0", 0), ("12.34", 1234), ("12.345", 1235), ("-12.345", -1235), ("12.344999", 1234), ("1e2", 10_000),
        ("1E-2", 1), ("999.99", 99_999), ("999.995", None), ("1e999999999", None), ("1e-999999999", 0), ("1e9999999999", None),
        ("", None), ("+1", None), ("01", None), (".5", None), ("1.", None), ("1_0", None), ("NaN", None), ("Infinity", None),
    ],
)  # fmt: skip
def test_decimals_of_five_digits(text: str, unscaled: int | None) -> None:
    """Goal: what is longer is rounded half up, as Spark does, and what has too many digits then is none."""
    assert unscaled_of(text, 5, 2) == unscaled


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_every_decimal(unscaled: int, scale: int) -> None:
    text = f"{Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale)):f}"
    assert unscaled_of(text, 38, scale) == unscaled
