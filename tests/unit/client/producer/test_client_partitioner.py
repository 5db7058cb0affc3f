"""Where records go: Kafka's hash for keys, sticky without."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from replog.client.producer.partitioner import DefaultPartitioner, murmur2


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_kafka_gives(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash & 0xFFFFFFFF


def test_a_key_always_goes_to_its_partition() -> None:
    partitioner = DefaultPartitioner(sticky_bytes=10, rng=random.Random(1))
    expected = (-790332482 & 0x7FFFFFFF) % 6
    assert {partitioner.partition("t", b"foobar", 10, 6, ()) for _ in range(20)} == {expected}


def test_without_a_key_it_sticks_until_a_batch_ends_then_moves() -> None:
    partitioner = DefaultPartitioner(sticky_bytes=100, rng=random.Random(1))
    runs: list[set[int]] = []
    for _ in range(60):
        runs.append({partitioner.partition("t", None, 10, 3, (0, 1, 2)) for _ in range(12)})
        partitioner.sticky("t").end_batch(next(iter(runs[-1])))
    chosen = [partition for run in runs for partition in run]
    assert len(chosen) == 60, "one partition for each batch"
    assert all(a != b for a, b in pairwise(chosen))
    assert min(Counter(chosen).values()) > 10


def test_without_a_key_small_batches_of_one_partition_follow_each_other() -> None:
    partitioner = DefaultPartitioner(sticky_bytes=100, rng=random.Random(1))
    chosen: list[int] = []
    for _ in range(60):
        chosen.append(partitioner.partition("t", None, 10, 3, (0, 1, 2)))
        partitioner.sticky("t").end_batch(chosen[-1])
    assert all(len(set(chosen[i : i + 8])) == 1 for i in range(0, 56, 8)), "80 of 100 bytes went there"
    assert all(a != b for a, b in pairwise(chosen[::8]))


def test_without_a_key_it_moves_also_if_no_batch_ends() -> None:
    partitioner = DefaultPartitioner(sticky_bytes=100, rng=random.Random(1))
    chosen = [partitioner.partition("t", None, 10, 3, (0, 1, 2)) for _ in range(60)]
    assert all(len(set(chosen[i : i + 20])) == 1 for i in range(0, 60, 20)), "twice as much at the latest"
    assert all(a != b for a, b in pairwise(chosen[::20]))


def test_without_a_key_it_leaves_a_partition_that_lost_its_leader() -> None:
    partitioner = DefaultPartitioner(sticky_bytes=1000, rng=random.Random(1))
    first = partitioner.partition("t", None, 10, 3, (0, 1, 2))
    rest = tuple({0, 1, 2} - {first})
    assert partitioner.partition("t", None, 10, 3, rest) in rest
