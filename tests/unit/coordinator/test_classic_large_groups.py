"""Groups of the classic protocol whose record would be larger than a change may be: they go on with those that fit."""

from __future__ import annotations

from typing import Any

import pytest
from classic_kit import (
    CONFIG,
    DELAY_MS,
    RANGE,
    beat,
    classic_host,
    joining,
    leaving,
    meet,
    met,
    pass_time,
    subscription,
    syncing,
)
from msgspec.structs import replace
from shard_kit import Host

from replog.coordinator.classic import group as group_module
from replog.coordinator.classic.requests import JoinGroupResponse, Protocol
from replog.coordinator.classic.subscription import topics_of_all
from replog.coordinator.describing.requests import DescribeGroup
from replog.errors import GroupMaxSizeReachedError, RebalanceInProgressError
from tests.work_counts import calls_of

BYTES = 2_000


@pytest.fixture
def host() -> Host:
    config = replace(CONFIG.classic, max_size=10, max_group_bytes=100_000, max_record_bytes=BYTES)
    return classic_host(replace(CONFIG, classic=config))


def member(**more: Any) -> Any:
    return joining(is_id_required=False, **more)


def assign(host: Host, told: list[JoinGroupResponse], size: int) -> list[Any]:
    """Lets the leader give so many bytes to each, and all ask for them; returns the answers or errors, the leader's last."""
    leader = next(each for each in told if each.member_id == each.leader_id)
    others = [each for each in told if each is not leader]
    asked = [host.submit(syncing(each.member_id, each.generation)) for each in others]
    given = {each.member_id: b"a" * size for each in told}
    asked.append(host.submit(syncing(leader.member_id, leader.generation, given)))
    host.commit()
    return [getattr(host.answers[each], "error", None) for each in asked]


def test_a_group_whose_record_is_too_large_goes_on_with_those_that_fit(host: Host) -> None:
    """Goal: members that cannot be kept hear so; the others do not join again for ever."""
    told = meet(host, *(member() for _ in range(6)))
    errors = assign(host, told, 250)
    gone = [each for each in errors if isinstance(each, GroupMaxSizeReachedError)]
    stay = [each for each in errors if isinstance(each, RebalanceInProgressError)]
    assert len(gone) + len(stay) == 6
    assert 0 < len(gone) < 6
    assert "bytes, and may have 2000: divide it into several groups" in str(gone[0])
    again = met(host, *(host.submit(joining(each.member_id)) for each in told[: len(stay)]))
    assert {each.generation for each in again} == {2}
    assert assign(host, again, 6 * 250 // len(stay)) == [None] * len(stay)
    assert host.ask(DescribeGroup("g")).state == "Stable"
    host.ask(beat(again[0].member_id, 2))
    with pytest.raises(GroupMaxSizeReachedError, match="has room for"):
        host.ask(member())


def test_there_is_room_again_once_the_group_was_empty(host: Host) -> None:
    told = meet(host, *(member() for _ in range(6)))
    assign(host, told, 250)
    left = [each.member_id for each in told]
    host.ask(leaving(*left))
    pass_time(host, 10 * DELAY_MS)
    assert host.ask(DescribeGroup("g")).state == "Empty"
    told = meet(host, *(member() for _ in range(6)))
    assert assign(host, told, 10) == [None] * 6


def test_a_member_that_tells_too_much_does_not_join_and_disturbs_nobody(host: Host) -> None:
    told = meet(host, member())
    assert assign(host, told, 10) == [None]
    large = (Protocol("range", subscription("t" * BYTES)),)
    with pytest.raises(GroupMaxSizeReachedError, match="let members tell less"):
        host.ask(member(protocols=large))
    host.ask(beat(told[0].member_id, 1))
    both = (*RANGE, Protocol("large", b"l" * BYTES))
    assert len(meet(host, member(protocols=both), joining(told[0].member_id))) == 2


def test_an_assignment_that_no_record_could_hold_ends_the_group(host: Host) -> None:
    told = meet(host, member(), member())
    assert [type(each) for each in assign(host, told, BYTES)] == [GroupMaxSizeReachedError] * 2
    pass_time(host, 10 * DELAY_MS)
    assert host.ask(DescribeGroup("g")).state == "Empty"


def test_what_is_counted_is_what_is_there(host: Host) -> None:
    """Goal: members that come, change, are renamed and go leave the count where it was."""
    told = meet(host, member(instance_id="i"))
    group = host.machine._groups.classic.find("g")
    assign(host, told, 10)
    host.ask(member(instance_id="i"))
    host.submit(joining(next(iter(group.members)), instance_id="i", protocols=(Protocol("range", b"other"),)))
    pass_time(host, DELAY_MS)
    (only,) = group.members.values()
    empty = group.record_bytes - only.record_bytes()
    host.ask(leaving(only.member_id))
    assert group.record_bytes == empty == len("g") + 64


def test_what_members_read_is_found_out_when_it_is_asked_for(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: with each generation all names were read, of 2 members with 20,000 topics for 40 ms, in the step that tells the leader."""
    read: list[int] = []
    topics = group_module.topics_of_all

    def noted(told: Any) -> Any:
        read.append(len(told))
        return topics(told)

    monkeypatch.setattr(group_module, "topics_of_all", noted)
    told = meet(host, *(member() for _ in range(3)))
    assert assign(host, told, 10) == [None] * 3
    group = host.machine._groups.classic.find("g")
    assert read == []
    assert [group.subscribed_among(each) for each in ("t", "u", "tu")] == [{"t"}, set(), {"t"}]
    assert read == [3]


def test_the_same_topics_are_read_once() -> None:
    same = [subscription("a", "b", owned=bytes((0, 0, 0, number))) for number in range(3)]
    assert topics_of_all(same) == {b"a", b"b"}
    assert calls_of(lambda: topics_of_all(same)) == calls_of(lambda: topics_of_all(same[:1]))
    assert topics_of_all([*same, subscription("a", "c")]) == {b"a", b"b", b"c"}
    assert topics_of_all([]) == frozenset()
    for broken in (b"", b"\0\3\0\0", same[0][:9], b"\0\3\xff\xff\xff\xff", b"\0\3\x7f\xff\xff\xff\0\1a"):
        assert topics_of_all([*same, broken]) is None
