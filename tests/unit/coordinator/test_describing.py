"""What people are told of groups of both kinds."""

from __future__ import annotations

from typing import Any

import pytest
from classic_kit import (
    classic_host,
    joining,
    meet,
    refused,
    settle,
    stable,
    subscription,
)
from msgspec.structs import replace
from shard_kit import Host, topic_id

from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedMember,
    DescribeGroup,
    GroupType,
    ListedGroup,
    ListGroups,
    ReadOffsets,
)
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    OffsetToCommit,
    TopicToCommit,
)
from replog.errors import (
    GroupIdNotFoundError,
)


@pytest.fixture
def host() -> Host:
    return classic_host()


def consuming(member_id: str = "m", epoch: int = 0, **more: Any) -> ConsumerHeartbeat:
    if epoch:
        return ConsumerHeartbeat("g", member_id, epoch, **more)
    return ConsumerHeartbeat("g", member_id, 0, rebalance_timeout_ms=500, subscribed_topics=("t",), owned={}, **more)


def committing(group_id: str) -> CommitOffsets:
    return CommitOffsets(group_id, (TopicToCommit("t", NO_TOPIC_ID, (OffsetToCommit(0, 1),)),))


def test_offsets_for_metrics_are_bounded_and_the_others_counted(host: Host) -> None:
    for group_id, partitions in (("a", 3), ("b", 2)):
        offsets = tuple(OffsetToCommit(number, 10 + number) for number in range(partitions))
        host.ask(CommitOffsets(group_id, (TopicToCommit("t", NO_TOPIC_ID, offsets),)))
    everything = [("a", "t", number, 10 + number) for number in range(3)] + [("b", "t", 0, 10), ("b", "t", 1, 11)]
    for count_max in (0, 2, 4, 5, 9):
        found = host.ask(ReadOffsets(count_max))
        assert (list(found.offsets), found.left_out_count) == (everything[:count_max], max(0, 5 - count_max))


def test_groups_of_both_kinds_are_listed(host: Host) -> None:
    stable(host, "one")
    host.ask(replace(consuming(), group_id="k"))
    host.ask(committing("offsets"))
    host.submit(joining(group_id="waiting", is_id_required=False))
    classic = ListedGroup("g", "consumer", "Stable", GroupType.CLASSIC)
    consumer = ListedGroup("k", "consumer", "Stable", GroupType.CONSUMER)
    offsets = ListedGroup("offsets", "", "Empty", GroupType.CLASSIC)
    waiting = ListedGroup("waiting", "consumer", "PreparingRebalance", GroupType.CLASSIC)
    for states, types, found in (
        ((), (), (classic, consumer, offsets, waiting)),
        (("stable ",), (), (classic, consumer)),
        (("STABLE", "empty"), ("Classic",), (classic, offsets)),
        ((), ("consumer",), (consumer,)),
        ((), ("share",), ()),
        ((), (" consumer",), ()),
        (("Dead",), (), ()),
    ):
        told = host.ask(ListGroups(tuple(states), tuple(types))).groups
        assert tuple(sorted(told, key=lambda each: each.group_id)) == found


def test_a_group_is_described(host: Host) -> None:
    told = meet(host, joining(instance_id="i", client_host="/h"))
    found = host.ask(DescribeGroup("g"))
    member = DescribedMember(told[0].member_id, "i", "c", "/h", b"", b"")
    assert (found.state, found.protocol_type, found.protocol) == ("CompletingRebalance", "consumer", "")
    assert found.members == (member,)
    settle(host, told)
    found = host.ask(DescribeGroup("g"))
    assert (found.state, found.protocol) == ("Stable", "range")
    assert found.members == (replace(member, metadata=subscription("t"), assignment=member.member_id.encode()),)
    host.ask(committing("offsets"))
    assert (host.ask(DescribeGroup("offsets")).state, host.ask(DescribeGroup("offsets")).members) == ("Empty", ())
    host.ask(replace(consuming(), group_id="k"))
    for group_id in ("k", "none"):
        refused(host, DescribeGroup(group_id), GroupIdNotFoundError, "classic")


def test_a_group_of_consumers_is_described(host: Host) -> None:
    host.ask(consuming("m", instance_id="i", rack_id="r", client_id="c", client_host="/h", server_assignor="range"))
    found = host.ask(DescribeConsumerGroup("g"))
    all_of_t = {topic_id("t"): frozenset(range(4))}
    member = DescribedConsumer("m", "i", "r", 1, "c", "/h", ("t",), "", all_of_t, all_of_t, GroupType.CONSUMER)
    assert (found.state, found.epoch, found.target_epoch, found.assignor) == ("Stable", 1, 1, "range")
    assert found.members == (member,)
    host.ask(consuming("n"))
    assert host.ask(DescribeConsumerGroup("g")).state == "Reconciling"
    host.ask(consuming("n", -1))
    assert host.ask(DescribeConsumerGroup("g")).state == "Assigning"
    host.ask(consuming("m", -1))
    found = host.ask(DescribeConsumerGroup("g"))
    assert (found.state, found.assignor, found.members) == ("Empty", "uniform", ())
    refused(host, DescribeConsumerGroup("none"), GroupIdNotFoundError, "consumer protocol")
    stable(host, "one")
    refused(host, DescribeConsumerGroup("g"), GroupIdNotFoundError, "consumer protocol")
