"""Members of the classic protocol, for tests: short requests, and what a group looks like."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from shard_kit import Host, Topics, group_host

from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.requests import (
    ClassicHeartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    Protocol,
    SyncGroup,
)
from replog.coordinator.config import ClassicConfig
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import GroupMetadataKey, GroupMetadataValue
from replog.coordinator.runtime.messages import ReplyError, Tick
from replog.errors import MemberIdRequiredError, ReplogError

SESSION_MS, REBALANCE_MS, DELAY_MS, NEW_MEMBER_MS = 1_000, 400, 50, 5_000
CONFIG = GroupsConfig(
    classic=ClassicConfig(SESSION_MS, 10 * SESSION_MS, DELAY_MS, NEW_MEMBER_MS, max_size=4, max_group_bytes=500)
)


def classic_host(config: GroupsConfig = CONFIG) -> Host:
    """A shard of groups that is led."""
    host = group_host(Topics(t=4), config)
    host.lead()
    return host


def subscription(*topics: str, owned: bytes = b"\0\0\0\0") -> bytes:
    """What a consumer tells."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1) + owned


RANGE = (Protocol("range", subscription("t")),)


def joining(member_id: str = "", **more: Any) -> JoinGroup:
    """A join of a consumer that reads `t`."""
    told: dict[str, Any] = {
        "group_id": "g",
        "protocol_type": "consumer",
        "protocols": RANGE,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "client_id": "c",
    }
    return JoinGroup(member_id=member_id, **(told | more))


def syncing(member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **more: Any) -> SyncGroup:
    """A sync; that of the leader assigns."""
    return SyncGroup("g", member_id, generation, assignments or {}, **more)


def beat(member_id: str, generation: int, **more: Any) -> ClassicHeartbeat:
    """A heartbeat."""
    return ClassicHeartbeat("g", member_id, generation, **more)


def leaving(*members: str | LeavingMember) -> LeaveGroup:
    """A request that members leave."""
    return LeaveGroup("g", tuple(LeavingMember(each) if isinstance(each, str) else each for each in members))


def pass_time(host: Host, by_ms: int, *, commits: bool = True) -> None:
    """Lets time pass, timer by timer, and then everything commit, unless the log stands still."""
    until_ms = host.now_ms + by_ms
    while (due := host.shard.next_deadline_ms()) is not None and due <= until_ms:
        host.now_ms = max(host.now_ms, due)
        host.step(Tick())
    host.now_ms = until_ms
    if commits:
        host.commit()


def id_of(host: Host, **more: Any) -> str:
    """Asks for a member id."""
    answer = host.answers[host.submit(joining(**more))]
    assert isinstance(answer, ReplyError)
    assert isinstance(answer.error, MemberIdRequiredError)
    return answer.error.member_id


def meet(host: Host, *requests: JoinGroup) -> list[JoinGroupResponse]:
    """Joins an empty group, the leader first; returns what each is told of the generation."""
    return met(host, *(host.submit(each) for each in requests))


def met(host: Host, *waiting: int) -> list[JoinGroupResponse]:
    """Lets time pass until joins have been answered, no longer than they may wait; returns the answers."""
    for _ in range((DELAY_MS + REBALANCE_MS) // DELAY_MS):
        if not host.answers.keys() >= set(waiting):
            pass_time(host, DELAY_MS)
    return [host.response(each) for each in waiting]


def settle(host: Host, told: list[JoinGroupResponse]) -> None:
    """Lets the leader assign to each member bytes of its id, and all ask for them."""
    leader = next(each for each in told if each.member_id == each.leader_id)
    given = {each.member_id: each.member_id.encode() for each in told}
    waiting = [host.submit(syncing(each.member_id, each.generation)) for each in told if each is not leader]
    host.ask(syncing(leader.member_id, leader.generation, given))
    assert [host.response(each).assignment for each in waiting] == [
        given[each.member_id] for each in told if each is not leader
    ]


def stable(host: Host, *names: str, **more: Any) -> list[str]:
    """Makes a stable group of members that need not come again with their ids; returns the ids."""
    told = meet(host, *(joining(client_id=each, is_id_required=False, **more) for each in names))
    settle(host, told)
    return [each.member_id for each in told]


def group_of(host: Host, group_id: str = "g") -> ClassicGroup | None:
    """What the machine knows of a group."""
    found: ClassicGroup | None = host.machine._groups.classic.find(group_id)
    return found


def written(host: Host, group_id: str = "g", end_offset: int | None = None) -> list[GroupMetadataValue | None]:
    """What the log has of a group, in order, up to an offset."""
    found: list[GroupMetadataValue | None] = []
    for encoded in host.log[:end_offset]:
        record = GROUP_RECORDS.decode(*encoded)
        if record is not None and record.key == GroupMetadataKey(group_id):
            assert record.value is None or isinstance(record.value, GroupMetadataValue)
            found.append(record.value)
    return found


def refused(host: Host, request: Any, error: type[ReplogError], match: str | None = None) -> None:
    """Asks, lets everything commit, and expects an error."""
    with pytest.raises(error, match=match):
        host.ask(request)
