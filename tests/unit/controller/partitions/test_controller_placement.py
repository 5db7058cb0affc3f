"""Replicas are spread over racks, leaders over brokers."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.controller.partitions.placement import ReplicaPlacer, UsableBroker
from replog.errors import InvalidReplicationFactorError
from tests.work_counts import instructions_of

RACKS = [UsableBroker(broker_id, rack, fenced=False) for broker_id, rack in enumerate("AABBCC")]

brokers = st.lists(st.tuples(st.sampled_from(("A", "B", "C", None)), st.booleans()), min_size=1, max_size=9).map(
    lambda entries: [UsableBroker(number, rack, fenced) for number, (rack, fenced) in enumerate(entries)]
)


@given(brokers, st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
def test_always_distinct_and_led_by_a_live_broker(
    usable: list[UsableBroker], partitions: int, replicas: int, seed: int
) -> None:
    live = {broker.broker_id for broker in usable if not broker.fenced}
    placer = ReplicaPlacer(usable, random.Random(seed))
    if not live or replicas > len(usable):
        with pytest.raises(InvalidReplicationFactorError):
            placer.place(partitions, replicas)
        return
    assignments = placer.place(partitions, replicas)
    assert len(assignments) == partitions
    for assignment in assignments:
        assert len(set(assignment)) == len(assignment) == replicas
        assert assignment[0] in live
    assert assignments == ReplicaPlacer(usable, random.Random(seed)).place(partitions, replicas)


@pytest.mark.parametrize("seed", range(20))
def test_three_replicas_are_in_three_racks_and_leaders_are_even(seed: int) -> None:
    rack = {broker.broker_id: broker.rack for broker in RACKS}
    assignments = ReplicaPlacer(RACKS, random.Random(seed)).place(12, 3)
    assert all(len({rack[replica] for replica in assignment}) == 3 for assignment in assignments)
    assert set(Counter(assignment[0] for assignment in assignments).values()) == {2}


@pytest.mark.parametrize("seed", range(20))
def test_without_racks_partitions_are_striped(seed: int) -> None:
    usable = [UsableBroker(broker_id, None, fenced=False) for broker_id in (1, 2, 3)]
    assignments = ReplicaPlacer(usable, random.Random(seed)).place(6, 2)
    assert set(Counter(assignment[0] for assignment in assignments).values()) == {2}
    assert set(Counter(replica for assignment in assignments for replica in assignment).values()) == {4}


def test_fenced_brokers_follow_after_the_live_ones() -> None:
    usable = [
        UsableBroker(1, None, fenced=True),
        UsableBroker(2, None, fenced=False),
        UsableBroker(3, None, fenced=False),
    ]
    for assignment in ReplicaPlacer(usable, random.Random(1)).place(4, 3):
        assert assignment[2] == 1


@pytest.mark.parametrize("fenced", [False, True])
def test_a_partition_costs_as_much_on_many_brokers_as_on_few(fenced: bool) -> None:
    """Trap: the order of all brokers of all racks was made anew for each partition, an eighth of a second for 10,000 of them."""

    def looks(per_rack: int) -> int:
        usable = [
            UsableBroker(number, f"rack-{number % 3}", fenced and number % 2 == 0) for number in range(3 * per_rack)
        ]
        placer = ReplicaPlacer(usable, random.Random(1))
        return instructions_of(lambda: placer.place(30, 3))

    assert looks(100) <= 1.1 * looks(20)
