"""Commits of offsets: what waits to be sent, what is under way, who waits for it.  Pure.

One request is under way at a time, so that an older offset never overtakes a newer one; what comes meanwhile waits and goes
out together.  Of several offsets of a partition that wait the last one is sent, and whoever waits for an earlier one waits
for that.

How far the application has come in what it reads: a record is done with when the next one is asked for.  Pure.

Why not when it is handed out: whoever fails, or is killed, while it works on a record has to get it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct, field

from replog.client.types import TopicPartition
from replog.coordinator.offsets.requests import NO_LEADER_EPOCH, CommitOffsetsResponse, OffsetToCommit, TopicToCommit
from replog.errors import ReplogError


class Offset(NamedTuple):
    """What is committed of a partition: the offset of the record to be read next, the leader epoch of the one before it (-1:
    not known), and any text beside them.
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class Finished(NamedTuple):
    """A commit that has ended.

    Attributes:
        ticket: Its number.
        error: Why it failed; None if everything in it is kept.
    """

    ticket: int
    error: ReplogError | None


class _Entry(Struct):
    """One offset, and the tickets that wait for it or for an earlier one."""

    offset: Offset
    tickets: list[int]


class _Ticket(Struct):
    """A commit that somebody waits for: the partitions that are not settled, and the first error."""

    missing: set[TopicPartition] = field(default_factory=set[TopicPartition])
    error: ReplogError | None = None


Ours = Callable[[TopicPartition], bool]


class CommitBook:
    """Invariants:
    - one request is under way at a time;
    - a request names only what is the member's when it is made;
    - each ticket is finished once.

    Attributes:
        committed: The last offset that was kept, of each partition.
    """

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, _Entry] = {}
        self._under_way: dict[TopicPartition, _Entry] = {}
        self._tickets: dict[int, _Ticket] = {}
        self._serial = 0

    @property
    def has_waiting(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._waiting)

    @property
    def is_under_way(self) -> bool:
        """Whether a request is under way."""
        return bool(self._under_way)

    def want(self, offsets: Mapping[TopicPartition, Offset]) -> int:
        """Lets offsets wait to be sent; there is at least one.  Returns the ticket."""
        self._serial += 1
        self._tickets[self._serial] = _Ticket(set(offsets))
        for partition, offset in offsets.items():
            before = self._waiting.get(partition)
            tickets = before.tickets if before is not None else []
            tickets.append(self._serial)
            self._waiting[partition] = _Entry(offset, tickets)
        return self._serial

    def latest(self, partition: TopicPartition) -> int | None:
        """Returns the offset that was wanted last, whether it has been kept yet or not; None where none was."""
        pending = self.pending(partition)
        return pending.offset if pending is not None else self.committed.get(partition)

    def pending(self, partition: TopicPartition) -> Offset | None:
        """Returns the offset that was wanted last and is not settled; None where none is."""
        entry = self._waiting.get(partition) or self._under_way.get(partition)
        return entry.offset if entry is not None else None

    def take(
        self, is_ours: Ours, refusal: Callable[[TopicPartition], ReplogError]
    ) -> tuple[dict[TopicPartition, Offset], list[Finished]]:
        """Takes what is to be sent now; nothing while something is under way.

        Args:
            is_ours: The function that says whether a partition is the member's.
            refusal: The function that makes the error for one that is not.

        Returns:
            The offsets, and the commits that fail because nothing of theirs may be sent.
        """
        if self._under_way:
            return {}, []
        foreign = [each for each in self._waiting if not is_ours(each)]
        finished = self.fail(foreign, refusal)
        self._under_way, self._waiting = self._waiting, {}
        return {partition: entry.offset for partition, entry in self._under_way.items()}, finished

    def answered(self, errors: Mapping[TopicPartition, ReplogError | None]) -> list[Finished]:
        """Takes in the answer to what is under way.

        Args:
            errors: What has become of each partition; None where it is kept.  One that is left out was not kept.
        """
        entries, self._under_way = self._under_way, {}
        finished: list[Finished] = []
        for partition, entry in entries.items():
            error = errors.get(partition, _UNANSWERED)
            if error is None:
                self.committed[partition] = entry.offset.offset
            finished += self._settle(partition, entry, error)
        return finished

    def put_back(self) -> None:
        """Lets what was under way wait again: whether it was kept is not known, or it was not and may be.

        Where a newer offset waits, that is sent for both.
        """
        entries, self._under_way = self._under_way, {}
        for partition, entry in entries.items():
            newer = self._waiting.get(partition)
            if newer is None:
                self._waiting[partition] = entry
            else:
                newer.tickets[:0] = entry.tickets

    def fail(
        self, partitions: Iterable[TopicPartition], refusal: Callable[[TopicPartition], ReplogError]
    ) -> list[Finished]:
        """Gives up what waits of these partitions."""
        finished: list[Finished] = []
        for partition in partitions:
            entry = self._waiting.pop(partition, None)
            if entry is not None:
                finished += self._settle(partition, entry, refusal(partition))
        return finished

    def fail_all(self, refusal: Callable[[TopicPartition], ReplogError]) -> list[Finished]:
        """Gives up everything, also what is under way."""
        self.put_back()
        return self.fail(list(self._waiting), refusal)

    def forget(self, partition: TopicPartition, refusal: Callable[[TopicPartition], ReplogError]) -> list[Finished]:
        """Forgets a partition that is not the member's any more, and gives up what waits of it or is under way.

        Should it be the member's again, what is left of the time before must not be sent in the epoch of then.
        """
        self.committed.pop(partition, None)
        finished = self.fail([partition], refusal)
        entry = self._under_way.pop(partition, None)
        return finished if entry is None else finished + self._settle(partition, entry, refusal(partition))

    def _settle(self, partition: TopicPartition, entry: _Entry, error: ReplogError | None) -> list[Finished]:
        """Counts a partition out of the tickets that wait for it; returns those that have ended."""
        finished: list[Finished] = []
        for number in entry.tickets:
            ticket = self._tickets[number]
            ticket.missing.discard(partition)
            ticket.error = ticket.error or error
            if not ticket.missing:
                del self._tickets[number]
                finished.append(Finished(number, ticket.error))
        return finished


_UNANSWERED = ReplogError("the coordinator left the partition out of its answer")


def topics_to_commit(
    offsets: Mapping[TopicPartition, Offset], ids: Mapping[TopicPartition, UUID]
) -> tuple[TopicToCommit, ...]:
    """Returns offsets as a request has them: by topic.

    Args:
        offsets: The offset of each partition.
        ids: The id of the topic of each of them.
    """
    by_topic: dict[str, list[OffsetToCommit]] = {}
    topic_ids: dict[str, UUID] = {}
    for each, offset in offsets.items():
        to_commit = OffsetToCommit(each.partition, *offset)
        by_topic.setdefault(each.topic, []).append(to_commit)
        topic_ids[each.topic] = ids[each]
    return tuple(TopicToCommit(name, topic_ids[name], tuple(found)) for name, found in by_topic.items())


def errors_of(response: CommitOffsetsResponse) -> dict[TopicPartition, ReplogError | None]:
    """Returns why each offset was not committed; None where it was."""
    return {
        TopicPartition(topic.topic, each.partition): each.error
        for topic in response.topics
        for each in topic.partitions
    }


# ---- how far the application has come in what it reads: a record is done with when the next one is asked for.  Pure


class Progress:
    """Invariants:
    - what is done with was handed out, and asked past after that;
    - of a partition that is sought in, only what is handed out afterwards counts;
    - what the application has said itself is not taken back by what it does later, unless it seeks.

    Attributes:
        held_back: The function that returns, of what was handed out last, the first offset that is not asked past in each
            partition; None: all of it is in hand until the next is asked for.
    """

    def __init__(self) -> None:
        self._floors: dict[TopicPartition, int] = {}  # where reading began, or what the application has committed since
        self._touched: set[TopicPartition] = (
            set()
        )  # of which something was handed out since then, or the policy decided
        self._in_hand: dict[TopicPartition, int] = {}  # the first offset of what was handed out last
        self.held_back: Callable[[], Mapping[TopicPartition, int]] | None = None

    def begin(self, partition: TopicPartition, offset: int) -> None:
        """Begins anew at `offset`: the partition is read from there on."""
        self._floors[partition] = offset
        self._touched.discard(partition)
        self._in_hand.pop(partition, None)

    def begin_at_reset(self, partition: TopicPartition, offset: int) -> None:
        """Begins anew at `offset`, which the reset policy has chosen: it counts as done with up to there.

        Whoever reads the partition next would else ask the policy anew, and "latest" is a later place then.
        """
        self.begin(partition, offset)
        self._floors[partition] = offset - 1
        self._touched.add(partition)

    def end(self, partition: TopicPartition) -> None:
        """Forgets a partition."""
        self._floors.pop(partition, None)
        self._touched.discard(partition)
        self._in_hand.pop(partition, None)

    def settle(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Counts what is below these offsets as done with, because the application says so; returns what it goes back to."""
        before = {each: self._floors[each] for each in offsets if each in self._floors}
        self._floors.update({each: offsets[each] for each in before})
        return before

    def take_back(self, offsets: Mapping[TopicPartition, int], before: Mapping[TopicPartition, int]) -> None:
        """Counts it as before `settle`, of those partitions of which the application has not said something else since.

        Args:
            offsets: What was settled.
            before: What `settle` has returned.
        """
        self._floors.update({each: old for each, old in before.items() if self._floors.get(each) == offsets[each]})

    def ask(self) -> None:
        """Counts all that was handed out as done with: the application asks for more."""
        self._in_hand.clear()

    def hand_out(self, partition: TopicPartition, first_offset: int) -> None:
        """Counts records of a partition from `first_offset` on as in the application's hands."""
        if partition in self._floors:
            self._touched.add(partition)
            self._in_hand.setdefault(partition, first_offset)

    def done(self, position: Callable[[TopicPartition], int]) -> dict[TopicPartition, int]:
        """Returns the offset of the first record that is not done with, of partitions in which something is.

        Args:
            position: The function that returns the offset after the last record that was handed out.
        """
        in_hand: Mapping[TopicPartition, int] = self._in_hand
        if in_hand and self.held_back is not None:
            in_hand = self.held_back()
        positions = {each: position(each) for each in self._touched}  # below what is in hand where that was taken back
        found = {each: min(in_hand.get(each, offset), offset) for each, offset in positions.items()}
        return {each: offset for each, offset in found.items() if offset > self._floors[each]}
