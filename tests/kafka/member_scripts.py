"""Members of one group on a real Kafka and on a replog broker, for scripts that compare the answers step by step.

Ids of members are the brokers' own: in what is compared a member stands by the name that the test gives it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from raw_client import RawClient
from sides import EXPLAINED, Side, Sides, differences
from waiting import until

from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest
from replog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

Make: TypeAlias = Callable[[Side], Any]
"""A function that makes the request for a side."""

SESSION_MS, REBALANCE_MS = 10_000, 20_000
COMMIT, FETCH = 9, 9
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27

Protocol = JoinGroupRequest.JoinGroupRequestProtocol
Assignment = SyncGroupRequest.SyncGroupRequestAssignment
Identity = LeaveGroupRequest.MemberIdentity

_numbers = itertools.count(1)


class Members:
    """Members of one group on both sides; each has a connection of its own, since a join waits.

    Attributes:
        group: The name of the group.
        topic: The name of a topic with four partitions.
    """

    def __init__(self, both: Sides) -> None:
        self.group = f"alike-{next(_numbers)}"
        self.topic = both.topic(4)
        self._both = both
        self._clients: dict[tuple[str, str], RawClient] = {}
        self._ids: dict[tuple[str, str], str] = {}
        for side in both:
            until(partial(self._is_coordinated, side))

    def _is_coordinated(self, side: Side) -> bool:
        """Whether the coordinator of the group has been elected, and has read what there is."""
        client, asked = self._client(side, ""), FindCoordinatorRequest(coordinator_keys=[self.group])
        (told,) = client.ask(asked, 6, FindCoordinatorResponse).coordinators
        if told.error_code:
            return False
        fetched = client.ask(self.fetch()(side), FETCH, OffsetFetchResponse)
        return not fetched.groups[0].error_code

    def _is_kept(self, side: Side) -> bool:
        """Whether the group's first record is committed: Kafka answers the first join before, and nobody else finds the group."""
        told = self._client(side, "somebody who looks").ask(ListGroupsRequest(), 5, ListGroupsResponse)
        return any(each.group_id == self.group for each in told.groups)

    def id(self, side: Side, name: str) -> str:
        """The id of a member; its name where it has chosen that itself."""
        return self._ids.get((side.name, name), name)

    def tell(self, name: str, make: Make, version: int) -> None:
        """Sends a request of a member; "" is somebody who is none."""
        for side in self._both:
            self._client(side, name).send(make(side), version)

    def hear(self, name: str, answer: type[Any], version: int, *beside: str) -> Any:
        """Returns our answer, which is the same as Kafka's but for the fields `beside`; a member learns its id by it."""
        told = []
        for side in self._both:
            response = self._client(side, name).receive(answer, version)
            is_told = getattr(response, "error_code", 0) in {0, MEMBER_ID_REQUIRED}
            if name and is_told and (member_id := getattr(response, "member_id", "")):
                self._ids[side.name, name] = member_id
            told.append(self._named(side, side.plain(response)))
            if side is self._both.kafka and isinstance(response, JoinGroupResponse) and not response.error_code:
                until(partial(self._is_kept, side))
        found = list(differences(*told, {*EXPLAINED, *beside}))
        assert found == [], f"{answer.__name__} {version} to {name!r}: {found}"
        return told[1]

    def ask(self, name: str, make: Make, version: int, answer: type[Any], *beside: str) -> Any:
        """Sends a request, and returns our answer."""
        self.tell(name, make, version)
        return self.hear(name, answer, version, *beside)

    def differ(self, make: Make, version: int, answer: type[Any]) -> tuple[int, int]:
        """Sends a request that is answered otherwise by ours; returns Kafka's error and ours."""
        self.tell("", make, version)
        theirs, ours = (self._client(side, "").receive(answer, version).error_code for side in self._both)
        return theirs, ours

    def close(self) -> None:
        for client in self._clients.values():
            client.connection.close()

    def _client(self, side: Side, name: str) -> RawClient:
        key = side.name, name
        if key not in self._clients:
            self._clients[key] = RawClient(side.broker.servers)
        return self._clients[key]

    def _named(self, side: Side, value: Any) -> Any:
        """A plain answer with names for ids of members; members in the order of their names, names of topics in theirs.

        A broker of Kafka keeps the topics of a member as a set, so it tells them in an order that hashes make.
        """
        if isinstance(value, dict):
            return {key: self._named(side, part) for key, part in value.items()}
        if isinstance(value, list):
            return sorted((self._named(side, part) for part in value), key=_member_of)
        names = {member_id: name for (of, name), member_id in self._ids.items() if of == side.name}
        return names.get(value, value) if isinstance(value, str) else value

    # ---- what members say --------------------------------------------------------------------------------------------

    def join(self, name: str, member: str = "", **fields: Any) -> Make:
        """A join; `member` is whose id it carries, "" for none."""
        wishes = subscription(self.topic, name.encode())
        protocols = [Protocol("range", wishes), Protocol("roundrobin", wishes)]
        patience = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS}
        fields = {"protocol_type": "consumer", "protocols": protocols} | patience | fields
        return lambda side: JoinGroupRequest(
            self.group,
            member_id=self.id(side, member) if member else "",
            **fields,
        )

    def sync(self, name: str, generation: int, *gets: tuple[str, bytes], **fields: Any) -> Make:
        """A sync; a leader's with what each member gets."""
        return lambda side: SyncGroupRequest(
            self.group,
            generation,
            self.id(side, name),
            protocol_type=fields.get("protocol_type", "consumer"),
            protocol_name=fields.get("protocol_name", "range"),
            assignments=[Assignment(self.id(side, member), what) for member, what in gets],
        )

    def beat(self, name: str, generation: int, **fields: Any) -> Make:
        return lambda side: HeartbeatRequest(self.group, generation, self.id(side, name), **fields)

    def leave(self, *names: str) -> Make:
        """A leave in version 3 or newer."""
        return lambda side: LeaveGroupRequest(self.group, members=[Identity(self.id(side, name)) for name in names])

    def commit(self, name: str, generation: int, *parts: tuple[str, int, int], **fields: Any) -> Make:
        """A commit of (topic, partition, offset)."""
        part, named = OffsetCommitRequest.OffsetCommitRequestPartition, OffsetCommitRequest.OffsetCommitRequestTopic
        wanted = parts or ((self.topic, 0, 7),)
        topics = [
            named(topic, partitions=[part(number, offset, 3, "text") for _, number, offset in group])
            for topic, group in itertools.groupby(wanted, lambda each: each[0])
        ]
        return lambda side: OffsetCommitRequest(
            self.group, generation, self.id(side, name) if name else "", topics=topics, **fields
        )

    def fetch(self, *topics: tuple[str, list[int]], member: str | None = None, epoch: int = -1) -> Make:
        """A fetch of offsets; without topics, of all."""
        named = OffsetFetchRequest.OffsetFetchRequestTopics
        wanted = [named(name, partition_indexes=numbers) for name, numbers in topics] or None
        return lambda side: OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.OffsetFetchRequestGroup(
                    self.group, None if member is None else self.id(side, member), epoch, wanted
                )
            ]
        )

    # ---- what people ask ---------------------------------------------------------------------------------------------

    def described(self, version: int = 6) -> Any:
        """What the group is, as one of the classic protocol."""
        asked = DescribeGroupsRequest([self.group])
        return self.ask("", lambda _: asked, version, DescribeGroupsResponse)

    def described_consumers(self) -> Any:
        """What the group is, as one of KIP-848."""
        asked = ConsumerGroupDescribeRequest([self.group])
        return self.ask("", lambda _: asked, 1, ConsumerGroupDescribeResponse)


def subscription(topic: str, data: bytes) -> bytes:
    """What a consumer tells its leader, in the first version: Kafka's brokers read it too."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si{len(data)}s", 0, 1, len(name), name, len(data), data)


def _member_of(part: Any) -> tuple[str, ...]:
    if isinstance(part, str):
        return (part,)
    named = part if isinstance(part, dict) else {}
    return tuple(str(named.get(key)) for key in ("member_id", "name", "topic_name", "partition_index", "group_id"))


def joined(members: Members, name: str, version: int = 9) -> None:
    """Joins without an id, and comes back with it where the version wants that; the answer is still to be heard."""
    members.tell(name, members.join(name), version)
    if version >= 4:
        told = members.hear(name, JoinGroupResponse, version)
        assert (told["error_code"], told["member_id"]) == (MEMBER_ID_REQUIRED, name)
        members.tell(name, members.join(name, name), version)


def settled(members: Members, version: int = 9) -> None:
    """Members a, which leads, and b, in generation 2."""
    joined(members, "a", version)
    assert members.hear("a", JoinGroupResponse, version)["generation_id"] == 1
    members.ask("a", members.sync("a", 1, ("a", b"all")), min(version, 5), SyncGroupResponse)
    joined(members, "b", version)
    wait_for_rebalance(members)
    members.tell("a", members.join("a", "a"), version)
    for name in "ba":  # what a leader hears names the others
        assert members.hear(name, JoinGroupResponse, version)["generation_id"] == 2
    members.tell("b", members.sync("b", 2), min(version, 5))
    members.tell("a", members.sync("a", 2, ("a", b"half"), ("b", b"other half")), min(version, 5))
    for name in "ab":
        members.hear(name, SyncGroupResponse, min(version, 5))


def wait_for_rebalance(members: Members, name: str = "a", generation: int = 1) -> None:
    """Waits until both brokers have taken in that somebody joins, which nothing else tells than the heartbeat of another."""

    def is_told(side: Side) -> bool:
        told = members._client(side, name).ask(members.beat(name, generation)(side), 4, HeartbeatResponse)
        return bool(told.error_code == REBALANCE_IN_PROGRESS)

    for side in members._both:
        until(partial(is_told, side))


def wait_for_state(members: Members, state: str) -> None:
    """Waits until a classic group is in a state on both."""

    def is_there(side: Side) -> bool:
        asked = DescribeGroupsRequest([members.group])
        told = members._client(side, "").ask(asked, 6, DescribeGroupsResponse)
        return bool(told.groups[0].group_state == state)

    for side in members._both:
        until(partial(is_there, side))


def wait_for_count(members: Members, count: int) -> None:
    """Waits until a classic group has so many members on both."""

    def are_there(side: Side) -> bool:
        asked = DescribeGroupsRequest([members.group])
        told = members._client(side, "").ask(asked, 6, DescribeGroupsResponse)
        return len(told.groups[0].members) == count

    for side in members._both:
        until(partial(are_there, side))


def wait_until_out(members: Members, name: str) -> None:
    """Waits until a member of KIP-848 has been put out on both."""

    def is_out(side: Side) -> bool:
        asked = ConsumerGroupDescribeRequest([members.group])
        told = members._client(side, "").ask(asked, 1, ConsumerGroupDescribeResponse)
        return members.id(side, name) not in {each.member_id for each in told.groups[0].members}

    for side in members._both:
        until(partial(is_out, side))


def speaks(members: Members, name: str, epoch: int, owned: list[int] | None = None, **fields: Any) -> Make:
    """A heartbeat of a member that has chosen its id."""
    if epoch == 0:
        fields = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": [members.topic]} | fields
        owned = owned or []

    def made(side: Side) -> ConsumerGroupHeartbeatRequest:
        parts = None
        if owned is not None:
            part = ConsumerGroupHeartbeatRequest.TopicPartitions(side.ids[members.topic], owned)
            parts = [part] if owned else []
        return ConsumerGroupHeartbeatRequest(members.group, name, epoch, topic_partitions=parts, **fields)

    return made


HEARTBEAT = ("heartbeat_interval_ms",)
"""Each broker has one of its own."""
