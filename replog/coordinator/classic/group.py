"""One group of the classic protocol: its members, and where it is between two generations.

    EMPTY ──join──> PREPARING_REBALANCE ──all have joined, or time is over──> COMPLETING_REBALANCE ──leader's sync──> STABLE
      ^                │         ^                                                │                                    │
      └──nobody has────┘         └──── a join that changes something, a member that goes ─────────────────────────────┘

Only what a record says is part of the log: a generation that is stable, and one without members.  All else is known to this
coordinator alone, and the next one finds it out by asking members to join again.  Kafka's state Dead is a group that is not here.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from enum import Enum
from typing import Final

from msgspec import Struct

from replog.coordinator.classic.requests import JoinedMember, JoinGroupResponse, Protocol
from replog.coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE, topics_of_all
from replog.coordinator.instances import check_instance
from replog.coordinator.messages import GroupMetadataValue
from replog.errors import (
    IllegalGenerationError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

BYTES_BESIDE: Final = 64
"""The bytes that a member has at most in the record of its group beside names and what it wants and gets; the group itself, too."""

TOLD_BYTES_MAX: Final = 1_000_000
"""Of all members of a generation together; as much as any record has."""


class ClassicMember(Struct, eq=False):
    """What a member has told, and which of its requests wait.

    Attributes:
        protocols: The protocols that it supports, the one that it likes best first, each name once.
        assignment: What the leader of its generation has given to it.
        is_new: Whether it waits for its first generation, without heartbeats.
        join_request: The id of its join that waits; None where none does.  Only its group changes it, which counts them.
        sync_request: The id of its sync that waits; None where none does.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_request: int | None = None
    sync_request: int | None = None

    def is_waiting(self) -> bool:
        """Whether a request of it waits: then it cannot send heartbeats, and is not silent."""
        return self.join_request is not None or self.sync_request is not None

    def metadata(self, protocol: str) -> bytes:
        """Returns what it tells in a protocol; nothing where it does not support it."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def record_bytes(self, protocol: str | None = None) -> int:
        """Returns the bytes of it in the record of its group, or a few more, less those of its assignment.

        Args:
            protocol: The protocol of the generation; None for the one in which it tells least.
        """
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        least = min((len(each.metadata) for each in self.protocols), default=0)
        told = least if protocol is None else len(self.metadata(protocol))
        return sum(len(name.encode()) for name in names) + told + BYTES_BESIDE

    def vote(self, candidates: Container[str]) -> str:
        """Returns the one of the candidates that it likes best; "" where it supports none."""
        return next((each.name for each in self.protocols if each.name in candidates), "")


def size_of(protocols: tuple[Protocol, ...]) -> int:
    """Returns the bytes of what is told in protocols."""
    return sum(len(each.name) + len(each.metadata) for each in protocols)


class GroupState(Enum):
    """Where a group is between two generations; the names are those that people are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """A group.

    Invariants:
        - `waiting_joins` is the number of members with a join that waits;
        - each instance id is that of one member, and the leader is a member;
        - a group in state EMPTY has no members, and every other has one, unless they all go while it prepares.

    Attributes:
        generation: The number of the generation; it only rises.
        protocol_type: The kind of members; "" where nobody has joined yet.
        protocol: The protocol of the generation; None where there is none.
        leader_id: The member that assigns; None where there are no members.
        members: The members by id, in the order in which they came.
        instances: The member of each instance id.
        pending: The ids that have been told to members which have not come back with them.
        not_synced: The members of this generation that have not asked what they get.
        timestamp_ms: When the state began, in milliseconds since 1970; -1 where that is not known.
        record_bytes: The bytes that its record has at least, beside those of the assignments.
        record_room: The bytes that these may have, since a record was found too large; None where none was.
        record: What was written last; that the log has something else means that it was taken back.
        is_initial: Whether the generation that is prepared is the first one after the group was empty.
        has_new_member: Whether a member has come since that was put off last.
        delay_ms: How long it waits before it looks whether it has come to that.
        delay_left_ms: How much longer it may be put off.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.timestamp_ms = -1
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.instances: dict[str, str] = {}
        self.pending: dict[str, None] = {}
        self.not_synced: dict[str, None] = {}
        self.waiting_joins = 0
        self.size_bytes = 0
        self.record_bytes = len(group_id.encode()) + BYTES_BESIDE
        self.record_room: int | None = None
        self.record: GroupMetadataValue | None = None
        self.is_initial = False
        self.has_new_member = False
        self.delay_ms = 0
        self.delay_left_ms = 0
        self._supporters: dict[str, int] = {}  # protocol -> how many members support it
        self._topics: frozenset[bytes] | None = None
        self._told: list[bytes] | None = None  # of which the topics have not been asked for

    # ---- members ----------------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        """Adds a member; the first one decides on the kind, and leads."""
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.record_bytes += member.record_bytes()
        self.waiting_joins += member.join_request is not None
        self._count(member.protocols, 1)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Removes and returns a member, whose requests may still wait; None where there is none."""
        self.not_synced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self.record_bytes -= member.record_bytes()
        self.waiting_joins -= member.join_request is not None
        self._count(member.protocols, -1)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Gives another id to a static member, none of whose requests waits; it goes on to lead, if it does."""
        del self.members[member.member_id]
        self.record_bytes -= member.record_bytes()
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        if member.member_id in self.not_synced:
            del self.not_synced[member.member_id]
            self.not_synced[member_id] = None
        member.member_id = member_id
        self.record_bytes += member.record_bytes()
        self.members[member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id

    def update(self, member: ClassicMember, protocols: tuple[Protocol, ...]) -> None:
        """Takes in what a member tells anew."""
        self._count(member.protocols, -1)
        self.record_bytes -= member.record_bytes()
        member.protocols = protocols
        self.record_bytes += member.record_bytes()
        self._count(protocols, 1)

    def await_join(self, member: ClassicMember, request_id: int) -> int | None:
        """Keeps the join of a member; returns the id of one that has waited until now."""
        earlier, member.join_request = member.join_request, request_id
        self.waiting_joins += earlier is None
        return earlier

    def take_join(self, member: ClassicMember) -> int | None:
        """Takes out the id of the join of a member; None where none waits."""
        request_id, member.join_request = member.join_request, None
        self.waiting_joins -= request_id is not None
        return request_id

    def has_all_joined(self) -> bool:
        """Whether every member has joined the next generation, and nobody is about to come."""
        return self.waiting_joins == len(self.members) and not self.pending

    def rebalance_timeout_ms(self) -> int:
        """Returns how long a generation may take: as long as the slowest member needs."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def waiting_requests(self) -> list[int]:
        """Returns the ids of all requests that wait."""
        both = ((each.join_request, each.sync_request) for each in self.members.values())
        return [request_id for pair in both for request_id in pair if request_id is not None]

    def _count(self, protocols: tuple[Protocol, ...], change: int) -> None:
        for name, metadata in protocols:
            self._supporters[name] = self._supporters.get(name, 0) + change
            self.size_bytes += change * (len(name) + len(metadata))
            if not self._supporters[name]:
                del self._supporters[name]

    # ---- protocols --------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a member of a kind can be in the group: all others support one of its protocols."""
        if not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(each.name, 0) == len(self.members) for each in protocols
        )

    def chosen_protocol(self) -> str | None:
        """Returns the protocol that most members like best among those that all support; None where there is none."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for each in self.members.values():
            name = each.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__, default=None) if candidates else None

    def learn_topics(self) -> None:
        """Takes in what the members of a generation tell of the topics that they read; it is read when somebody asks.

        Of members who tell more than a group can keep nothing is known: their generation does not last.
        """
        self._topics = self._told = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            told = [each.metadata(self.protocol or "") for each in self.members.values()]
            if sum(map(len, told)) <= TOLD_BYTES_MAX:
                self._told = told

    def _known_topics(self) -> frozenset[bytes] | None:
        """Returns the topics that the members read, each in UTF-8; None where that cannot be told."""
        if self._told is not None:
            self._topics, self._told = topics_of_all(self._told), None
        return self._topics

    # ---- generations ------------------------------------------------------------------------------------------------

    def move_to(self, state: GroupState, wall_ms: int) -> None:
        """Begins a state."""
        self.state, self.timestamp_ms = state, wall_ms

    def elect_leader(self) -> bool:
        """Lets a member lead that has joined: the leader itself, or the first one that has; False where nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.join_request is None:
            joined = (each.member_id for each in self.members.values() if each.join_request is not None)
            found = next(joined, None)
            if found is None:
                return False
            self.leader_id = found
        return True

    def begin_generation(self, wall_ms: int) -> None:
        """Begins the next generation, which has to be assigned, unless there are no members."""
        self.generation += 1
        self.protocol = self.chosen_protocol()
        self.learn_topics()
        if not self.members:
            self.record_room = None
        self.move_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms)

    def joined(
        self, member_id: str, leader_id: str | None = None, *, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """Returns what a member is told of its generation.

        Args:
            member_id: The member.
            leader_id: The member that it is told to lead; None for the one that does.
            skip_assignment: Whether the leader need not assign.
        """
        leader_id = self.leader_id or "" if leader_id is None else leader_id
        protocol = self.protocol or ""
        members: tuple[JoinedMember, ...] = ()
        if member_id == leader_id:
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(protocol))
                for each in self.members.values()
            )
        return JoinGroupResponse(
            member_id, self.generation, self.protocol_type, protocol, leader_id, members, skip_assignment
        )

    # ---- who may ask ------------------------------------------------------------------------------------------------

    def member_or_raise(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Returns a member.

        Raises:
            UnknownMemberIdError: There is none of this id.
            FencedInstanceIdError: Its instance id is that of another one.
        """
        if instance_id is not None:
            check_instance(self.instances.get(instance_id), instance_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"group {self.group_id!r} has no member {member_id!r}: join it anew")
        return member

    def check_generation(self, generation: int) -> None:
        """Checks that a member is in this generation.

        Raises:
            IllegalGenerationError: It is not.
        """
        if generation != self.generation:
            raise IllegalGenerationError(
                f"generation {generation} of group {self.group_id!r} is not the newest, which is {self.generation}: join it"
            )

    # ---- as the keeper of its offsets sees it (replog.coordinator.offsets.owners) ---------------------------------------

    def check_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:
        """Checks that a member commits, in its generation; anybody may while there are no members.

        Raises:
            ReplogError: It is no member, of another generation, or does not know yet what it gets.
        """
        if member_epoch < 0 and self.state is GroupState.EMPTY:
            return
        self.member_or_raise(member_id, instance_id)
        self.check_generation(member_epoch)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgressError(f"group {self.group_id!r} has not been assigned yet")

    def check_transactional_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:
        """Checks that a member commits, in its generation, whether it is assigned or not; or somebody who names no member.

        Raises:
            ReplogError: It is no member, or of another generation.
        """
        is_simple = member_epoch < 0 and self.state is GroupState.EMPTY
        if not is_simple and (member_epoch >= 0 or member_id or instance_id is not None):
            self.member_or_raise(member_id, instance_id)
            self.check_generation(member_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Lets anybody read the offsets."""

    def check_delete_offsets(self) -> None:
        """Checks that offsets may be deleted: it can be told whether members read them.

        Raises:
            NonEmptyGroupError: Members of a kind that is not known here use the group.
        """
        if self.state is not GroupState.EMPTY and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroupError(f"group {self.group_id!r} has {len(self.members)} members: stop them first")

    def subscribed_among(self, topics: Collection[str]) -> Collection[str]:
        """Returns those of some topics that a member reads; consumers that do not tell what they read may read all."""
        known = self._known_topics()
        if known is None:
            return topics if self.members and self.protocol_type == CONSUMER_PROTOCOL_TYPE else ()
        return {topic for topic in topics if topic.encode() in known}

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """Returns when the retention of an offset began: when the group became empty, or, of what nobody reads, its commit.

        Args:
            commit_timestamp_ms: The time at which the offset was committed.
        """
        if self.state is GroupState.EMPTY:
            return self.timestamp_ms if self.protocol_type and self.timestamp_ms >= 0 else commit_timestamp_ms
        is_known = self.state is GroupState.STABLE and self._known_topics() is not None
        return commit_timestamp_ms if is_known else None
