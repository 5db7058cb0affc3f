"""Token buckets: debts are waited for, and owners without end take no memory without end."""

from __future__ import annotations

import pytest

from replog.waiting.token_buckets import BUCKETS_MAX, WAIT_MAX_S, TokenBucket, TokenBuckets

RATE, BURST_S = 1_000.0, 10.0


def test_who_takes_more_waits_until_the_debt_is_paid() -> None:
    bucket = TokenBucket(RATE, BURST_S, 0.0)
    assert bucket.take(RATE * BURST_S, RATE, 0.0) == 0
    assert bucket.take(RATE * 3, RATE, 0.0) == 3
    assert bucket.take(0, RATE, 2.0) == 1
    assert bucket.take(RATE, RATE * 2, 3.0) == pytest.approx(0.5), "another rate, the same debt"
    assert not bucket.is_full(13.4)
    assert bucket.is_full(13.6)


def test_what_is_given_back_pays_a_debt_and_fills_no_more_than_the_bucket() -> None:
    bucket = TokenBucket(RATE, BURST_S, 0.0)
    assert bucket.take(RATE * 12, RATE, 0.0) == 2
    assert bucket.take(-RATE * 2, RATE, 0.0) == 0
    assert bucket.take(-RATE * 50, RATE, 0.0) == 0
    assert bucket.take(RATE * 11, RATE, 0.0) == 1


def test_owners_have_buckets_of_their_own_and_waits_an_end() -> None:
    buckets: TokenBuckets[str] = TokenBuckets(BURST_S)
    assert buckets.take("a", RATE * 11, RATE, 0.0) == 1
    assert buckets.take("b", RATE, RATE, 0.0) == 0
    assert buckets.take("b", RATE * 1e9, RATE, 0.0) == WAIT_MAX_S


def test_full_buckets_make_room_before_debts_are_forgotten() -> None:
    buckets: TokenBuckets[str] = TokenBuckets(BURST_S)
    assert buckets.take("debtor", RATE * BURST_S * 4, RATE, 0.0) == 30
    for number in range(BUCKETS_MAX - 1):
        buckets.take(f"n{number}", 1, RATE, 0.0)
    buckets.take("one more", 1, RATE, 10.0)
    assert len(buckets) == 2, "those that are full again are gone"
    assert buckets.take("debtor", 0, RATE, 10.0) == 20
    for number in range(BUCKETS_MAX * 2):
        buckets.take(f"m{number}", RATE * BURST_S, RATE, 10.0)
    assert len(buckets) == BUCKETS_MAX
