"""A membership in a group whose members assign (the classic protocol), for brokers without KIP-848.

Members meet in generations.  Each joins (the answer comes when all have), then asks what it gets (the answer comes when the leader,
one of them, has assigned), and then says at an interval that it is there.  When the group is rebalanced (a member came or went, or the
leader has seen a topic change) an answer to that says so: the member gives back everything, with the last commits in the generation
that ends, and only then joins again.  So nobody has a partition in two generations at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never
from uuid import UUID

from replog.client.backoff import Backoff
from replog.client.groups.membership import PUT_OUT, MemberConfig, Membership, State
from replog.client.groups.messages import Ask, Assign, Effect, GiveUp, Revoke, Said, Told, Topics, TopicsChanged
from replog.coordinator.assignors import AssignedMember, Assignor, assign_in_turns, assign_ranges
from replog.coordinator.classic.requests import (
    NO_MEMBER_ID,
    ClassicHeartbeat,
    ClassicHeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from replog.coordinator.classic.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    NamedPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from replog.coordinator.consumers.requests import ConsumerHeartbeatResponse
from replog.errors import (
    FencedInstanceIdError,
    MalformedFrameError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    ReplogError,
    RetriableError,
    UnknownMemberIdError,
)


class ClassicMembership(Membership):
    """Invariants:
        - nothing is owned when it joins;
        - what it owns is of one generation, which commits carry.

    Args:
        config: Who it is.
        backoff: The pauses after errors.
    """

    def __init__(self, config: MemberConfig, backoff: Backoff) -> None:
        super().__init__(config, backoff)
        self.member_id = NO_MEMBER_ID
        self._interval_ms = config.heartbeat_interval_ms
        self._cluster: Topics = {}
        self._under_way: Said | None = None
        self._joined_topics: tuple[str, ...] = ()  # what the last join has said
        self._joined: JoinGroupResponse | None = None  # the generation, from the answer to the join on
        self._given: NamedPartitions = ()  # what the leader has given in it
        self._ids: dict[str, UUID] = {}  # of the topics of these partitions, as they were assigned
        self._watched: Shapes = {}  # what the leader has assigned by; of others nothing
        self._must_join = False  # the group is rebalanced: give back everything, and join again

    @property
    def _is_asking(self) -> bool:
        return self._under_way is not None

    @property
    def _is_known(self) -> bool:
        """Whether it has to say that it leaves: a static member comes back, or its session ends."""
        return self.member_id != NO_MEMBER_ID and self._config.instance_id is None

    # ---- what is said ------------------------------------------------------------------------------------------------

    def _speak(self, now_ms: int) -> tuple[Effect, ...]:
        if self._is_asking or self._due_ms is None or now_ms < self._due_ms:
            return ()
        said = self._said()
        if isinstance(said, LeaveGroup) and not self._is_known:
            self._due_ms = None
            self._has_left()
            return ()
        self._under_way = said
        self._sent_ms = now_ms
        is_held_back = isinstance(said, JoinGroup | SyncGroup)
        return (Ask(said, self._config.rebalance_timeout_ms if is_held_back else 0),)

    def _said(self) -> Said:
        config = self._config
        if self.state in {State.AWAY, State.LEAVING}:
            reason = "it has left" if self.state is State.LEAVING else "its application asks for no records"
            return LeaveGroup(config.group_id, (LeavingMember(self.member_id, None, reason),))
        if self.state is State.MEMBER:
            return ClassicHeartbeat(config.group_id, self.member_id, self.epoch, config.instance_id)
        return self._join() if self._joined is None else self._sync(self._joined)

    def _join(self) -> JoinGroup:
        config = self._config
        self._joined_topics = self._topics
        told = write_subscription(self._topics, config.rack_id)
        return JoinGroup(
            config.group_id,
            self.member_id,
            CONSUMER_PROTOCOL_TYPE,
            tuple(Protocol(name, told) for name in ASSIGNORS),
            config.session_timeout_ms,
            config.rebalance_timeout_ms,
            config.instance_id,
        )

    def _sync(self, joined: JoinGroupResponse) -> SyncGroup:
        is_leader = joined.leader_id == self.member_id
        self._watched = shapes_of(topics_of(joined.members), self._cluster) if is_leader else {}
        return SyncGroup(
            self._config.group_id,
            self.member_id,
            joined.generation,
            assign(joined, self._cluster) if is_leader and not joined.skip_assignment else {},
            self._config.instance_id,
            CONSUMER_PROTOCOL_TYPE,
            joined.protocol,
        )

    # ---- what the answers mean ---------------------------------------------------------------------------------------

    def _handle_answer(self, response: Told, now_ms: int) -> tuple[Effect, ...]:
        if self._ended() is None:
            return ()
        self._backoff.reset()
        match response:
            case JoinGroupResponse():
                return self._handle_joined(response, now_ms)
            case SyncGroupResponse():
                return self._handle_synced(response, now_ms)
            case ClassicHeartbeatResponse():
                self._confirm()
                return self._go_on(now_ms)
            case LeaveGroupResponse():
                self._has_left()
            case ConsumerHeartbeatResponse():
                pass  # of the other kind
            case _ as unreachable:
                assert_never(unreachable)
        return ()

    def _ended(self) -> Said | None:
        """Returns the request that has ended; None where none was under way."""
        said, self._under_way = self._under_way, None
        if said is not None:
            self._due_ms = None
        return said

    def _handle_joined(self, joined: JoinGroupResponse, now_ms: int) -> tuple[Effect, ...]:
        self.member_id = joined.member_id
        if joined.protocol not in ASSIGNORS:
            return self._fail(_strange(self._config.group_id, f"has agreed on protocol {joined.protocol!r}"))
        self._joined = joined
        self._due_ms = now_ms
        return ()

    def _handle_synced(self, response: SyncGroupResponse, now_ms: int) -> tuple[Effect, ...]:
        given = read_assignment(response.assignment)
        if given is None or self._joined is None:
            return self._fail(_strange(self._config.group_id, "has given it what is no assignment of a consumer"))
        self.state = State.MEMBER
        self.epoch = self._joined.generation
        self._given = given.partitions
        self._must_join = self._topics != self._joined_topics or self._may_lack_partitions(self._joined)
        self._confirm()
        return self._handle_topics(TopicsChanged(self._cluster), now_ms)

    def _may_lack_partitions(self, joined: JoinGroupResponse) -> bool:
        """Whether partitions that nobody has may have come while this static member, which leads, was away.

        It is told to leave the assignment as it is, and not what others have: it would never know.
        """
        if joined.leader_id != self.member_id or not joined.skip_assignment:
            return False
        counts = {name: shape[1] for name, shape in self._watched.items() if shape is not None}
        return not {(name, each) for name, count in counts.items() for each in range(count)} <= set(self._given)

    def _confirm(self) -> None:
        self._confirmed_ms = self._sent_ms
        self._failures_count = 0
        self._due_ms = self._sent_ms + self._interval_ms

    def _handle_error(self, error: ReplogError, now_ms: int) -> tuple[Effect, ...]:
        said = self._ended()
        if said is None:
            return ()
        if isinstance(said, LeaveGroup):  # whatever was answered: else the session ends by itself
            self._has_left()
            return ()
        if isinstance(error, MemberIdRequiredError):
            self.member_id = error.member_id
            self._due_ms = now_ms
            return ()
        if isinstance(error, UnknownMemberIdError | FencedInstanceIdError):
            self.member_id = NO_MEMBER_ID
        if self.state is State.MEMBER:
            return self._handle_refused_heartbeat(error, now_ms)
        self._joined = None
        if not isinstance(error, (*PUT_OUT, RetriableError)):
            return self._fail(error)
        self._due_ms = now_ms + int(self._backoff.next_s() * 1000)
        return ()

    def _handle_refused_heartbeat(self, error: ReplogError, now_ms: int) -> tuple[Effect, ...]:
        if isinstance(error, RebalanceInProgressError):
            self._must_join = True
            self._confirm()
            return self._go_on(now_ms)
        if isinstance(error, PUT_OUT):
            return self._fence(error)
        if not isinstance(error, RetriableError):
            return self._fail(error)
        self._failures_count += 1
        self._due_ms = now_ms + int(self._backoff.next_s() * 1000)
        return self._go_on(now_ms)

    def _has_left(self) -> None:
        self.member_id = NO_MEMBER_ID
        if self.state is State.LEAVING:
            self.state = State.OUT

    # ---- the way to an assignment ------------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> tuple[Effect, ...]:
        """Takes what the generation gives, or gives everything back and joins the next one."""
        if self._leaving:
            return ()
        if not self._must_join:
            return self._take()
        if self.owned:
            self._leaving = self.owned
            return (Revoke(self.owned),)
        if not self._is_asking:
            self._forget_membership()
            self.state = State.JOINING
            self._due_ms = now_ms
        return ()

    def _take(self) -> tuple[Effect, ...]:
        """Takes what it is given, of the topics that are known already."""
        self._ids |= {
            name: self._cluster[name].topic_id
            for name, _ in self._given
            if name not in self._ids and name in self._cluster
        }
        new = {(self._ids[name], number) for name, number in self._given if name in self._ids} - self.owned
        self.owned |= new
        return (Assign(frozenset(new)),) if new else ()

    def _was_given_back(self, now_ms: int) -> tuple[Effect, ...]:
        return self._go_on(now_ms)

    def _handle_topics(self, message: TopicsChanged, now_ms: int) -> tuple[Effect, ...]:
        """Joins again where the assignment does not fit any more: a topic was made anew, or, for the leader, came or has grown.

        One that was deleted stays assigned, and whoever reads it is told so.
        """
        self._cluster = message.topics
        if self.state is not State.MEMBER:
            return ()
        ids = {name: self._cluster[name].topic_id for name in self._ids if name in self._cluster}
        shapes = shapes_of(self._watched, self._cluster)
        is_made_anew = any(self._ids[name] != topic_id for name, topic_id in ids.items())
        if is_made_anew or any(shape not in {None, self._watched[name]} for name, shape in shapes.items()):
            self._must_join = True
        return self._go_on(now_ms)

    # ---- coming and going --------------------------------------------------------------------------------------------

    def _wants_anew(self, now_ms: int) -> tuple[Effect, ...]:
        self._must_join = True
        return self._go_on(now_ms)

    def _forget_membership(self) -> None:
        super()._forget_membership()
        self._joined = None
        self._given, self._ids, self._watched = (), {}, {}
        self._must_join = False

    def _drop_request(self) -> tuple[Effect, ...]:
        said, self._under_way = self._under_way, None
        return () if said is None else (GiveUp(),)


def _strange(group_id: str, what: str) -> MalformedFrameError:
    return MalformedFrameError(
        f"group {group_id!r} {what}, which this member cannot follow: let its members use the assignors range or roundrobin"
    )


ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": assign_ranges, "roundrobin": assign_in_turns}
"""The protocols that a member offers, the one that it likes best first.  Every client of Kafka has one of them by default; with both,
a member reads nothing while it joins, so that it need not say what it has."""

_NOTHING: Final = Subscription(0, ())

Shapes = Mapping[str, tuple[UUID, int] | None]
"""The id and the number of partitions of topics; None where there is no such topic."""


def topics_of(members: Iterable[JoinedMember]) -> frozenset[str]:
    """Returns the topics that any member reads."""
    return frozenset(topic for each in members for topic in _read(each).topics)


def shapes_of(names: Iterable[str], topics: Topics) -> Shapes:
    """Returns what an assignment depends on, of topics."""
    found = {name: topics.get(name) for name in names}
    return {name: None if info is None else (info.topic_id, len(info.partitions)) for name, info in found.items()}


def assign(joined: JoinGroupResponse, topics: Topics) -> dict[str, bytes]:
    """Returns what each member gets, in the bytes that members understand, by the protocol of the generation.

    Args:
        joined: The generation, as its leader is told.
        topics: The topics of the cluster.
    """
    told = {each.member_id: _read(each) for each in joined.members}
    ids = {name: topics[name].topic_id for name in topics_of(joined.members) if name in topics}
    names = {topic_id: name for name, topic_id in ids.items()}
    members = {
        each.member_id: AssignedMember(
            frozenset(ids[name] for name in told[each.member_id].topics if name in ids), each.instance_id
        )
        for each in joined.members
    }
    counts = {topic_id: len(topics[name].partitions) for topic_id, name in names.items()}
    assigned = ASSIGNORS[joined.protocol](members, counts)
    return {
        member_id: write_assignment(
            told[member_id].version, {names[topic_id]: sorted(given) for topic_id, given in partitions.items()}
        )
        for member_id, partitions in assigned.items()
    }


def _read(member: JoinedMember) -> Subscription:
    """Returns what a member tells; one that tells nothing that can be read gets nothing."""
    return read_subscription(member.metadata) or _NOTHING
