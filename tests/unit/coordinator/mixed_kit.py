"""Members of both protocols in one group, for tests: what they ask, and what they are told."""

from __future__ import annotations

from typing import Any

from classic_kit import joining, met, syncing
from consumer_bytes import wanting
from msgspec.structs import replace
from shard_kit import Host, Topics, group_host, topic_id

from replog.coordinator.assignors import Assignment, assignment_of
from replog.coordinator.classic.requests import JoinGroup, JoinGroupResponse, Protocol
from replog.coordinator.classic.subscription import read_assignment, write_assignment
from replog.coordinator.config import ClassicConfig, ConsumersConfig, ConversionConfig
from replog.coordinator.consumers.group import ConsumerGroup
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.records import CoordinatorRecord

SESSION_MS, REBALANCE_MS, DELAY_MS = 1_000, 400, 50
CONFIG = GroupsConfig(
    consumers=ConsumersConfig(SESSION_MS, 100, max_size=4),
    classic=ClassicConfig(SESSION_MS, 10 * SESSION_MS, DELAY_MS, 5 * SESSION_MS, max_size=4, max_group_bytes=2_000),
)
T = topic_id("t")


def mixed_host(config: GroupsConfig = CONFIG, **conversion: Any) -> Host:
    """A shard of groups that is led; `t` has 4 partitions, `u` has 2."""
    if conversion:
        config = replace(config, conversion=ConversionConfig(**conversion))
    host = group_host(Topics(t=4, u=2), config)
    host.lead()
    return host


def coming(
    member_id: str = "", *, owned: tuple[int, ...] = (), topics: tuple[str, ...] = ("t",), **more: Any
) -> JoinGroup:
    """A join of a consumer of the classic protocol that reads `t`."""
    protocols = (Protocol("range", wanting(*topics, owned=owned)),)
    return joining(member_id, **({"protocols": protocols, "is_id_required": False} | more))


def consuming(member_id: str = "m", epoch: int = 0, **more: Any) -> ConsumerHeartbeat:
    """A heartbeat of a member of KIP-848."""
    if epoch:
        return ConsumerHeartbeat("g", member_id, epoch, **more)
    told: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topics": ("t",), "owned": {}}
    return ConsumerHeartbeat("g", member_id, 0, **(told | more))


def parts(*partitions: int) -> Assignment:
    """Partitions of `t`."""
    return assignment_of((T, each) for each in partitions)


def given(*partitions: int) -> bytes:
    """Partitions of `t`, as a leader of the classic protocol gives them."""
    return write_assignment(1, {"t": partitions} if partitions else {})


def got(assignment: bytes) -> list[int]:
    """The partitions of `t` that a member has been given."""
    found = read_assignment(assignment)
    assert found is not None
    assert all(topic == "t" for topic, _ in found.partitions)
    return [partition for _, partition in found.partitions]


def synced(host: Host, member_id: str, generation: int, **more: Any) -> list[int]:
    """The partitions of `t` that a member of the classic protocol is told to read."""
    return got(host.ask(syncing(member_id, generation, **more)).assignment)


def classics(host: Host, *shares: tuple[int, ...], **more: Any) -> list[str]:
    """Makes a stable classic group whose members have these partitions of `t`; returns their ids."""
    joins = [coming(client_id=f"c{number}", **more) for number in range(len(shares))]
    told: list[JoinGroupResponse] = met(host, *map(host.submit, joins))
    assignments = {each.member_id: given(*share) for each, share in zip(told, shares, strict=True)}
    waiting = [host.submit(syncing(each.member_id, each.generation, assignments)) for each in reversed(told)]
    host.commit()
    assert [got(host.response(each).assignment) for each in waiting] == [list(share) for share in reversed(shares)]
    return [each.member_id for each in told]


def consumer_group(host: Host) -> ConsumerGroup:
    """The group, which is one of KIP-848."""
    found = host.machine._groups.find("g")
    assert isinstance(found, ConsumerGroup)
    return found


def records_since(host: Host, offset: int) -> list[CoordinatorRecord]:
    """The records of the log from an offset on."""
    found = [GROUP_RECORDS.decode(*each) for each in host.log[offset:]]
    return [each for each in found if each is not None]
