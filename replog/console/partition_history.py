"""What happened to one partition, and why, from the records of the metadata log in their order.  Pure.

The log says what became of a partition, not why.  The reasons are what it says beside: a broker of the partition that was fenced,
shut down, came back or was drained since the last change, and the kind of an election.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.metadata import MetadataImage
from replog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    DrainBrokerRecord,
    ElectionType,
    EndTransactionRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from replog.metadata.registrations import PartitionRegistration

CHANGES_MAX: Final = 1_000
"""Changes that are kept: the newest."""

_ELECTIONS: Final = {
    ElectionType.PREFERRED: "the preferred replica was elected",
    ElectionType.UNCLEAN: "an unclean election: what the new leader lacked was given up",
    ElectionType.RECOVERED: "all that may have everything had reported, and the longest log won",
}


Placed: TypeAlias = tuple[int, int, MetadataRecord]
"""A record with its offset and its time, milliseconds since 1970; -1: it has none."""


class PartitionMoment(Struct, frozen=True):
    """A partition from one change on, up to the next.

    Attributes:
        offset: The offset of the record in the metadata log; -1: it was so before the first record that is still there.
        timestamp: The time of the record, milliseconds since 1970; -1: not known.
        state: The partition; None: it was deleted.
        fenced: The replicas whose brokers were fenced, or not registered, then.
        what: What changed, in words.
        why: The reasons, in words; none where nothing tells one.
    """

    offset: int
    timestamp: int
    state: PartitionRegistration | None
    fenced: tuple[int, ...]
    what: tuple[str, ...]
    why: tuple[str, ...]


class PartitionHistory:
    """Takes the records of the metadata log, and keeps the newest changes of one partition.

    Args:
        topic_id: The topic of the partition.
        partition: The number of the partition.
        image: The image that the records follow.
    """

    def __init__(self, topic_id: UUID, partition: int, image: MetadataImage) -> None:
        self.moments: deque[PartitionMoment] = deque(maxlen=CHANGES_MAX)
        self.changes_count = 0
        self._name = (topic_id, partition)
        self._serving = {number for number, broker in image.brokers.items() if not broker.fenced}
        self._news: dict[int, list[str]] = {}  # of brokers, since the last change
        self._held: list[Placed] | None = None  # of a transaction that has not ended
        self._state = image.partition(topic_id, partition)
        if self._state is not None:
            self._note(-1, -1, None, self._state, "so it was in the oldest snapshot")

    def take(self, batch: Iterable[Placed]) -> None:
        """Takes the records of the next batch, with offset and time; those of a transaction count when it ends.

        A batch is one decision: what it says of brokers is why it changes partitions, also where it says that last.
        """
        counted: list[Placed] = []
        for placed in batch:
            match placed[2]:
                case BeginTransactionRecord():
                    self._held = []
                case AbortTransactionRecord():
                    self._held = None
                case EndTransactionRecord():
                    counted += self._held or []
                    self._held = None
                case _:
                    (counted if self._held is None else self._held).append(placed)
        for _, _, record in counted:
            self._take_broker(record)
        for offset, timestamp, record in counted:
            self._take(offset, timestamp, record)

    def _take(self, offset: int, timestamp: int, record: MetadataRecord) -> None:
        match record:
            case PartitionRecord() if (record.topic_id, record.partition_id) == self._name:
                self._note(offset, timestamp, self._state, PartitionRegistration.from_record(record))
            case PartitionChangeRecord() if (record.topic_id, record.partition_id) == self._name and self._state:
                election = record.election_type or ElectionType.CLEAN
                self._note(offset, timestamp, self._state, self._state.merge(record), _ELECTIONS.get(election, ""))
            case RemoveTopicRecord() if record.topic_id == self._name[0]:
                self._note(offset, timestamp, self._state, None)
            case _:
                pass

    def _take_broker(self, record: MetadataRecord) -> None:
        match record:
            case RegisterBrokerRecord():
                self._stand(record.broker_id, serves=not record.fenced, news="registered: its process had started")
            case BrokerRegistrationChangeRecord():
                if record.in_controlled_shutdown:
                    self._tell(record.broker_id, "began to shut down")
                if record.fenced is not None:
                    news = "was fenced: its process or its heartbeats had ended" if record.fenced else "served again"
                    self._stand(record.broker_id, serves=not record.fenced, news=news)
            case UnregisterBrokerRecord():
                self._stand(record.broker_id, serves=False, news="was unregistered")
            case DrainBrokerRecord():
                self._tell(record.broker_id, "was to be drained" if record.drained else "was no longer to be drained")
            case _:
                pass

    def _stand(self, broker_id: int, *, serves: bool, news: str) -> None:
        (self._serving.add if serves else self._serving.discard)(broker_id)
        self._tell(broker_id, news)

    def _tell(self, broker_id: int, news: str) -> None:
        self._news[broker_id] = [*self._news.get(broker_id, ())[-3:], f"broker {broker_id} {news}"]

    def _note(
        self,
        offset: int,
        timestamp: int,
        before: PartitionRegistration | None,
        after: PartitionRegistration | None,
        reason: str = "",
    ) -> None:
        self._state = after
        why = [reason] if reason else []
        why += [news for broker in concerned(before, after) for news in self._news.get(broker, ())]
        fenced = tuple(each for each in (after.replicas if after else ()) if each not in self._serving)
        what = tuple(changes(before, after))
        self.moments.append(
            PartitionMoment(offset, timestamp, after, fenced, what, tuple(why) or tuple(_by_itself(before, after)))
        )
        self.changes_count += 1
        self._news.clear()


def changes(before: PartitionRegistration | None, after: PartitionRegistration | None) -> Iterator[str]:
    """Yields what changed between two states, in words."""
    if after is None:
        yield "the topic was deleted"
        return
    if before is None:
        yield f"created on {_brokers(after.replicas)}" + (
            f", led by broker {after.leader}" if after.leader >= 0 else ""
        )
        return
    if after.leader_epoch != before.leader_epoch:
        yield _leader_words(before.leader, after.leader)
    yield from _joined_or_left(before.isr, after.isr, "joined the ISR", "left the ISR")
    yield from _joined_or_left(before.elr, after.elr, "stays eligible to lead", "is not eligible any more")
    if after.replicas != before.replicas:
        yield f"its replicas are on {_brokers(after.replicas)}, before on {_brokers(before.replicas)}"
    if after.is_reassigning and not before.is_reassigning:
        yield "a reassignment began"
    elif before.is_reassigning and not after.is_reassigning:
        yield "the reassignment ended"


def concerned(before: PartitionRegistration | None, after: PartitionRegistration | None) -> list[int]:
    """Returns the brokers that a change is about: who led or leads, who came or went; in order."""
    if before is None or after is None:
        return []
    found = set(before.isr) ^ set(after.isr) | set(before.replicas) ^ set(after.replicas)
    if before.leader_epoch != after.leader_epoch:
        found |= {before.leader, after.leader}
    return sorted(found - {-1})


def _by_itself(before: PartitionRegistration | None, after: PartitionRegistration | None) -> Iterator[str]:
    """Yields why an ISR changed where no broker's news tell it: its leader asked for it."""
    if before is None or after is None or before.leader_epoch != after.leader_epoch:
        return
    if set(after.isr) - set(before.isr):
        yield f"its leader, broker {after.leader}, saw that it had caught up"
    if set(before.isr) - set(after.isr):
        yield f"its leader, broker {after.leader}, saw that it did not keep up"


def _leader_words(before: int, after: int) -> str:
    if after < 0:
        return f"nobody leads, before broker {before}" if before >= 0 else "still nobody leads"
    if before == after:
        return f"broker {after} leads on, in a new epoch"
    return f"broker {after} leads" + (f" instead of broker {before}" if before >= 0 else ", before nobody")


def _joined_or_left(before: Iterable[int], after: Iterable[int], joined: str, left: str) -> Iterator[str]:
    was, now = set(before), set(after)
    yield from (f"broker {each} {joined}" for each in sorted(now - was))
    yield from (f"broker {each} {left}" for each in sorted(was - now))


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"
