"""Groups that go from one protocol to the other, step by step, on a real Kafka and on a broker of ours: the answers field by field.

Which of its partitions a member keeps is the assignor's choice, and so are ids: members are compared by name, partitions counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from group_folders import records_of
from kafka_node import KafkaNode
from raw_client import RawClient
from sides import EXPLAINED, Side, Sides, differences

from replog.coordinator.classic.requests import ClassicHeartbeat
from replog.coordinator.classic.subscription import read_assignment, write_assignment
from replog.coordinator.describing.requests import DescribeConsumerGroup, DescribeGroup, GroupType
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from replog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from replog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.coordinator.consumer_bytes import wanting
from tests.unit.coordinator.shard_kit import Topics, group_host

COORDINATOR_GONE = {14, 15, 16}
NONE, UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCE = 0, 25, 22, 27
INCONSISTENT, ID_REQUIRED, NOT_FOUND, FENCED = 23, 79, 69, 82
PARTITIONS = 2
LEADING = frozenset({"leader", "members", "skip_assignment"})
"""What a leader is told that need not assign."""


class Actor:
    """One side of a script: its connection, and the ids and partitions of its members.

    Attributes:
        ids: The ids by the names that the script gives to members.
        owned: The partitions that a member of the classic protocol was told last.
    """

    def __init__(self, side: Side, group: str, topic: str) -> None:
        self.side = side
        self.group = group
        self.topic = topic
        self.client = RawClient(side.broker.servers)
        self.ids: dict[str, str] = {}
        self.owned: dict[str, tuple[int, ...]] = {}

    def ask(self, request: Any, version: int, answer: type[Any]) -> Any:
        """The answer; asked again while a coordinator is looked for."""
        while True:
            found = self.client.ask(request, version, answer)
            if getattr(found, "error_code", 0) not in COORDINATOR_GONE:
                return found

    def plain(self, answer: Any) -> Any:
        """An answer that can be compared: names for ids, counts for partitions."""
        names = {member_id: name for name, member_id in self.ids.items()}

        def shown(value: Any, key: str = "") -> Any:
            if isinstance(value, dict):
                return {name: shown(part, name) for name, part in value.items()}
            if key in {"assignment", "member_assignment"} and isinstance(value, bytes):
                found = read_assignment(value)
                return None if found is None else (len(found.partitions), value[:2])
            if key == "partitions":
                return len(value)
            if isinstance(value, list):
                return sorted((shown(part) for part in value), key=repr)
            return names.get(value, value) if isinstance(value, str) else value

        return shown(self.side.plain(answer))


class Script:
    """Asks both sides, and fails where the answers differ."""

    def __init__(self, both: Sides, group: str) -> None:
        self.topic = both.topic(PARTITIONS)
        self.actors = [Actor(side, group, self.topic) for side in both]

    def same(
        self,
        make: Callable[[Actor], Any],
        version: int,
        answer: type[Any],
        *,
        told: Callable[[Actor, Any], None] | None = None,
        beside: frozenset[str] = frozenset(),
    ) -> Any:
        """Asks both, lets each take from its answer what it needs later, and returns ours."""
        answers = []
        for actor in self.actors:
            found = actor.ask(make(actor), version, answer)
            if told is not None:
                told(actor, found)
            answers.append(actor.plain(found))
        found = list(differences(answers[0], answers[1], {*EXPLAINED, *beside}))
        assert found == [], found
        return answers[1]

    # ---- the classic protocol ---------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        code: int = NONE,
        *,
        owned: bool = False,
        instance: str | None = None,
        kind: str = "consumer",
        protocol: str = "range",
        metadata: bytes | None = None,
        beside: frozenset[str] = frozenset(),
    ) -> Any:
        """A member joins; a new one is told its id."""

        def make(actor: Actor) -> JoinGroupRequest:
            has = actor.owned[name] if owned else ()
            told = wanting(actor.topic, owned=has, owned_topic=actor.topic)
            protocols = [JoinGroupRequest.JoinGroupRequestProtocol(protocol, told if metadata is None else metadata)]
            member_id = actor.ids.get(name, "")
            return JoinGroupRequest(actor.group, 30_000, 60_000, member_id, instance, kind, protocols)

        def learn(actor: Actor, answer: JoinGroupResponse) -> None:
            if answer.member_id:
                actor.ids[name] = answer.member_id

        beside |= {"protocol_name"} if code else set()  # empty or null where there is an error, as may be the id
        beside |= {"member_id"} if code not in {NONE, ID_REQUIRED} else set()
        found = self.same(make, 9, JoinGroupResponse, told=learn, beside=beside)
        assert found["error_code"] == code, found
        return found

    def sync(self, name: str, generation: int, code: int = NONE, *, gives: bool = False) -> Any:
        """A member asks what it gets; a leader gives itself all."""

        def make(actor: Actor) -> SyncGroupRequest:
            whole = write_assignment(1, {actor.topic: range(PARTITIONS)})
            given = [SyncGroupRequest.SyncGroupRequestAssignment(actor.ids[name], whole)] if gives else []
            return SyncGroupRequest(actor.group, generation, actor.ids[name], None, "consumer", "range", given)

        def learn(actor: Actor, answer: SyncGroupResponse) -> None:
            found = read_assignment(bytes(answer.assignment))
            actor.owned[name] = tuple(sorted(partition for _, partition in found.partitions)) if found else ()

        found = self.same(make, 5, SyncGroupResponse, told=learn)
        assert found["error_code"] == code, found
        return found

    def beat(self, name: str, generation: int, code: int = NONE) -> None:
        """A member is alive."""
        found = self.same(
            lambda actor: HeartbeatRequest(actor.group, generation, actor.ids[name]), 4, HeartbeatResponse
        )
        assert found["error_code"] == code, found

    def leave(self, name: str, instance: str | None = None) -> Any:
        """A member leaves."""

        def make(actor: Actor) -> LeaveGroupRequest:
            who = LeaveGroupRequest.MemberIdentity(actor.ids.get(name, ""), instance)
            return LeaveGroupRequest(actor.group, "", [who])

        return self.same(make, 5, LeaveGroupResponse)

    # ---- the new protocol -------------------------------------------------------------------------------------------

    def consume(self, name: str, epoch: int, code: int = NONE, *, instance: str | None = None, **more: Any) -> Any:
        """A member joins, goes on, or leaves."""

        def make(actor: Actor) -> ConsumerGroupHeartbeatRequest:
            member_id = actor.ids.setdefault(name, str(uuid4()))
            told: dict[str, Any] = {"group_id": actor.group, "member_id": member_id, "member_epoch": epoch}
            if epoch == 0:
                told |= {
                    "rebalance_timeout_ms": 60_000,
                    "topic_partitions": [],
                    "subscribed_topic_names": [actor.topic],
                }
            return ConsumerGroupHeartbeatRequest(instance_id=instance, **(told | more))

        beside = frozenset({"heartbeat_interval_ms"} if epoch < 0 else ())  # nothing is asked of one that has left
        found = self.same(make, 1, ConsumerGroupHeartbeatResponse, beside=beside)
        assert found["error_code"] == code, found
        return found

    # ---- offsets, and what people see ---------------------------------------------------------------------------------

    def commit(self, name: str, epoch: int) -> None:
        """A member commits, and asks for what is committed."""

        def make(actor: Actor) -> OffsetCommitRequest:
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 5)
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(actor.topic, partitions=[partition])
            return OffsetCommitRequest(actor.group, epoch, actor.ids[name], topics=[topic])

        def fetch(actor: Actor) -> OffsetFetchRequest:
            topic = OffsetFetchRequest.OffsetFetchRequestTopics(actor.topic, partition_indexes=[0])
            group = OffsetFetchRequest.OffsetFetchRequestGroup(actor.group, actor.ids[name], epoch, [topic])
            return OffsetFetchRequest(groups=[group])

        self.same(make, 9, OffsetCommitResponse)
        self.same(fetch, 9, OffsetFetchResponse)

    def look(self) -> None:
        """People look at the group in all ways that there are."""

        def listed(actor: Actor, answer: ListGroupsResponse) -> None:
            answer.groups = [each for each in answer.groups if each.group_id == actor.group]

        self.same(lambda _: ListGroupsRequest(), 5, ListGroupsResponse, told=listed)
        host = frozenset({"client_host"})
        self.same(lambda actor: DescribeGroupsRequest([actor.group]), 6, DescribeGroupsResponse, beside=host)
        beside = frozenset({"subscribed_topic_regex", "client_host"})
        self.same(
            lambda actor: ConsumerGroupDescribeRequest([actor.group]), 1, ConsumerGroupDescribeResponse, beside=beside
        )


@pytest.fixture
def script(both: Sides, request: pytest.FixtureRequest) -> Iterator[Script]:
    """A script whose group is named as the test."""
    found = Script(both, request.node.name)
    for actor in found.actors:
        while (
            actor.client.ask(FindCoordinatorRequest(coordinator_keys=[actor.group]), 6, FindCoordinatorResponse)
            .coordinators[0]
            .error_code
        ):
            pass
    yield found
    for actor in found.actors:
        actor.client.connection.close()


def classic(script: Script) -> None:
    """A group of the classic protocol of one member, `a`, that has all."""
    script.join("a", ID_REQUIRED)
    assert script.join("a")["generation_id"] == 1
    script.sync("a", 1, gives=True)
    script.beat("a", 1)


def mixed(script: Script) -> None:
    """`a`, and `m` of the new protocol, which has made the group one of KIP-848; both settled in epoch 2."""
    classic(script)
    script.consume("m", 0)
    script.join("a")
    script.sync("a", 2)
    script.consume("m", 2, topic_partitions=[])


def test_a_group_goes_over_step_by_step(script: Script) -> None:
    classic(script)
    script.look()
    assert script.consume("m", 0)["member_epoch"] == 2
    script.look()
    script.commit("a", 1)
    script.beat("a", 1, REBALANCE)
    script.sync("a", 1, REBALANCE)
    for actor in script.actors:
        actor.owned["a"] = (0, 1)
    assert script.join("a", owned=True)["generation_id"] == 1
    script.sync("a", 1)
    script.beat("a", 1, REBALANCE)
    script.look()
    assert script.join("a", owned=True)["generation_id"] == 2
    script.sync("a", 2)
    script.beat("a", 2)
    script.beat("a", 1, ILLEGAL_GENERATION)
    script.sync("a", 1, ILLEGAL_GENERATION)
    script.consume("m", 2)
    script.look()
    for epoch in (1, 2):
        script.commit("a", epoch)
        script.commit("m", epoch)


def test_a_group_goes_back(script: Script) -> None:
    mixed(script)
    script.consume("m", -1)
    script.look()
    script.commit("a", 2)
    script.beat("a", 2, REBALANCE)
    script.consume("m", 2, NOT_FOUND)
    assert script.join("a")["generation_id"] == 3
    script.sync("a", 3, gives=True)
    script.beat("a", 3)
    script.look()


def test_members_join_and_leave_while_it_is_mixed(script: Script) -> None:
    mixed(script)
    for name, code in (("m", UNKNOWN_MEMBER), ("a", NONE)):
        script.beat(name, 2, code)
        script.sync(name, 2, code)
    script.join("x", INCONSISTENT, kind="connect")
    script.join("x", INCONSISTENT, protocol="sticky")
    script.join("b", ID_REQUIRED)
    assert script.join("b")["generation_id"] == 3
    script.sync("b", 3)
    script.beat("a", 2, REBALANCE)
    script.leave("b")
    script.leave("b")
    script.beat("b", 3, UNKNOWN_MEMBER)
    script.look()
    script.leave("a")
    script.look()
    script.consume("m", 2)
    script.look()


def test_one_that_was_put_out_comes_back_with_its_id(script: Script) -> None:
    """Goal: who has stopped to read is a new member; who has not is told to stop by ours, and taken by Kafka as it is."""
    mixed(script)
    script.leave("a")
    script.join("a")
    script.sync("a", 4)
    script.commit("a", 2)
    script.leave("a")
    for actor, code in zip(script.actors, (NONE, UNKNOWN_MEMBER), strict=True):
        told = wanting(actor.topic, owned=(0,), owned_topic=actor.topic)
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol("range", told)]
        asked = JoinGroupRequest(actor.group, 30_000, 60_000, actor.ids["a"], None, "consumer", protocols)
        assert actor.ask(asked, 9, JoinGroupResponse).error_code == code


def test_a_static_member_goes_over_and_back(script: Script) -> None:
    script.consume("m", 0)
    script.join("s", instance="i")
    script.sync("s", 2)
    script.consume("m", 1, topic_partitions=[])
    script.join("s", instance="i")
    script.sync("s", 2)
    script.consume("n", 0, instance="i")
    script.look()
    script.beat("s", 2, UNKNOWN_MEMBER)
    for actor in script.actors:
        actor.ids["s2"] = actor.ids.pop("s")
    script.join("s", instance="i")
    script.look()
    script.sync("s", 2)
    script.beat("s", 2)
    script.join("s2", FENCED, instance="i")
    script.leave("", instance="i")
    script.look()


def test_the_place_of_the_last_member_of_the_new_protocol_is_taken(script: Script) -> None:
    """Goal: the group goes back, and nobody has to meet; with ours one leads, with Kafka nobody knows that it does."""
    script.consume("m", 0, instance="i")
    script.join("b", ID_REQUIRED)
    script.join("b")
    script.sync("b", 2)
    script.consume("m", 1, topic_partitions=[], instance="i")
    script.join("b")
    script.sync("b", 2)
    script.consume("m", 2, instance="i")
    told = script.join("s", instance="i", beside=LEADING)
    assert (told["generation_id"], told["leader"], told["skip_assignment"]) == (2, "s", True)
    script.look()
    for name in ("s", "b"):
        script.sync(name, 2)
        script.beat(name, 2)


def test_what_kafka_has_written_of_a_mixed_group_is_read(script: Script, kafka_broker: KafkaNode) -> None:
    """Goal: a node that takes over Kafka's log goes on with the group, and every byte of it is understood."""
    mixed(script)
    group, names = script.actors[0].group, {each: name for name, each in script.actors[0].ids.items()}
    encoded = records_of(kafka_broker.partition("__consumer_offsets", 0))
    found = [GROUP_RECORDS.decode(*each) for each in encoded]
    assert [None if each is None else GROUP_RECORDS.encode(each) for each in found] == encoded
    host = group_host(Topics(), GroupsConfig())
    host.log, host.high_watermark, host.piece = encoded, len(encoded), len(encoded)
    host.lead()
    told = host.ask(DescribeConsumerGroup(group))
    assert (told.epoch, told.target_epoch) == (2, 2)
    assert {names[each.member_id]: (each.group_type, each.member_epoch) for each in told.members} == {
        "a": (GroupType.CLASSIC, 2),
        "m": (GroupType.CONSUMER, 2),
    }
    host.ask(ClassicHeartbeat(group, script.actors[0].ids["a"], 2))
    script.consume("m", -1)
    host.log = records_of(kafka_broker.partition("__consumer_offsets", 0))
    host.high_watermark = host.piece = len(host.log)
    host.lead()
    (member,) = host.ask(DescribeGroup(group)).members
    assert names[member.member_id] == "a"


@pytest.mark.parametrize("kind", ["connect", "consumer"])
def test_what_cannot_be_converted_stays(script: Script, kind: str) -> None:
    script.join("a", ID_REQUIRED, kind=kind, metadata=b"?")
    script.join("a", kind=kind, metadata=b"?")
    script.consume("m", 0, NOT_FOUND)
    script.consume("m", 1, NOT_FOUND)
    script.beat("a", 1)
