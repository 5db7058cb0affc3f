"""What the committed log of `__consumer_offsets` says of groups, replayed beside the coordinators, from the bytes of the files.

Whoever commits offsets in the simulation of groups puts its name beside them (`Author`), so that the log says whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from replog.broker.replicas.replica import Replica
from replog.coordinator.classic.subscription import assigned_partitions
from replog.coordinator.consumers.member import MemberAssignment, MemberState
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from replog.coordinator.records import CoordinatorRecord
from replog.log import Log
from replog.records import BatchHeader, decode_records, parse_header
from tests.sim.replica_watch import written_bytes

Partitions: TypeAlias = frozenset[int]
"""Of the one topic that all groups read."""

NOTHING: Partitions = frozenset()


class Author(NamedTuple):
    """Who commits: a member, in one member epoch or generation.

    Attributes:
        connection: the number of the connection that it commits over, where it may give one up and go on over the next.
    """

    member_id: str
    epoch: int
    connection: int = 0

    def __str__(self) -> str:
        return f"{self.member_id} {self.epoch} {self.connection}"

    @classmethod
    def of(cls, text: str) -> Author:
        """What `str` has made of it."""
        member_id, epoch, connection = text.rsplit(" ", 2)
        return cls(member_id, int(epoch), int(connection))

    def has_given_up(self, earlier: Author) -> bool:
        """Whether this is the same member in the same generation, and has given up the connection of `earlier` since."""
        return earlier[:2] == self[:2] and earlier.connection < self.connection


class Kept(NamedTuple):
    """A committed offset, and who has committed it."""

    offset: int
    author: Author


class Place(NamedTuple):
    """What a member has, by the log.

    Attributes:
        revoked: what it has to give back, and nobody else may have.
    """

    epoch: int
    assigned: Partitions
    revoked: Partitions = NOTHING
    state: MemberState = MemberState.STABLE


@dataclass(slots=True)
class LoggedGroup:
    """One group, as far as the log has committed.

    Attributes:
        members: of either protocol.
        generation: of the classic protocol; -1 where there is none.
        offsets: by partition.
        highest: the highest offset of each partition that was ever committed.
        said: each (epoch, partitions) that a member ever had, by its id.
        revoking_since: since when a member has to give something back.
    """

    members: dict[str, Place] = field(default_factory=dict)
    generation: int = -1
    offsets: dict[int, Kept] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)
    said: dict[str, set[tuple[int, Partitions]]] = field(default_factory=dict)
    by_author: dict[tuple[int, str], int] = field(default_factory=dict)
    revoking_since: dict[str, float] = field(default_factory=dict)

    def holder(self, partition: int) -> str | None:
        """The member that has a partition; None: nobody has."""
        return next((name for name, place in self.members.items() if partition in place.assigned), None)


class LogListener:
    """Told of each record before the log counts it; override what matters."""

    def before_place(self, group_id: str, group: LoggedGroup, member_id: str, place: Place) -> None: ...

    def before_generation(
        self, group_id: str, group: LoggedGroup, generation: int, members: Mapping[str, Place]
    ) -> None: ...

    def before_removal(self, group_id: str, group: LoggedGroup, member_id: str) -> None: ...

    def before_offset(self, group_id: str, group: LoggedGroup, partition: int, kept: Kept | None) -> None: ...


class GroupLog:
    """Replays what has committed, each record once.

    Args:
        listener: told.

    Attributes:
        ignored: the group whose offsets have no `Author`, if there is one.
    """

    def __init__(self, listener: LogListener) -> None:
        self.ignored = ""
        self.groups: dict[str, LoggedGroup] = {}
        self.records = 0
        self._listener = listener
        self._ends: dict[int, int] = {}

    def take(self, replica: Replica) -> None:
        """Reads on, up to the high watermark of whoever leads."""
        number, end = replica.key[1], replica.high_watermark
        begin = self._ends.get(number, 0)
        if end <= begin:
            return
        self._ends[number] = end
        for key, value in logged_records(replica.log, begin, end):
            record = GROUP_RECORDS.decode(key, value)
            if record is not None:
                self.records += 1
                self._replay(record)

    def group(self, group_id: str) -> LoggedGroup:
        """An empty one where the log says nothing of it."""
        return self.groups.setdefault(group_id, LoggedGroup())

    def _replay(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        match key:
            case ConsumerGroupCurrentMemberAssignmentKey():
                group = self.group(key.group_id)
                if value is not None:
                    self._replay_place(key.group_id, group, key.member_id, MemberAssignment.from_value(value))
            case ConsumerGroupMemberMetadataKey() if value is None:
                group = self.group(key.group_id)
                if key.member_id in group.members:
                    self._listener.before_removal(key.group_id, group, key.member_id)
                    del group.members[key.member_id]
            case GroupMetadataKey():
                self._replay_classic(key.group, value)
            case OffsetCommitKey() if key.group != self.ignored:
                self._replay_offset(key, value)

    def _replay_place(self, group_id: str, group: LoggedGroup, member_id: str, found: MemberAssignment) -> None:
        place = Place(found.epoch, _numbers(found.assigned), _numbers(found.revoked), found.state)
        self._listener.before_place(group_id, group, member_id, place)
        group.members[member_id] = place
        group.said.setdefault(member_id, set()).add((place.epoch, place.assigned))

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.group(group_id)
        if value is None:
            group.members.clear()
            group.generation = -1
            return
        members = {
            each.member_id: Place(
                value.generation, frozenset(number for _, number in assigned_partitions(each.assignment))
            )
            for each in value.members
        }
        self._listener.before_generation(group_id, group, value.generation, members)
        group.generation, group.members = value.generation, members
        for member_id, place in members.items():
            group.said.setdefault(member_id, set()).add((place.epoch, place.assigned))

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        group = self.group(key.group)
        kept = None if value is None else Kept(value.offset, Author.of(value.metadata))
        self._listener.before_offset(key.group, group, key.partition, kept)
        if kept is None:
            group.offsets.pop(key.partition, None)
            return
        group.offsets[key.partition] = kept
        group.highest[key.partition] = max(kept.offset, group.highest.get(key.partition, -1))
        whose = key.partition, kept.author.member_id
        group.by_author[whose] = max(kept.offset, group.by_author.get(whose, -1))


def _numbers(assignment: Mapping[object, object]) -> Partitions:
    return frozenset(number for numbers in assignment.values() for number in numbers)


def logged_records(log: Log, begin: int, end: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values of the records in [begin, end) that compaction has left, from the bytes of the files."""
    for header, batch in logged_batches(log, begin, end):
        if not header.is_control:
            for each in decode_records(batch, start_offset=begin, end_offset=end):
                yield each.key or b"", each.value


def logged_batches(log: Log, begin: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Headers and bytes of the batches that reach into [begin, end), from the bytes of the files."""
    segments = log._state.segments
    for number, segment in enumerate(segments):
        next_offset = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
        if next_offset <= begin or segment.base_offset >= end:
            continue
        data, position = bytes(written_bytes(log, segment.path)), 0
        while position < segment.size_bytes:
            header = parse_header(data, position)
            if header.base_offset >= end:
                return
            if header.next_offset > begin:
                yield header, memoryview(data)[position : position + header.size_bytes]
            position += header.size_bytes
