"""Places in a partition by their names."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hypothesis import given
from hypothesis import strategies as st

from replog.client import Consumer, SyncConsumer
from replog.client.consumer.positions import AtOffset, AtTime, FromEnd, Place, parse_place
from replog.errors import InvalidRequestError
from replog.records import encode_batch

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", FromEnd(is_latest=False)),
        ("latest", FromEnd(is_latest=True)),
        ("latest-100", FromEnd(is_latest=True, distance=-100)),
        ("earliest+7", FromEnd(is_latest=False, distance=7)),
        ("-10m", AtTime(NOW_MS - 600_000)),
        ("-250ms", AtTime(NOW_MS - 250)),
        ("-3s", AtTime(NOW_MS - 3_000)),
        ("-2h", AtTime(NOW_MS - 7_200_000)),
        ("-999999999d", AtTime(0)),
        (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), AtTime(NOW_MS)),
        (datetime(2023, 11, 15, 0, 13, 20, tzinfo=timezone(timedelta(hours=2))), AtTime(NOW_MS)),
        (datetime(1960, 1, 1, tzinfo=UTC), AtTime(0)),
        (datetime(2004, 8, 11, 7, 51, 5, 814_000, tzinfo=UTC), AtTime(1_092_210_665_814)),  # a float says 0.9999 less
        ("2023-11-14T22:13:20Z", AtTime(NOW_MS)),
        ("2023-11-15 00:13:20.5+02:00", AtTime(NOW_MS + 500)),
        ("end", FromEnd(is_latest=True)),
        ("end-5", FromEnd(is_latest=True, distance=-5)),
        ("0", AtOffset(0)),
        ("9223372036854775807", AtOffset(2**63 - 1)),
    ],
)
def test_what_is_a_place(text: str | datetime, place: Place) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10m",
        "+10m",
        "-10",
        "-10w",
        "-1.5h",
        "- 1h",
        "latest+1",
        "earliest-1",
        "latest-",
        "newest",
        "-٣m",
        "٣",
        "9223372036854775808",
        5,
        None,
    ],
)
def test_what_is_none_is_told_what_is(text: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"is no place in a partition; say .*latest-100"):
        parse_place(text, NOW_MS)


def test_what_is_long_is_not_repeated() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_place("x" * 9_000_000, NOW_MS)
    assert len(str(refused.value)) < 500


def test_a_time_of_no_zone_is_not_guessed() -> None:
    with pytest.raises(InvalidRequestError, match="time zone"):
        parse_place(datetime(2023, 1, 1), NOW_MS)  # noqa: DTZ001 - that is what is refused
    for text, advice in (("2023-01-01", "2023-01-01T00:00Z"), ("2023-01-01T10:00", "2023-01-01T10:00Z")):
        with pytest.raises(InvalidRequestError, match=f"{text} has no time zone; say which: {advice} is UTC"):
            parse_place(text, NOW_MS)
        assert isinstance(parse_place(advice, NOW_MS), AtTime)


@given(st.text() | st.from_regex(r"(latest|earliest|)[-+]\d*[a-z]{0,2}", fullmatch=True))
def test_any_text_is_a_place_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequestError):
        assert isinstance(parse_place(text, NOW_MS), Place)


@pytest.fixture
def cluster() -> FakeCluster:
    """Two partitions with ten records from offset 3 on, at 3,000 ms, 4,000 ms, and so on."""
    found = FakeCluster(1)
    found.create_topic("t", 2)
    for partition in range(2):
        log = found.logs["t", partition]
        for number in range(13):
            log.append(encode_batch([(1_000 * number, None, b"x", ())]))
        log.log_start_offset = 3
    return found


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        ("earliest", 3),
        ("earliest+4", 7),
        ("earliest+99", 13),
        ("latest", 13),
        ("latest-2", 11),
        ("latest-100", 3),
        ("-1s", 13),
        (datetime.fromtimestamp(6.5, UTC), 7),
        ("1970-01-01T00:00:06.5Z", 7),
        ("end", 13),
        ("1", 3),
        ("5", 5),
        ("99", 13),
    ],
)
async def test_it_is_gone_to(cluster: FakeCluster, place: str | datetime, offset: int) -> None:
    async with Consumer(cluster.bootstrap, transport=cluster.transport()) as consumer:
        await consumer.assign([("t", 0), ("t", 1)])
        await consumer.seek_to(place, ("t", 1))
        assert (consumer.position(("t", 0)), consumer.position(("t", 1))) == (3, offset)
        await consumer.seek_to(place)
        assert (consumer.position(("t", 0)), consumer.position(("t", 1))) == (offset, offset)


async def test_the_high_watermark_is_told_once_it_is_known(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap, transport=cluster.transport()) as consumer:
        await consumer.assign([("t", 0)])
        assert (consumer.highwater(("t", 0)), consumer.lag(("t", 0))) == (None, None)
        await consumer.getone()
        assert (consumer.highwater(("t", 0)), consumer.lag(("t", 0))) == (13, 9)
        assert consumer.subscription() == frozenset()
        with pytest.raises(InvalidRequestError, match="t-1 is not assigned"):
            consumer.highwater(("t", 1))


def test_without_async(cluster: FakeCluster) -> None:
    with SyncConsumer(cluster.bootstrap, transport=cluster.transport()) as consumer:
        consumer.assign([("t", 0)])
        assert next(consumer).offset == 3
        consumer.seek_to("latest-1")
        assert next(consumer).offset == 12
